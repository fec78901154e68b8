package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	repository = "demo"
	branch     = "main"

	workflowFile = "workflows/two_steps.json"
	waitTime     = 2 * time.Minute // for one workflow
)

// definitions are what the demo registers: the shipped ones and the example's.
var definitions = []string{"taskdefs", "workflows", "examples/user-worker/taskdefs"}

// The files of main before the first workflow. The steps own data/ and models/;
// data.json and data2/ only look like it.
var initialFiles = tree{
	"README.md":            "A repository for the demo.\n",
	"data.json":            `{"a sibling of": "data/"}` + "\n",
	"data2/visits.csv":     "another sibling of data/\n",
	"data/old.csv":         "not in the new data set\n",
	"models/baseline.json": `{"weights": [0, 0]}` + "\n",
}

// steps of the workflow and the prefix each of them owns, in order.
var steps = []struct{ task, prefix string }{{"prepare", "data/"}, {"train", "models/"}}

// story runs the three workflows and checks what they did.
func (d *demo) story(ctx context.Context) error {
	if err := d.lake.commitFiles(ctx, initialFiles, "Initial files"); err != nil {
		return err
	}
	first, err := d.ref(ctx)
	if err != nil {
		return err
	}

	title("Workflow 1: two steps, from the head of main")
	second, err := d.published(ctx, first, map[string]any{
		"days": []string{"2026-03-01", "2026-03-02", "2026-03-03"}, "epochs": 3, "revision": 1,
	})
	if err != nil {
		return fmt.Errorf("workflow 1: %w", err)
	}

	title("Workflow 2: the same, from the new head, with other days and fewer epochs")
	ref, err := d.ref(ctx)
	if err != nil {
		return err
	}
	if ref != second {
		return fmt.Errorf("perago ref says %s, workflow 1 put out %s", ref, second)
	}
	third, err := d.published(ctx, second, map[string]any{
		"days": []string{"2026-03-02", "2026-03-03", "2026-03-04"}, "epochs": 2, "revision": 1,
	})
	if err != nil {
		return fmt.Errorf("workflow 2: %w", err)
	}

	title("Workflow 3: from the first head, which is out of date")
	if err := d.refused(ctx, first, third); err != nil {
		return fmt.Errorf("workflow 3: %w", err)
	}

	title("The history of main, newest first")
	if err := d.history(ctx, first); err != nil {
		return err
	}

	if err := d.noBranches(ctx); err != nil {
		return err
	}
	fmt.Println("\nNo staging branch is left, hidden ones included.")
	return nil
}

func (d *demo) noBranches(ctx context.Context) error {
	left, err := d.lake.peragoBranches(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("staging branches are left: %s", strings.Join(left, ", "))
	}
	return nil
}

// ref asks the command line for the commit to start a workflow from.
func (d *demo) ref(ctx context.Context) (string, error) {
	address := "lakefs://" + repository + "/" + branch
	var out bytes.Buffer
	if err := d.perago(ctx, &out, "ref", address); err != nil {
		return "", err
	}
	ref := strings.TrimSpace(out.String())
	head, err := d.lake.head(ctx)
	if err != nil {
		return "", err
	}
	if ref != head {
		return "", fmt.Errorf("perago ref %s says %q, lakeFS says %s", address, ref, head)
	}
	fmt.Printf("\n$ perago ref %s\n%s\n", address, ref)
	return ref, nil
}

// startWorkflow starts the two-step workflow from an input ref.
func (d *demo) startWorkflow(ctx context.Context, ref string, input map[string]any) (string, error) {
	b, err := os.ReadFile(workflowFile)
	if err != nil {
		return "", err
	}
	var definition struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(b, &definition); err != nil {
		return "", fmt.Errorf("%s: %w", workflowFile, err)
	}
	input = maps.Clone(input)
	input["workspace"] = map[string]string{
		"repository": repository, "branch": branch, "ref_type": "commit", "ref": ref,
	}
	id, err := d.conductor.startWorkflow(ctx, definition.Name, input)
	if err != nil {
		return "", err
	}
	encoded, err := json.Marshal(input)
	if err != nil {
		return "", err
	}
	fmt.Printf("\nworkflow %s (%s), input\n  %s\n", definition.Name, id, encoded)
	return id, nil
}

