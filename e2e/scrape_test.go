package e2e

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// Which metrics each worker shows once it has completed a task, beside those that
// all of them show. Counters without labels are there from the start.
var (
	shownByAll = []string{
		"task_poll_total", "task_poll_time_seconds", "task_execute_time_seconds", "task_update_time_seconds", "task_update_error_total",
		"perago_task_outcomes_total", "perago_phase_duration_seconds", "perago_ready_condition",
		"perago_fence_rejections_total", "perago_publish_outcomes_total", "perago_sweeps_total",
	}
	shownBy = map[string][]string{
		"stage-worker": {
			"perago_staged_objects_total", "perago_progress_objects_total", "perago_progress_bytes_total", "perago_workspace_directories_total",
		},
		"publish-worker": {"perago_merge_duration_seconds", "perago_merge_budget_ratio"},
		"cleanup-worker": {"perago_branch_decisions_total", "perago_staging_branches", "perago_orphaned_branches"},
	}
	seriesLine = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? `)
	labelPair  = regexp.MustCompile(`([a-zA-Z_]+)="([^"]*)"`)
	// fixed is what the values of all labels but task types look like: words of this
	// project, and not a name, an id or a message.
	fixed = regexp.MustCompile(`^[A-Za-z_ ]{0,60}$`)
)

// series reads a worker's metrics of ours: their names. Their labels are those of
// the reference, and no value of a label is an id, a name or a message.
func series(t testing.TB, p *process, domain string) map[string]bool {
	t.Helper()
	status, body := p.get("/metrics")
	if status != 200 {
		t.Fatalf("/metrics of %s: %d", p.name, status)
	}
	kinds := map[string]telemetry.Metric{}
	for _, metric := range telemetry.Catalog() {
		kinds[metric.Name] = metric
	}
	names := map[string]bool{}
	for line := range strings.Lines(body) {
		match := seriesLine.FindStringSubmatch(line)
		if match == nil || !strings.HasPrefix(match[1], "perago_") && !strings.HasPrefix(match[1], "task_") {
			continue
		}
		metric, ok := kinds[match[1]]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(match[1], suffix); cut && !ok {
				metric, ok = kinds[base], kinds[base].Kind == "histogram"
			}
		}
		if !ok {
			t.Errorf("%s shows %s, which is not in the reference", p.name, match[1])
			continue
		}
		var labels []string
		for _, pair := range labelPair.FindAllStringSubmatch(match[2], -1) {
			// A condition names the queue, which the configuration sets.
			label, value := pair[1], strings.ReplaceAll(pair[2], domain, "one")
			if label == "le" {
				continue
			}
			labels = append(labels, label)
			switch label {
			case "task", "taskType":
				if !strings.HasPrefix(value, "perago_") {
					t.Errorf("%s: %s is %q", line, label, value)
				}
			default:
				if !fixed.MatchString(value) {
					t.Errorf("%s: %s is %q", line, label, value)
				}
			}
		}
		slices.Sort(labels)
		if want := slices.Sorted(slices.Values(metric.Labels)); !slices.Equal(labels, want) {
			t.Errorf("%s of %s has the labels %q, want %q", match[1], p.name, labels, want)
		}
		names[metric.Name] = true
	}
	return names
}

// TestScrape: each worker shows the metrics of the reference, with the labels of
// the reference.
func TestScrape(t *testing.T) {
	t.Parallel()
	f := newFleetOf(t, setup{files: lakeBefore, without: strings.Join(workers, " ")})
	running := map[string]*process{}
	for name, own := range map[string][]string{"stage-worker": f.stageEnv(), "publish-worker": {publishEnv}, "cleanup-worker": nil} {
		p := start(t, name, f.env(append(own, "PERAGO_SWEEP_INTERVAL=1s")...)...)
		t.Cleanup(func() { f.stop(p) })
		p.ready()
		running[name] = p
	}
	f.user("prepare", func(txn.Task) map[string]string { return map[string]string{"a.csv": "new"} })
	f.completed("perago_example_one_step", map[string]any{"workspace": f.workspace(f.first)})

	everywhere := map[string]bool{}
	for name, p := range running {
		eventually(t, waitTime, name+" shows every metric of its own", func() (bool, string) {
			names := series(t, p, f.domain)
			var missing []string
			for _, metric := range telemetry.Catalog() {
				if metric.Kind == "counter" && len(metric.Labels) == 0 && !names[metric.Name] {
					missing = append(missing, metric.Name)
				}
			}
			for _, metric := range slices.Concat(shownByAll, shownBy[name]) {
				if !names[metric] {
					missing = append(missing, metric)
				}
			}
			maps.Copy(everywhere, names)
			return len(missing) == 0, fmt.Sprint("missing: ", missing)
		})
	}
	for _, metric := range telemetry.Catalog() {
		if !everywhere[metric.Name] {
			t.Errorf("no worker shows %s", metric.Name)
		}
	}
}
