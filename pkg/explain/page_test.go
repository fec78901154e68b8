package explain

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"perago/pkg/txn"
)

// Retried is a workflow with a retry, a superseded publication and a foreign
// commit above that refused the last publish. What servers said of it would break
// a page that took it as it is.
func retried(t *testing.T) Explanation {
	t.Helper()
	doubt := publish(txn.TaskFailed, txn.Publication{ExpectedHead: id("a"), Outcome: txn.OutcomeInDoubt, Fence: txn.FenceSoft}, `<script>alert("1")</script>`)
	doubt.ID, doubt.StartTime = "p1", 1793000010000
	refused := publish(txn.TaskFailed, txn.Publication{Outcome: txn.OutcomeRefused, Fence: txn.FenceSoft}, "main advanced")
	refused.ID, refused.RetryCount, refused.StartTime = "p2", 1, 1793000020000
	refused.Times.Ended = time.UnixMilli(1793000025000)
	staged := stage(txn.TaskCompleted)
	staged.Times.Ended = time.UnixMilli(1793000010000)
	first, second := ours("b", "a"), ours("c", "b")
	second.Metadata["perago.supersedes"] = string(id("b"))
	foreign := byHand("d", "c")
	foreign.Message = strings.Repeat("x", 300) + `"><img src=https://example.com/x>`
	return Workflow(scene{tasks: []txn.Task{refused, staged, doubt}, above: []txn.Commit{foreign, second, first}}.facts())
}

// The page has one element for each attempt, commit and refusal, asks nobody for
// anything, and takes no text for markup.
func TestPage(t *testing.T) {
	t.Parallel()
	e := retried(t)
	var text strings.Builder
	if err := e.Page(&text); err != nil {
		t.Fatal(err)
	}
	page := text.String()
	for what, want := range map[string]int{
		`<li class="attempt `: 3, `<li class="commit `: 3, `class="refusal"`: 1, `<section class="step"`: 1, `class="todo"`: len(e.Next),
		`<i style="left: 0.00%; width: 40.00%">`: 1, `<i style="left: 40.00%; width: 0.00%">`: 1, `<i style="left: 80.00%; width: 20.00%">`: 1, ` superseded"`: 1,
		`<span style="left: 0.00%">&#43;0s</span>`: 1, `<span style="left: 100.00%">&#43;25s</span>`: 1, ": COMPLETED, 10s ": 1, ">" + string(id("d")): 0, `<div class="next todo">`: 1, `data-commit="` + string(id("d")) + `"`: 1,
		"<script": 0, "<img": 0, "&lt;script&gt;": 1, "ZgotmplZ": 0, "%!": 0,
	} {
		if got := strings.Count(page, what); got != want {
			t.Errorf("%s: %d times, want %d", what, got, want)
		}
	}
	// Whole ids are for programs, in attributes; a reader sees the short form.
	shown := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, "")
	if whole := regexp.MustCompile(`[0-9a-f]{64}`).FindString(shown); whole != "" {
		t.Errorf("the page shows a whole id: %s", whole)
	}
	if link := regexp.MustCompile(`(?:src|href|url|action)\s*[=(]\s*"?(?:https?:|//)`).FindString(strings.ReplaceAll(page, "src=https://example.com", "")); link != "" {
		t.Errorf("the page asks for something: %s", link)
	}
	if e.Next == nil || !strings.Contains(page, "main advanced") {
		t.Errorf("the page does not say what to do: %q", e.Next)
	}
}

// Users' tasks and checkouts stand where they ran, and a page with nothing to do
// warns of nothing.
func TestPage_ShowsEveryTaskInItsOrder(t *testing.T) {
	t.Parallel()
	published := publish(txn.TaskCompleted, txn.Publication{Commit: id("b"), ExpectedHead: id("a"), Outcome: txn.OutcomePublished, Fence: txn.FenceHard}, "")
	all := []txn.Task{
		published,
		{ID: "u", Workflow: workflowID, Type: "train", ReferenceName: "train", Status: txn.TaskCompleted},
		stage(txn.TaskCompleted),
		{ID: "c", Workflow: workflowID, Type: txn.TypeCheckout, ReferenceName: "get", Status: txn.TaskCompleted},
	}
	for i, place := range []int64{3, 1, 2, 0} {
		all[i].StartTime = 1793000000000 + 1000*place
	}
	var text strings.Builder
	if err := Workflow(scene{tasks: all, above: []txn.Commit{ours("b", "a")}, status: txn.WorkflowCompleted}.facts()).Page(&text); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, found := range regexp.MustCompile(`<strong>(\w+)</strong>, retry`).FindAllStringSubmatch(text.String(), -1) {
		names = append(names, found[1])
	}
	if want := []string{"get", "train", "train_stage", "train_publish"}; !slices.Equal(names, want) {
		t.Errorf("the tasks are %q, want %q", names, want)
	}
	if !strings.Contains(text.String(), "<div class=\"next\">\n<p>There is nothing to do.</p>") {
		t.Errorf("the page does not say that there is nothing to do, or it warns: %s", &text)
	}
}

// A page of nothing, and one whose attempts all began at once, are pages too.
func TestPageOfLittle(t *testing.T) {
	t.Parallel()
	for _, tasks := range [][]txn.Task{nil, {stage(txn.TaskScheduled)}, {stage(txn.TaskCompleted)}} {
		var text strings.Builder
		if err := Workflow(scene{tasks: tasks, status: txn.WorkflowRunning}.facts()).Page(&text); err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(strings.TrimSpace(text.String()), "</html>") || strings.Contains(text.String(), `class="track"`) {
			t.Errorf("%d tasks: %s", len(tasks), &text)
		}
	}
}
