package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"perago/pkg/txn"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every metric of the catalog has a method that feeds it, with the labels the
// catalog states; the names and labels are what dashboards rely on.
func TestCatalogIsWhatIsExported(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	for name, record := range map[string]func(){
		"task_poll_total{taskType}":                    func() { m.Polled("a", time.Second) },
		"task_poll_time_seconds{taskType}":             func() {},
		"task_execute_time_seconds{taskType}":          func() { m.Executed("a", time.Second) },
		"task_update_time_seconds{taskType}":           func() { m.Updated("a", time.Second, nil) },
		"task_update_error_total{taskType}":            func() { m.Updated("a", time.Second, errors.New("broken")) },
		"perago_task_outcomes_total{outcome,task}":     func() { m.TaskOutcome("a", "completed") },
		"perago_fence_rejections_total{fence,reason}":  func() { m.FenceRejection("attempt", "worker") },
		"perago_publish_outcomes_total{fence,outcome}": func() { m.PublishOutcome("published", "hard") },
		"perago_merge_duration_seconds{}":              func() { m.Merged(time.Second, time.Second) },
		"perago_merge_budget_ratio{}":                  func() {},
		"perago_orphaned_branches{}":                   func() { m.OrphanedBranches(1) },
		"perago_unknown_workflows{}":                   func() { m.UnknownWorkflows(1) },
		"perago_lost_tasks{task}":                      func() { m.LostTasks(map[txn.TaskType]int{"a": 1}) },
		"perago_unread_workflows{}":                    func() { m.UnreadWorkflows(1) },
		"perago_ready_condition{condition}": func() {
			m.Conditions(func() []Condition { return []Condition{{Name: "holds", OK: true}, {Name: "fails"}} })
		},
		"perago_phase_duration_seconds{phase,task}": func() { m.Phase("a", "scan", time.Second) },
		"perago_staged_objects_total{change}":       func() { m.Staged("added", 3) },
		"perago_staged_bytes_total{}":               func() { m.StagedBytes(7) },
		"perago_progress_objects_total{phase,task}": func() { m.Progress("a", "upload")(4, 0) },
		"perago_progress_bytes_total{phase,task}": func() {
			count := m.Progress("a", "upload")
			count(0, 100)
			count(0, -100) // taken back, and counted again
			count(0, 100)
		},
		"perago_staging_branches{state}":            func() { m.StagingBranches("kept", 2) },
		"perago_branch_decisions_total{state}":      func() { m.BranchDecided("kept") },
		"perago_workspace_directories_total{state}": func() { m.DirectoryDecided("kept") },
		"perago_sweeps_total{outcome}":              func() { m.Swept(nil) },
		"perago_published_after_end_total{}":        func() { m.PublishedAfterEnd() },
		"perago_in_doubt_total{}":                   func() { m.InDoubt() },
		"perago_abandoned_total{}":                  func() { m.Abandoned() },
		"perago_lease_lost_total{}":                 func() { m.LeaseLost() },
		"perago_late_landing_total{}":               func() { m.LateLanding() },
	} {
		record()
		var found bool
		for _, metric := range Catalog() {
			labels := slices.Sorted(slices.Values(metric.Labels))
			found = found || metric.Name+"{"+strings.Join(labels, ",")+"}" == name
		}
		if !found {
			t.Errorf("the catalog lacks %s", name)
		}
	}
	families, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, label := range metric.GetLabel() {
				labels = append(labels, label.GetName())
			}
			name := family.GetName() + "{" + strings.Join(labels, ",") + "}"
			values[name] += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + metric.GetHistogram().GetSampleSum()
		}
	}
	for _, metric := range Catalog() {
		labels := slices.Sorted(slices.Values(metric.Labels))
		want := 1.0
		switch metric.Name {
		case "perago_staged_objects_total":
			want = 3
		case "perago_staged_bytes_total":
			want = 7
		case "perago_progress_objects_total":
			want = 4
		case "perago_progress_bytes_total":
			want = 200
		case "perago_staging_branches", "task_update_time_seconds":
			want = 2
		}
		name := metric.Name + "{" + strings.Join(labels, ",") + "}"
		if got := values[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
		if metric.Help == "" || metric.Kind == "" {
			t.Errorf("%s has no help or kind", metric.Name)
		}
	}
}

// A counter without labels is exported as 0 before anything happened: an alert
// on its increase needs the zero.
func TestCountersStartAtZero(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	NewHealthHandler(NewMetrics().Registry(), func() []Condition { return nil }).
		ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, name := range []string{"perago_in_doubt_total", "perago_abandoned_total", "perago_lease_lost_total", "perago_late_landing_total", "perago_staged_bytes_total"} {
		if !strings.Contains(recorder.Body.String(), "\n"+name+" 0\n") {
			t.Errorf("/metrics lacks %s 0", name)
		}
	}
}

