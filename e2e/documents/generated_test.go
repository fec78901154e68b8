package documents

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"perago/pkg/cleanup"
	"perago/pkg/conductor"
	environ "perago/pkg/config"
	"perago/pkg/definition"
	"perago/pkg/lakefs"
	"perago/pkg/publish"
	"perago/pkg/stage"
	"perago/pkg/telemetry"
	"perago/pkg/txn"
	"perago/pkg/worker"
	"perago/taskdefs"
)

var update = flag.Bool("update", false, "write the generated parts of the documents anew")

// The parts of the documents between <!-- generated: NAME --> and
// <!-- end of NAME --> are what the code says now.
func TestGeneratedParts(t *testing.T) {
	for _, part := range []struct {
		document, name string
		make           func(*testing.T) string
	}{
		{"docs/configuration.md", "configuration", configuration},
		{"docs/operations.md", "metrics", metrics},
		{"docs/operations.md", "budget", budget},
		{"docs/operations.md", "events", events},
		{"docs/operations.md", "spans", spans},
		{"docs/errors.md", "sentences", sentences},
	} {
		t.Run(part.name, func(t *testing.T) {
			text := read(t, part.document)
			begin, end := "<!-- generated: "+part.name+" -->\n", "<!-- end of "+part.name+" -->\n"
			before, rest, ok := strings.Cut(text, begin)
			have, after, okEnd := strings.Cut(rest, end)
			if !ok || !okEnd {
				t.Fatalf("%s has no generated part %q", part.document, part.name)
			}
			want := "\n" + part.make(t) + "\n"
			if have == want {
				return
			}
			if *update {
				if err := os.WriteFile(filepath.Join(root, part.document), []byte(before+begin+want+end+after), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			t.Errorf("%s is not what the code says; run `go test ./e2e/documents -update` (-document +code):\n%s", part.document, gocmp.Diff(have, want))
		})
	}
}

// program is one worker binary as its main.go declares it.
type program struct {
	name     string
	httpAddr string
	types    []string
	// configs are the names of its configuration structs, such as stage.Config.
	configs []string
}

// configs are the structs that a program's configuration can be made of.
var configs = map[string]config{
	"conductor.Config": {conductor.Config{}, "Conductor"},
	"lakefs.Config":    {lakefs.Config{}, "lakeFS"},
	"worker.Config":    {worker.Config{}, "The process"},
	"stage.Config":     {stage.Config{}, "Staging"},
	"publish.Config":   {publish.Config{}, "Publishing"},
	"cleanup.Config":   {cleanup.Config{}, "Sweeping"},
}

type config struct {
	value   any
	heading string
}

// pointer is to a new struct of the kind.
func (c config) pointer() any { return reflect.New(reflect.TypeOf(c.value)).Interface() }

var taskTypes = map[string]txn.TaskType{
	"txn.TypeStage": txn.TypeStage, "txn.TypePublish": txn.TypePublish, "txn.TypeCleanup": txn.TypeCleanup, "txn.TypeCheckout": txn.TypeCheckout,
}

// programs reads the main.go of each worker: what a program is made of stands in
// package main, which nobody can import.
func programs(t *testing.T) []program {
	t.Helper()
	files := sources(t)
	var all []program
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasPrefix(name, "cmd/") || !strings.HasSuffix(name, "-worker/main.go") {
			continue
		}
		var p program
		ast.Inspect(files[name], func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.TypeSpec:
				if s, ok := node.Type.(*ast.StructType); ok && node.Name.Name == "settings" {
					for _, field := range s.Fields.List {
						p.configs = append(p.configs, selector(field.Type))
					}
				}
			case *ast.CompositeLit:
				if index, ok := node.Type.(*ast.IndexExpr); ok && selector(index.X) == "worker.Program" {
					p.read(t, node)
				}
			}
			return true
		})
		if p.name == "" || p.httpAddr == "" || len(p.types) == 0 || len(p.configs) == 0 {
			t.Fatalf("%s is not a program as this test knows them: %+v", name, p)
		}
		p.configs = append(p.configs, "worker.Config")
		for _, config := range p.configs {
			if _, ok := configs[config]; !ok {
				t.Fatalf("%s has the configuration %s; add it to the table of this test", name, config)
			}
		}
		all = append(all, p)
	}
	if len(all) != 3 {
		t.Fatalf("found %d workers, want 3", len(all))
	}
	return all
}

func (p *program) read(t *testing.T, literal *ast.CompositeLit) {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		switch fmt.Sprint(pair.Key) {
		case "Name":
			p.name = text(t, pair.Value)
		case "HTTPAddr":
			p.httpAddr = text(t, pair.Value)
		case "TaskTypes":
			for _, value := range pair.Value.(*ast.CompositeLit).Elts {
				taskType, ok := taskTypes[selector(value)]
				if !ok {
					t.Fatalf("the task type %s is not known to this test", selector(value))
				}
				p.types = append(p.types, string(taskType))
			}
		}
	}
}

