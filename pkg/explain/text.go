package explain

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"

	"perago/pkg/txn"
)

// Text writes an explanation for people.
func (e Explanation) Text(to io.Writer) error {
	var t strings.Builder
	line := func(format string, arguments ...any) {
		for i, a := range arguments {
			arguments[i] = plain(fmt.Sprint(a))
		}
		fmt.Fprintf(&t, format+"\n", arguments...)
	}
	attempts := func(all []Attempt) {
		for _, a := range all {
			started := "-"
			if a.Started != nil {
				started = a.Started.Format(time.RFC3339)
			}
			line("  %s, retry %s, %s, %s: %s", a.Name, a.Retry, started, a.Status, a.Result)
		}
	}
	var explained func(e Explanation, sub bool)
	explained = func(e Explanation, sub bool) {
		what := "workflow"
		if sub {
			what = "\nsub-workflow"
		}
		line(what+" %s (%s) is %s%s", e.Workflow, e.Name, e.Status, because(e.Reason))
		if words := e.withoutSteps(); words != "" {
			line("\n%s", words)
		}
		for _, s := range e.Steps {
			line("\nstep %s: %s of lakefs://%s/%s, from %s", s.Step, s.Prefix, s.Repository, s.Branch, s.InputRef)
			line("  %s: %s", s.State, s.Summary)
			attempts(s.Attempts)
			for _, open := range s.Open {
				line("  open: %s: %s", open.Branch, open.Why)
			}
		}
		if len(e.Others) > 0 {
			line("\nother tasks of perago's")
			attempts(e.Others)
		}
		if pending := e.pending(); len(pending) > 0 {
			line("\ntasks that are not perago's and have not completed")
			attempts(pending)
		}
		for _, h := range e.Targets {
			line("\nlakefs://%s/%s is at %s", h.Repository, h.Branch, h.Head)
			for _, c := range h.Commits {
				what := string(c.Kind)
				switch {
				case c.Workflow == e.Workflow:
					what = fmt.Sprintf("%s of %s, retry %d", c.Kind, c.Step, c.Retry)
				case c.Workflow != "":
					what = fmt.Sprintf("%s of another workflow, %s", c.Kind, c.Workflow)
				case c.Kind == Foreign:
					what = fmt.Sprintf("foreign, %s: %s", c.Why, c.Message)
				}
				if c.Supersedes != "" {
					what += ", supersedes " + c.Supersedes.Short()
				}
				line("  %s, %s: %s", c.Commit, c.Created.Format(time.RFC3339), what)
			}
		}
		for _, sub := range e.Subs {
			explained(sub, true)
		}
	}
	explained(e, false)
	if len(e.Problems) > 0 {
		line("\nnot read, so less is known")
	}
	for _, problem := range e.Problems {
		line("  %s", problem)
	}
	switch {
	case len(e.Next) > 0:
		line("\nwhat to do")
	case e.Rest() != "":
		line("\n%s", e.Rest())
	}
	for _, next := range e.Next {
		line("  %s", next)
	}
	_, err := io.WriteString(to, t.String())
	return err
}

// withoutSteps says what it means that a workflow has no steps; empty when it has
// some.
func (e Explanation) withoutSteps() string {
	switch {
	case len(e.Steps) > 0:
		return ""
	case len(e.Subs) > 0:
		return "No step of its own has begun. Its sub-workflows are below."
	}
	return "No step of it has begun: nothing is staged or published."
}

// pending are the users' tasks that have not completed.
func (e Explanation) pending() []Attempt {
	var all []Attempt
	for _, a := range e.Users {
		if a.Status != txn.TaskCompleted && a.Status != txn.TaskCompletedWithErrors && a.Status != txn.TaskSkipped {
			all = append(all, a)
		}
	}
	return all
}

// plain keeps what servers say from breaking a line or a terminal.
func plain(text string) string {
	if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}
