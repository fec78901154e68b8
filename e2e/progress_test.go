package e2e

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"perago/pkg/fault"
	"perago/pkg/txn"
)

// A stage that takes long says how far it is: in its log, in the metrics, and to
// Conductor, which need not answer: nothing waits for it.
func TestALongStageSaysHowFarItIs(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: map[string]string{"data/old": "1"}, without: "stage-worker"})
	content := strings.Repeat("x", 100_000)
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a": content} })
	worker := f.behind("stage-worker", append(f.stageEnv(), "PERAGO_PROGRESS_INTERVAL=1s")...)
	held := worker.lake.Hold(upload)
	id := f.start(f.register("long_stage", step("prepare", "data/", "${workflow.input.workspace}", nil)...), map[string]any{"workspace": f.workspace(f.first)})
	held.Wait(t, waitTime)
	// From here on it uploads. What was slow before it may be told still.
	sent := worker.conductor.Hold(fault.Match{Method: http.MethodPost, Path: "/log", Body: " of 1 objects"}).Wait(t, waitTime)

	task := f.inProgress(id, "prepare_stage")
	if want := "/api/tasks/" + string(task.ID) + "/log"; sent.Path != want || !strings.Contains(sent.Body, "0 of 1 objects") {
		t.Errorf("sent to Conductor %q to %s, want how far it is, to %s", sent.Body, sent.Path, want)
	}
	lines := slices.DeleteFunc(worker.logged("progress"), func(line map[string]any) bool { return line["phase"] != "upload" })
	if len(lines) == 0 {
		t.Fatal("the log says nothing of the upload")
	}
	if line := lines[len(lines)-1]; line["step"] != "prepare_stage" || line["workflow_id"] != string(id) ||
		line["objects_total"] != 1.0 || line["bytes_total"] != 100_000.0 {
		t.Errorf("the log says %v", line)
	}
	moving, staged := worker.metric("perago_progress_bytes_total", `phase="upload"`), worker.metric("perago_staged_bytes_total", "")
	if moving <= 0 || moving > 100_000 || staged != 0 {
		t.Errorf("while it uploads, %v bytes are counted as moved and %v as staged", moving, staged)
	}

	held.Pass()
	workflow := f.end(id)
	if workflow.Status != txn.WorkflowCompleted {
		t.Fatalf("the workflow with a line that Conductor does not answer: %s", describe(workflow))
	}
	moved, staged := worker.metric("perago_progress_bytes_total", `phase="upload"`), worker.metric("perago_staged_bytes_total", "")
	if moved != 100_000 || staged != 100_000 {
		t.Errorf("in the end %v bytes are counted as moved and %v as staged", moved, staged)
	}
}

// metric is the sum of a metric's series that have a label in them.
func (p *process) metric(name, label string) float64 {
	p.t.Helper()
	status, body := p.get("/metrics")
	if status != http.StatusOK {
		p.t.Fatalf("/metrics answered %d", status)
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(fmt.Sprintf(`(?m)^%s(\{[^}]*\})? (\S+)$`, name)).FindAllStringSubmatch(body, -1) {
		if strings.Contains(m[1], label) {
			value, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				p.t.Fatal(err)
			}
			sum += value
		}
	}
	return sum
}
