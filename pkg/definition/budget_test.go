package definition_test

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"perago/pkg/definition"
	"perago/pkg/telemetry"
	"perago/taskdefs"
)

func shippedPublish(t *testing.T) string {
	t.Helper()
	text, err := taskdefs.Files.ReadFile("perago_publish.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestBudgetRules(t *testing.T) {
	t.Parallel()
	for change, want := range map[string][2]string{
		"": {"30 (lakefs_merge_timeout_seconds) >= 10 (observed_merge_p99_seconds) + 20 (safety_margin_seconds) = 30",
			"90 (responseTimeoutSeconds) >= 30 (lakefs_merge_timeout_seconds) + 15 (conductor_completion_timeout_seconds) + 30 (worker_shutdown_grace_seconds) + 15 (heartbeat_interval_seconds) = 90"},
		`"lakefs_merge_timeout_seconds": 30|"lakefs_merge_timeout_seconds": 29.9`: {"29.9 (lakefs_merge_timeout_seconds) < 10 (observed_merge_p99_seconds) + 20 (safety_margin_seconds) = 30",
			"90 (responseTimeoutSeconds) >= 29.9 (lakefs_merge_timeout_seconds) + 15 (conductor_completion_timeout_seconds) + 30 (worker_shutdown_grace_seconds) + 15 (heartbeat_interval_seconds) = 89.9"},
	} {
		from, to, _ := strings.Cut(change, "|")
		d := parsePublish(t, strings.Replace(shippedPublish(t), from, to, 1))
		rules, err := definition.BudgetRules(d)
		if err != nil {
			t.Fatal(err)
		}
		got := [2]string{rules[0].String(), rules[1].String()}
		if got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		// The arithmetic that is shown is the one that the workers hold it to.
		if sound := rules[0].Holds && rules[1].Holds; sound != (d.Check() == nil) {
			t.Errorf("shown as sound: %v; the workers say %v", sound, d.Check())
		}
	}
	for _, text := range []string{`{"name":"perago_stage","retryCount":1}`, `{"name":"perago_publish","tasks":[]}`, `{"name":"perago_publish","retryCount":1}`} {
		if _, err := definition.BudgetRules(parsePublish(t, text)); err == nil {
			t.Errorf("%s has a budget", text)
		}
	}
}

func parsePublish(t *testing.T, text string) definition.Definition {
	t.Helper()
	all, err := definition.Parse("p.json", []byte(text))
	if err != nil || len(all) != 1 {
		t.Fatalf("%d definitions, %v", len(all), err)
	}
	return all[0]
}

// What is proposed is sound, and nothing else of the text changes.
func TestProposeBudget(t *testing.T) {
	t.Parallel()
	text := shippedPublish(t)
	for p99, numbers := range map[float64][3]string{0.1: {"0.1", "20.1", "81"}, 10: {"10", "30", "90"}, 47.3: {"47.3", "67.3", "128"}} {
		got, err := definition.ProposeBudget("p.json", []byte(text), p99)
		if err != nil {
			t.Fatal(err)
		}
		want := strings.NewReplacer(`"observed_merge_p99_seconds": 10,`, `"observed_merge_p99_seconds": `+numbers[0]+`,`,
			`"lakefs_merge_timeout_seconds": 30,`, `"lakefs_merge_timeout_seconds": `+numbers[1]+`,`,
			`"responseTimeoutSeconds": 90,`, `"responseTimeoutSeconds": `+numbers[2]+`,`).Replace(text)
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%g (-want +got):\n%s", p99, diff)
		}
		if err := parsePublish(t, string(got)).Check(); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		"[" + text + "]": "p.json holds 1 definitions in a list; give a file with one publish TaskDef",
		strings.Replace(text, `"responseTimeoutSeconds": 90,`, "", 1): "p.json has no responseTimeoutSeconds; add it",
	} {
		if _, err := definition.ProposeBudget("p.json", []byte(text), 1); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// The metrics are those that a publish worker serves, and those of several are
// added.
func TestMergeTimes(t *testing.T) {
	t.Parallel()
	worker := func(times ...time.Duration) string {
		metrics := telemetry.NewMetrics()
		for _, took := range times {
			metrics.Merged(took, time.Minute)
		}
		answer := httptest.NewRecorder()
		promhttp.HandlerFor(metrics.Registry(), promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		return answer.Body.String()
	}
	many := func(n int, took time.Duration) []time.Duration {
		all := make([]time.Duration, n)
		for i := range all {
			all[i] = took
		}
		return all
	}
	for _, c := range []struct {
		name    string
		workers []string
		count   uint64
		p99     float64
		want    string
	}{
		{"quick", []string{worker(many(99, 2*time.Millisecond)...)}, 99, 0.1, ""},
		{"one slow in a hundred", []string{worker(append(many(99, 2*time.Millisecond), 40*time.Second)...)}, 100, 0.1, ""},
		{"two slow in a hundred", []string{worker(append(many(98, 2*time.Millisecond), many(2, 15*time.Second)...)...)}, 100, 20, ""},
		{"on two workers", []string{worker(many(98, time.Second)...), worker(many(2, 4*time.Second)...)}, 100, 5, ""},
		{"above all bounds", []string{worker(many(10, time.Hour)...)}, 10, 0, "more than 1 of 100 merges took longer than 600 seconds, the last bound that is measured; find out why before you give them more time"},
		{"with labels and times", []string{`perago_merge_duration_seconds_bucket{instance="a",le="0.5"} 7 1793000000` + "\n" + `perago_merge_duration_seconds_bucket{instance="a",le="+Inf"} 7` + "\n"}, 7, 0.5, ""},
		{"none yet", []string{"perago_merge_duration_seconds_bucket{le=\"1\"} 0\nperago_merge_duration_seconds_bucket{le=\"+Inf\"} 0\n"}, 0, 0, "no merge has been measured yet; look again after a day with the usual load"},
	} {
		times := definition.MergeTimes{}
		for _, text := range c.workers {
			if err := times.Add(strings.NewReader(text)); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		p99, err := times.P99()
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != c.want || p99 != c.p99 {
			t.Errorf("%s: got %g %s, want %g %s", c.name, p99, said, c.p99, c.want)
		}
		if times.Count() != c.count {
			t.Errorf("%s: %d merges, want %d", c.name, times.Count(), c.count)
		}
	}
	for _, text := range []string{"", "<html>", "perago_merge_duration_seconds_bucket{le=\"x\"} 1", "perago_merge_duration_seconds_bucket{} 1", "perago_merge_duration_seconds_bucket{le=\"1\"", "perago_merge_duration_seconds_bucket{le=\"1\"} -1"} {
		if err := (definition.MergeTimes{}).Add(strings.NewReader(text)); err == nil {
			t.Errorf("%q is a histogram", text)
		}
	}
}