// variables are the program's, with the defaults they have in it.
func (p program) variables() []environ.Variable {
	var all []environ.Variable
	for _, config := range p.configs {
		all = append(all, environ.Variables(configs[config].value)...)
	}
	for i := range all {
		switch all[i].Name {
		case "PERAGO_HTTP_ADDR":
			all[i].Default = p.httpAddr
		case "PERAGO_TASK_TYPES":
			all[i].Default = strings.Join(p.types, ",")
		}
	}
	return all
}

func selector(expression ast.Expr) string {
	if s, ok := expression.(*ast.SelectorExpr); ok {
		return fmt.Sprint(s.X) + "." + s.Sel.Name
	}
	return fmt.Sprint(expression)
}

func text(t *testing.T, expression ast.Expr) string {
	t.Helper()
	literal, ok := expression.(*ast.BasicLit)
	if !ok {
		t.Fatalf("%T where a string was expected", expression)
	}
	value, err := strconv.Unquote(literal.Value)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// configuration is one table for each struct, with the workers that have it.
func configuration(t *testing.T) string {
	all := programs(t)
	var out strings.Builder
	for _, config := range []string{"conductor.Config", "lakefs.Config", "worker.Config", "stage.Config", "publish.Config", "cleanup.Config"} {
		var having []program
		var binaries []string
		for _, p := range all {
			if slices.Contains(p.configs, config) {
				having = append(having, p)
				binaries = append(binaries, "`"+p.name+"`")
			}
		}
		whose := "Every worker."
		if len(having) < len(all) {
			whose = "Only " + strings.Join(binaries, ", ") + "."
		}
		fmt.Fprintf(&out, "### %s\n\n%s\n\n| variable | default | meaning |\n|---|---|---|\n", configs[config].heading, whose)
		for _, v := range environ.Variables(configs[config].value) {
			value := ""
			switch {
			case v.Required:
				value = "required"
			case v.Default != "":
				value = "`" + v.Default + "`"
			default:
				value = ownDefaults(having, v.Name)
			}
			meaning := v.Description
			if v.Secret {
				meaning += ". Secret"
			}
			if v.File {
				meaning += "; can stand in a file named by `" + v.Name + "_FILE`"
			}
			if v.Renewed {
				meaning += ", which is read again after a 401"
			}
			fmt.Fprintf(&out, "| `%s` | %s | %s |\n", v.Name, cell(value), cell(meaning))
		}
		out.WriteString("\n")
	}
	return strings.TrimSuffix(out.String(), "\n")
}

// ownDefaults are a variable's defaults where each program has its own.
func ownDefaults(programs []program, name string) string {
	var all []string
	for _, p := range programs {
		for _, v := range p.variables() {
			if v.Name == name && v.Default != "" {
				all = append(all, "`"+v.Default+"` in "+p.name)
			}
		}
	}
	return strings.Join(all, ", ")
}

// cell is a text as it stands in a table: plain, whatever it holds.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }

// counters are the methods of telemetry.Metrics that write each metric.
var counters = map[string]string{
	"task_poll_total": "Polled", "task_poll_time_seconds": "Polled", "task_execute_time_seconds": "Executed",
	"task_update_time_seconds": "Updated", "task_update_error_total": "Updated",
	"perago_task_outcomes_total": "TaskOutcome", "perago_fence_rejections_total": "FenceRejection",
	"perago_publish_outcomes_total": "PublishOutcome", "perago_merge_duration_seconds": "Merged",
	"perago_phase_duration_seconds": "Phase", "perago_staged_objects_total": "Staged", "perago_staged_bytes_total": "StagedBytes",
	"perago_progress_objects_total": "Progress", "perago_progress_bytes_total": "Progress",
	"perago_staging_branches": "StagingBranches", "perago_in_doubt_total": "InDoubt", "perago_abandoned_total": "Abandoned",
	"perago_lease_lost_total": "LeaseLost", "perago_late_landing_total": "LateLanding",
	"perago_branch_decisions_total": "BranchDecided", "perago_workspace_directories_total": "DirectoryDecided",
	"perago_merge_budget_ratio": "Merged", "perago_orphaned_branches": "OrphanedBranches", "perago_unknown_workflows": "UnknownWorkflows", "perago_lost_tasks": "LostTasks", "perago_unread_workflows": "UnreadWorkflows", "perago_ready_condition": "Conditions",
	"perago_sweeps_total": "Swept", "perago_published_after_end_total": "PublishedAfterEnd",
}

func metrics(t *testing.T) string {
	var text strings.Builder
	for name := range sources(t) {
		if !strings.HasPrefix(name, "pkg/telemetry/") {
			text.WriteString(read(t, name))
		}
	}
	out := "| metric | kind | labels | meaning |\n|---|---|---|---|\n"
	for _, metric := range telemetry.Catalog() {
		method, ok := counters[metric.Name]
		if !ok {
			t.Fatalf("the metric %s is new; add the method that writes it to the table of this test", metric.Name)
		}
		help := metric.Help
		if !regexp.MustCompile(`(?i)metrics\.` + method + `\b`).MatchString(text.String()) {
			help += " Nothing writes it in this version."
		}
		labels := ""
		if len(metric.Labels) > 0 {
			labels = "`" + strings.Join(metric.Labels, "`, `") + "`"
		}
		out += fmt.Sprintf("| `%s` | %s | %s | %s |\n", metric.Name, metric.Kind, labels, cell(help))
	}
	return out
}

// budgetNumbers say what each number of the budget is for.
var budgetNumbers = []struct{ name, meaning string }{
	{"observed_merge_p99_seconds", "what 99 of 100 merges took, as you measured it. Only the first rule reads it"},
	{"safety_margin_seconds", "what a merge may take beyond that. Only the first rule reads it"},
	{"lakefs_merge_timeout_seconds", "when a merge is given up, from when it was sent. Then it is in doubt"},
	{"conductor_completion_timeout_seconds", "the time for the update that ends the task. A merge is sent only if the lease has this left after the merge timeout, and the update is tried for so long beyond the lease's end"},
	{"worker_shutdown_grace_seconds", "what a worker that is being stopped may still take. Only the second rule reads it; the process goes by `PERAGO_SHUTDOWN_GRACE`"},
	{"heartbeat_interval_seconds", "how often the lease is extended. It is in the second rule because one heartbeat may come too late"},
}

func budget(t *testing.T) string {
	raw, err := taskdefs.Files.ReadFile("perago_publish.json")
	if err != nil {
		t.Fatal(err)
	}
	var shipped struct {
		Template struct {
			Budget map[string]float64 `json:"budget"`
		} `json:"inputTemplate"`
	}
	if err := json.Unmarshal(raw, &shipped); err != nil {
		t.Fatal(err)
	}
	var documented []string
	out := "| number | shipped | what it is |\n|---|---|---|\n"
	for _, number := range budgetNumbers {
		documented = append(documented, number.name)
		out += fmt.Sprintf("| `%s` | %g | %s |\n", number.name, shipped.Template.Budget[number.name], number.meaning)
	}
	same(t, "the table of the budget's numbers", documented, slices.Collect(maps.Keys(shipped.Template.Budget)))

	definitions, err := definition.Parse("perago_publish.json", raw)
	if err != nil {
		t.Fatal(err)
	}
	read, err := definitions[0].TaskDefinition()
	if err != nil {
		t.Fatal(err)
	}
	b, err := txn.CheckPublishDefinition(read)
	if err != nil {
		t.Fatal(err)
	}
	seconds := func(d time.Duration) float64 { return d.Seconds() }
	out += fmt.Sprintf("\nThe arithmetic of the shipped numbers:\n\n    %g (merge timeout) >= %g (p99) + %g (margin) = %g\n    %d (responseTimeoutSeconds) >= %g (merge timeout) + %g (completion) + %g (grace) + %g (heartbeat) = %g\n",
		seconds(b.MergeTimeout), seconds(b.ObservedMergeP99), seconds(b.SafetyMargin), seconds(b.ObservedMergeP99+b.SafetyMargin),
		read.ResponseTimeoutSeconds, seconds(b.MergeTimeout), seconds(b.CompletionTimeout), seconds(b.ShutdownGrace), seconds(b.HeartbeatInterval),
		seconds(b.MergeTimeout+b.CompletionTimeout+b.ShutdownGrace+b.HeartbeatInterval))
	return out
}

// events are the calls of a logger with a constant message.
func events(t *testing.T) string {
	type event struct{ level, message, file string }
	var all []event
	for name, file := range sources(t) {
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			literal, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || literal.Kind != token.STRING || !strings.HasSuffix(strings.ToLower(selector(function.X)), "log") {
				return true
			}
			switch level := function.Sel.Name; level {
			case "Debug", "Info", "Warn", "Error":
				all = append(all, event{strings.ToLower(level), text(t, literal), filepath.ToSlash(filepath.Dir(name))})
			}
			return true
		})
	}
	order := []string{"error", "warn", "info", "debug"}
	slices.SortFunc(all, func(a, b event) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.level), slices.Index(order, b.level)), cmp.Compare(a.message, b.message), cmp.Compare(a.file, b.file))
	})
	out := "| level | message | from |\n|---|---|---|\n"
	for _, e := range slices.Compact(all) {
		out += fmt.Sprintf("| %s | %s | `%s` |\n", e.level, cell(e.message), e.file)
	}
	return out
}

// help: what the tests read in the sources is what the built binaries print.
func help(t *testing.T, bin string) {
	for _, p := range programs(t) {
		out, err := exec.Command(filepath.Join(bin, p.name), "-h").Output()
		if err != nil {
			t.Fatalf("%s -h: %v", p.name, err)
		}
		var printed []string
		for _, m := range regexp.MustCompile(`(?m)^  ([A-Z][A-Z0-9_]+) `).FindAllStringSubmatch(string(out), -1) {
			printed = append(printed, m[1])
		}
		var documented []string
		for _, v := range p.variables() {
			documented = append(documented, v.Name)
			if v.Default != "" && !strings.Contains(string(out), " "+v.Default+" ") {
				t.Errorf("%s -h does not say the default %s of %s:\n%s", p.name, v.Default, v.Name, out)
			}
		}
		same(t, "docs/configuration.md for "+p.name, documented, printed)
	}
}