// published runs a workflow that has to publish both steps, and returns the
// new head.
func (d *demo) published(ctx context.Context, ref string, input map[string]any) (string, error) {
	before, err := d.lake.tree(ctx, ref)
	if err != nil {
		return "", err
	}
	id, err := d.startWorkflow(ctx, ref, input)
	if err != nil {
		return "", err
	}
	w, err := d.conductor.waitForEnd(ctx, id, nil)
	if err != nil {
		return "", err
	}
	printTasks(w)
	if w.Status != "COMPLETED" {
		return "", fmt.Errorf("it is %s: %s", w.Status, w.Reason)
	}

	// What has to be there: the input's tree, with each step's prefix replaced
	// by the files of its user task, step upon step.
	want, at := before, ref
	for _, step := range steps {
		files, err := readDirectory(w.output(step.task).Directory)
		if err != nil {
			return "", err
		}
		want = project(want, step.prefix, files)
		publish := w.output(step.task + "_publish")
		if publish.Publication.ExpectedHead != at {
			return "", fmt.Errorf("%s_publish expected the head %s, want %s", step.task, publish.Publication.ExpectedHead, at)
		}
		if at = publish.Workspace.Ref; at != publish.Publication.Commit {
			return "", fmt.Errorf("%s_publish put out ref %q but published %q", step.task, at, publish.Publication.Commit)
		}
		got, err := d.lake.tree(ctx, at)
		if err != nil {
			return "", err
		}
		if err := sameTree(got, want); err != nil {
			return "", fmt.Errorf("the tree after step %s: %w", step.task, err)
		}
	}
	head, err := d.lake.head(ctx)
	if err != nil {
		return "", err
	}
	if head != at {
		return "", fmt.Errorf("main is at %s, the last publish put out %s", head, at)
	}
	if err := d.noBranches(ctx); err != nil {
		return "", err
	}
	fmt.Printf("\nmain before (%s) and after (%s):\n", short(ref), short(head))
	printTrees(before, want)
	fmt.Println("Every file is byte for byte what the steps wrote, or what was there before.")
	return head, nil
}

// refused runs a workflow whose input ref is not the head any more.
func (d *demo) refused(ctx context.Context, ref, head string) error {
	before, err := d.lake.tree(ctx, branch)
	if err != nil {
		return err
	}
	id, err := d.startWorkflow(ctx, ref, map[string]any{"days": []string{"2025-12-31"}, "epochs": 1, "revision": 1})
	if err != nil {
		return err
	}
	fmt.Println("\nIts publish is going to be refused, and Conductor tries a failed task again,")
	fmt.Println("3 times, after pauses that double from 2 s. This takes about half a minute.")
	// While it waits, its staging branch exists. Seeing it once shows that the
	// listing at the end would see one that is left.
	sawBranch := ""
	told := map[string]bool{}
	w, err := d.conductor.waitForEnd(ctx, id, func(w workflow) error {
		for _, t := range w.Tasks {
			if t.Status == "FAILED" && !told[t.ID] {
				told[t.ID] = true
				fmt.Printf("  %s, try %d: FAILED\n", t.ReferenceName, t.RetryCount+1)
			}
		}
		if sawBranch != "" {
			return nil
		}
		names, err := d.lake.peragoBranches(ctx)
		if len(names) > 0 {
			sawBranch = names[0]
		}
		return err
	})
	if err != nil {
		return err
	}
	printTasks(w)
	if w.Status != "FAILED" {
		return fmt.Errorf("it is %s, want FAILED", w.Status)
	}
	last := w.last("prepare_publish")
	want := fmt.Sprintf("%s advanced from %s to %s", branch, ref, head)
	if last.Status != "FAILED" || !strings.Contains(last.Reason, want) {
		return fmt.Errorf("prepare_publish is %s with the reason %q, want FAILED with %q in it", last.Status, last.Reason, want)
	}
	fmt.Printf("\nreasonForIncompletion of prepare_publish:\n  %s\n", last.Reason)
	if sawBranch == "" {
		return errors.New("no staging branch was seen while it waited")
	}

	cancel, err := d.conductor.failureWorkflow(ctx, id)
	if err != nil {
		return err
	}
	fmt.Printf("\nIts failure workflow (%s) cleans up. The staging branch\n  %s\n", cancel, sawBranch)
	fmt.Println("goes at once, because this demo's cleanup worker runs with PERAGO_SWEEP_TTL=0s;")
	fmt.Println("by default it stays for a day, for an operator who wants to retry.")
	cleanup, err := d.conductor.waitForEnd(ctx, cancel, nil)
	if err != nil {
		return err
	}
	printTasks(cleanup)
	if cleanup.Status != "COMPLETED" {
		return fmt.Errorf("the failure workflow is %s: %s", cleanup.Status, cleanup.Reason)
	}

	now, err := d.lake.head(ctx)
	if err != nil {
		return err
	}
	after, err := d.lake.tree(ctx, branch)
	if err != nil {
		return err
	}
	if now != head {
		return fmt.Errorf("main moved from %s to %s", head, now)
	}
	if err := sameTree(after, before); err != nil {
		return err
	}
	fmt.Printf("\nmain is where it was, at %s.\n", short(head))
	return nil
}