// A series with labels that an alert watches is there from the start too.
func TestSeriesOfAlertsStartAtZero(t *testing.T) {
	t.Parallel()
	recorder := httptest.NewRecorder()
	NewHealthHandler(NewMetrics().Registry(), nil).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, series := range []string{
		`perago_publish_outcomes_total{fence="soft",outcome="raced"}`,
		`perago_fence_rejections_total{fence="publish",reason="no_run"}`,
		`perago_fence_rejections_total{fence="publish",reason="advanced"}`,
		`perago_fence_rejections_total{fence="attempt",reason="lease_lost"}`,
		`perago_sweeps_total{outcome="failed"}`,
		`perago_workspace_directories_total{state="failed"}`,
		`perago_staging_branches{state="kept"}`,
		`perago_orphaned_branches`,
		`perago_lost_tasks{task="perago_publish"}`,
	} {
		if !strings.Contains(recorder.Body.String(), "\n"+series+" 0\n") {
			t.Errorf("/metrics lacks %s 0", series)
		}
	}
}

// A type whose tasks were lost goes back to zero when a search finds none.
func TestLostTasks_GoBackToZero(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	for _, c := range []struct{ found, want int }{{2, 2}, {0, 0}} {
		found := map[txn.TaskType]int{}
		if c.found > 0 {
			found["perago_stage_large"] = c.found
		}
		m.LostTasks(found)
		recorder := httptest.NewRecorder()
		NewHealthHandler(m.Registry(), nil).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if want := fmt.Sprintf("\nperago_lost_tasks{task=\"perago_stage_large\"} %d\n", c.want); !strings.Contains(recorder.Body.String(), want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
}

// The conditions are those of the moment of the scrape, and one that is gone is
// not exported any more.
func TestConditionsAreReadAtTheScrape(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	conditions := []Condition{{Name: "worker"}, {Name: "lakefs", OK: true}}
	m.Conditions(func() []Condition { return conditions })
	scrape := func() string {
		recorder := httptest.NewRecorder()
		NewHealthHandler(m.Registry(), nil).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return recorder.Body.String()
	}
	if text := scrape(); !strings.Contains(text, "\nperago_ready_condition{condition=\"worker\"} 0\n") ||
		!strings.Contains(text, "\nperago_ready_condition{condition=\"lakefs\"} 1\n") {
		t.Errorf("/metrics: %s", text)
	}
	conditions = []Condition{{Name: "lakefs"}}
	if text := scrape(); strings.Contains(text, `condition="worker"`) || !strings.Contains(text, "\nperago_ready_condition{condition=\"lakefs\"} 0\n") {
		t.Errorf("/metrics: %s", text)
	}
}

func TestLogLinesHoldNoSecret(t *testing.T) {
	t.Parallel()
	for name, secret := range map[string]string{
		"plain": "wJalrXUtnFEMI", "quotes": `a"b\c'd`, "html": "a<b>&c", "newline": "line\nline", "umlaut": "geheimnüß",
		"mixed": `a"<b>&c`, "invisible": "ab\u200bcd",
	} {
		for _, format := range []LogFormat{FormatJSON, FormatText} {
			t.Run(name+"/"+string(format), func(t *testing.T) {
				t.Parallel()
				var out bytes.Buffer
				log := NewLogger(&out, format, slog.LevelInfo, NewRedactor(secret))
				log.Info("message "+secret, "value", secret, "error", errors.New("wrapped "+secret),
					slog.Group("deep", "any", map[string]string{"key": secret}))
				log.Debug("not written")
				line := out.String()
				forms := []string{secret}
				for _, escape := range []bool{true, false} {
					var quoted bytes.Buffer
					encoder := json.NewEncoder(&quoted)
					encoder.SetEscapeHTML(escape)
					if err := encoder.Encode(secret); err != nil {
						t.Fatal(err)
					}
					forms = append(forms, strings.Trim(quoted.String(), "\"\n"))
				}
				for _, form := range forms {
					if strings.Contains(line, form) {
						t.Errorf("the line holds %q: %s", form, line)
					}
				}
				if strings.Count(line, "[redacted]") != 4 || strings.Count(line, "\n") != 1 {
					t.Errorf("line %s", line)
				}
				if format == FormatJSON && !json.Valid(out.Bytes()) {
					t.Errorf("no JSON any more: %s", line)
				}
			})
		}
	}
}

// A server repeats a secret in a form of its own, and the line writes that in its way.
func TestLogLinesHoldNoFormOfASecret(t *testing.T) {
	t.Parallel()
	const secret = `s3cret"&<>'\/+%41 =ö`
	quoted, err := json.Marshal(map[string]string{"key": secret})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []LogFormat{FormatJSON, FormatText} {
		var out bytes.Buffer
		log := NewLogger(&out, format, slog.LevelInfo, NewRedactor(secret))
		for _, said := range []string{secret, string(quoted), url.QueryEscape(secret), url.PathEscape(secret), html.EscapeString(secret), strconv.Quote(secret)} {
			log.Info("refused", "error", errors.New("who is "+said+"?"))
		}
		if strings.Contains(out.String(), "s3cret") || strings.Count(out.String(), "[redacted]") != 6 {
			t.Errorf("%s", out.String())
		}
	}
}

// A secret may look like a key, a number, a level or a piece of JSON. Programs read
// the lines: each stays valid JSON with the same keys, numbers, times and level.
func TestLogLines_StayReadableForProgramsWhateverTheSecretIs(t *testing.T) {
	t.Parallel()
	for _, secret := range []string{"INFO", "level", "time", "workflow", "1234", "\":\"w", "{\"time", "true", "2026", "\",\"msg"} {
		var out bytes.Buffer
		log := NewLogger(&out, FormatJSON, slog.LevelInfo, NewRedactor(secret))
		log.Info("it went on", slog.String(KeyWorkflow, "w"), slog.Int(KeyObjects, 12345), slog.Bool("flag", true), slog.Duration(KeyTook, 1234), slog.String(KeyError, "said "+secret))
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Errorf("%q: %v: %s", secret, err, out.String())
			continue
		}
		_, err := time.Parse(time.RFC3339Nano, fmt.Sprint(line["time"]))
		if err != nil || line["level"] != "INFO" || line[KeyObjects] != 12345.0 || line["flag"] != true || line[KeyTook] != 1234.0 || line[KeyWorkflow] != "w" || line[KeyError] != "said [redacted]" {
			t.Errorf("%q: %v %s", secret, err, out.String())
		}
	}
}

func TestRedactor(t *testing.T) {
	t.Parallel()
	r := NewRedactor("abc", "long", "longer-secret", "", "longer-secret")
	if got := r.Text("abc long longer-secret"); got != "abc [redacted] [redacted]" {
		t.Errorf("text %q", got)
	}
	r.Add("rotated")
	if got := r.Text("rotated"); got != "[redacted]" {
		t.Errorf("text %q", got)
	}
	var none *Redactor
	if got := none.Text("abc"); got != "abc" || none.Values() != nil {
		t.Errorf("a nil redactor gives %q", got)
	}
}

func TestLogFormats(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"json", "text"} {
		if format, err := ParseLogFormat(name); err != nil || string(format) != name {
			t.Errorf("%s: %v %v", name, format, err)
		}
	}
	if _, err := ParseLogFormat("JSON "); err == nil {
		t.Error("an unknown format is accepted")
	}
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	holds := Condition{Name: "lakeFS", OK: true}
	fails := Condition{Name: "TaskDef perago_stage", Sentence: "TaskDef perago_stage is not registered in <http://conductor>: run `perago register`"}
	for name, row := range map[string]struct {
		conditions []Condition
		status     int
		body       string
	}{
		"ready":     {[]Condition{holds}, 200, "{\n  \"ready\": true,\n  \"conditions\": [\n    {\n      \"name\": \"lakeFS\",\n      \"ok\": true\n    }\n  ]\n}\n"},
		"not ready": {[]Condition{holds, fails}, 503, fails.Sentence},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			recorder := httptest.NewRecorder()
			NewHealthHandler(NewMetrics().Registry(), func() []Condition { return row.conditions }).
				ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			if recorder.Code != row.status || !strings.Contains(recorder.Body.String(), row.body) || recorder.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%d %v: %s", recorder.Code, recorder.Header(), recorder.Body)
			}
		})
	}
}

func TestHealthServer(t *testing.T) {
	t.Parallel()
	server, err := ListenHealth("127.0.0.1:0", NewHealthHandler(NewMetrics().Registry(), func() []Condition { return nil }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ListenHealth(server.Address(), nil); err == nil {
		t.Error("an address was bound twice")
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + server.Address() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != 200 || string(body) != "ok\n" {
		t.Errorf("/livez is %d %v: %s", response.StatusCode, err, body)
	}
	if err := server.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if _, err := client.Get("http://" + server.Address() + "/livez"); err == nil {
		t.Error("it answers after it was closed")
	}
}
