package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

func title(text string) {
	fmt.Printf("\n%s\n%s\n", text, strings.Repeat("=", len(text)))
}

func table(rows [][]string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
	}
	w.Flush()
}

// short makes ids fit a line.
func short(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}

func printTasks(w workflow) {
	fmt.Println()
	rows := [][]string{{"TASK", "TYPE", "TRY", "STATUS", "TOOK", "RESULT"}}
	for _, t := range w.Tasks {
		took := ""
		if t.StartTime > 0 && t.EndTime >= t.StartTime {
			took = (time.Duration(t.EndTime-t.StartTime) * time.Millisecond).String()
		}
		rows = append(rows, []string{t.ReferenceName, t.Type, fmt.Sprint(t.RetryCount + 1), t.Status, took, result(t)})
	}
	table(rows)
	fmt.Printf("  the workflow is %s\n", w.Status)
}

// result is a task's output in a few words.
func result(t task) string {
	o := t.output()
	switch {
	case t.Status == "FAILED" && o.Publication.Outcome != "":
		return o.Publication.Outcome
	case o.Publication.Commit != "":
		return fmt.Sprintf("%s: %s is now %s", o.Publication.Outcome, branch, short(o.Publication.Commit))
	case o.Staged != nil:
		return fmt.Sprintf("%d added, %d changed, %d removed, %d unchanged",
			o.Staged.Added, o.Staged.Changed, o.Staged.Removed, o.Staged.Unchanged)
	case o.Directory != "":
		return "wrote its files"
	case len(o.Deleted)+len(o.Kept)+len(o.Errors) > 0:
		text := fmt.Sprintf("staging branches deleted: %d", len(o.Deleted))
		for _, kept := range o.Kept {
			text += "; kept: " + kept.Reason
		}
		for _, e := range o.Errors {
			text += fmt.Sprintf("; error: %v", e)
		}
		return text
	}
	return ""
}

func printTrees(before, after tree) {
	for _, path := range paths(before, after) {
		b, inBefore := before[path]
		a, inAfter := after[path]
		mark := " "
		switch {
		case !inBefore:
			mark = "+"
		case !inAfter:
			mark = "-"
		case a != b:
			mark = "~"
		}
		fmt.Printf("  %s %s\n", mark, path)
	}
	fmt.Println("(+ added, ~ changed, - removed)")
}

func printHistory(log []commit) {
	for _, c := range log {
		fmt.Printf("\n  %s  %s\n", short(c.ID), c.Message)
		rows := [][]string{}
		for _, key := range []string{
			"version", "phase", "logical_task_key", "workflow_id", "task_id", "retry_count", "execution_id", "input_ref",
			"target_branch", "prefix", "staging_branch", "staging_commit", "staging_execution_id",
			"source_commit", "expected_head", "supersedes",
		} {
			if v, ok := c.Metadata["perago."+key]; ok {
				rows = append(rows, []string{"    perago." + key, v})
			}
		}
		table(rows)
	}
}