// history prints the branch's history and checks that it is one line of our
// commits upon the first head, each on the head that it expected.
func (d *demo) history(ctx context.Context, first string) error {
	log, err := d.lake.log(ctx)
	if err != nil {
		return err
	}
	printHistory(log)
	confirms := 0
	for _, c := range log {
		if c.ID == first {
			break
		}
		confirms++
		if c.Metadata["perago.phase"] != "confirm" || len(c.Parents) != 1 || c.Metadata["perago.expected_head"] != c.Parents[0] {
			return fmt.Errorf("commit %s is not a publication upon the head that it expected: parents %v, metadata %v", c.ID, c.Parents, c.Metadata)
		}
	}
	if confirms != 4 {
		return fmt.Errorf("main has %d publications, want 4", confirms)
	}
	return nil
}

// taskOutput is what the demo reads of the outputs of all task types.
type taskOutput struct {
	Directory string `json:"directory"`
	Workspace struct {
		Ref string `json:"ref"`
	} `json:"workspace"`
	Staged *struct {
		Added     int `json:"added"`
		Changed   int `json:"changed"`
		Removed   int `json:"removed"`
		Unchanged int `json:"unchanged"`
	} `json:"staged"`
	Publication struct {
		Commit       string `json:"commit"`
		ExpectedHead string `json:"expected_head"`
		Outcome      string `json:"outcome"`
	} `json:"publication"`
	Deleted []string `json:"deleted"`
	Kept    []struct {
		Branch string `json:"branch"`
		Reason string `json:"reason"`
	} `json:"kept"`
	Errors []any `json:"errors"`
}

// last is the last attempt of a task; a zero task where there is none.
func (w workflow) last(referenceName string) task {
	var last task
	for _, t := range w.Tasks {
		if t.ReferenceName == referenceName {
			last = t
		}
	}
	return last
}

func (w workflow) output(referenceName string) taskOutput { return w.last(referenceName).output() }

// output is the zero value where the output has another form: the check of
// what it should say then names what is missing.
func (t task) output() taskOutput {
	var o taskOutput
	_ = json.Unmarshal(t.Output, &o)
	return o
}

// project replaces what is below prefix by files.
func project(t tree, prefix string, files tree) tree {
	out := tree{}
	for path, content := range t {
		if !strings.HasPrefix(path, prefix) {
			out[path] = content
		}
	}
	for path, content := range files {
		out[prefix+path] = content
	}
	return out
}

func readDirectory(dir string) (tree, error) {
	if dir == "" {
		return nil, errors.New("a user task put out no directory")
	}
	files := tree{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = string(content)
		return err
	})
	return files, err
}

func sameTree(got, want tree) error {
	var faults []string
	for _, path := range paths(got, want) {
		g, inGot := got[path]
		w, inWant := want[path]
		switch {
		case !inGot:
			faults = append(faults, path+" is missing")
		case !inWant:
			faults = append(faults, path+" should not be there")
		case g != w:
			faults = append(faults, path+" has another content")
		}
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, ", "))
	}
	return nil
}

// paths are those of both trees, sorted.
func paths(a, b tree) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}
