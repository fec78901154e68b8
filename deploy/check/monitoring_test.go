package check

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

const rulesFile = deploy + "/prometheus/perago.rules.yaml"

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) map[string]alert {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string  `json:"name"`
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, rulesFile)), &file); err != nil {
		t.Fatal(err)
	}
	all := map[string]alert{}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			if _, twice := all[rule.Alert]; twice {
				t.Errorf("the alert %s is there twice", rule.Alert)
			}
			all[rule.Alert] = rule
		}
	}
	if len(all) == 0 {
		t.Fatal("no alerts")
	}
	return all
}

// promtool finds the tool; make deps brings it.
func promtool(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(root + "/deploy/check/promtool.sh").Output()
	if err != nil {
		t.Fatalf("promtool is not installed; make deps brings it: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func TestRules(t *testing.T) {
	t.Parallel()
	tool := promtool(t)
	for _, arguments := range [][]string{
		{"check", "rules", rulesFile},
		{"test", "rules", deploy + "/prometheus/perago.rules.test.yaml"},
	} {
		out, err := exec.Command(tool, arguments...).CombinedOutput()
		if err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}
}

// The unit tests of the rules see each alert fire, and see it not fire.
func TestRulesAreTested(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Rules []struct {
				Alert string            `json:"alertname"`
				Fires []json.RawMessage `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal([]byte(read(t, deploy+"/prometheus/perago.rules.test.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, rule := range test.Rules {
			if len(rule.Fires) > 0 {
				fires[rule.Alert] = true
			} else {
				silent[rule.Alert] = true
			}
		}
	}
	for name := range alerts(t) {
		if !fires[name] || !silent[name] {
			t.Errorf("%s is seen to fire: %t, and not to: %t; want both", name, fires[name], silent[name])
		}
	}
}

// Each alert has a section of its own in the runbook, and the runbook has no
// others.
func TestRunbook(t *testing.T) {
	t.Parallel()
	sections := map[string]string{}
	for _, section := range strings.Split(read(t, root+"/docs/runbook.md"), "\n## ")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		sections[heading] = text
	}
	for name, a := range alerts(t) {
		text, ok := sections[name]
		if !ok {
			t.Errorf("docs/runbook.md has no section ## %s", name)
			continue
		}
		delete(sections, name)
		if want := "docs/runbook.md#" + strings.ToLower(name); a.Annotations["runbook_url"] != want {
			t.Errorf("%s has the runbook %q, want %q", name, a.Annotations["runbook_url"], want)
		}
		for _, part := range []string{"**What it means.**", "**Look.**", "**Do.**"} {
			if !strings.Contains(text, part) {
				t.Errorf("docs/runbook.md, %s: no %s", name, part)
			}
		}
		if severity := a.Labels["severity"]; !slices.Contains([]string{"critical", "warning"}, severity) || !strings.Contains(text, severity) {
			t.Errorf("docs/runbook.md, %s: it does not say that the alert is %q", name, severity)
		}
		if a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s has no summary or description", name)
		}
	}
	for name, text := range sections {
		if strings.Contains(text, "**What it means.**") {
			t.Errorf("docs/runbook.md has a section on %s, which is no alert", name)
		}
	}
}

// elsewhere are labels that Prometheus puts on every series, and those that rules
// make up.
var elsewhere = []string{"job", "instance", "pod", "namespace", "worker"}

// checkExpression fails unless an expression names only metrics that a worker
// has, and only labels that they have.
func checkExpression(t *testing.T, where, expression string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, expression)
		return
	}
	known := metrics(t)
	labels := slices.Clone(elsewhere)
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if selector, ok := node.(*parser.VectorSelector); ok {
			own, ok := known[selector.Name]
			if !ok {
				t.Errorf("%s: no worker has the metric %s of %s", where, selector.Name, expression)
			}
			labels = append(labels, own...)
			for _, matcher := range selector.LabelMatchers {
				if matcher.Name != "__name__" && !slices.Contains(elsewhere, matcher.Name) && !slices.Contains(own, matcher.Name) {
					t.Errorf("%s: %s has no label %s, in %s", where, selector.Name, matcher.Name, expression)
				}
			}
		}
		return nil
	})
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if aggregate, ok := node.(*parser.AggregateExpr); ok {
			for _, label := range aggregate.Grouping {
				if !slices.Contains(labels, label) {
					t.Errorf("%s: nothing has the label %s, in %s", where, label, expression)
				}
			}
		}
		return nil
	})
}

func TestRulesNameOnlyMetricsThatExist(t *testing.T) {
	t.Parallel()
	for name, a := range alerts(t) {
		checkExpression(t, name, a.Expr)
	}
}

func TestDashboardNamesOnlyMetricsThatExist(t *testing.T) {
	t.Parallel()
	var dashboard struct {
		Title      string `json:"title"`
		Templating struct {
			List []struct {
				Name       string `json:"name"`
				Definition string `json:"definition"`
			} `json:"list"`
		} `json:"templating"`
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Type    string `json:"type"`
			GridPos struct{ H, W, X, Y int }
			Targets []struct {
				Expr   string `json:"expr"`
				Legend string `json:"legendFormat"`
			} `json:"targets"`
		} `json:"panels"`
	}
	text := read(t, deploy+"/grafana/perago.json")
	if err := json.Unmarshal([]byte(text), &dashboard); err != nil {
		t.Fatal(err)
	}
	// Grafana's own variables, as the values they may have.
	grafana := strings.NewReplacer("$__rate_interval", "1m", "$__range", "6h")
	legend := regexp.MustCompile(`{{(\w+)}}`)
	ids := map[int]bool{}
	expressions := 0
	for _, panel := range dashboard.Panels {
		if ids[panel.ID] || panel.Title == "" || panel.GridPos.X+panel.GridPos.W > 24 {
			t.Errorf("the panel %d, %q, has no id of its own, no title, or no room", panel.ID, panel.Title)
		}
		ids[panel.ID] = true
		if panel.Type != "row" && len(panel.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			expressions++
			checkExpression(t, "the panel "+panel.Title, grafana.Replace(target.Expr))
			for _, m := range legend.FindAllStringSubmatch(target.Legend, -1) {
				if !strings.Contains(target.Expr, m[1]) {
					t.Errorf("the panel %q has the label %s in its legend and not in its query", panel.Title, m[1])
				}
			}
		}
	}
	if expressions < 20 {
		t.Errorf("found %d queries; the panels are others than this test knows", expressions)
	}
	known := metrics(t)
	for _, variable := range dashboard.Templating.List {
		if m := regexp.MustCompile(`label_values\((\w+),`).FindStringSubmatch(variable.Definition); m != nil && known[m[1]] == nil {
			t.Errorf("the variable %s asks for the metric %s, which no worker has", variable.Name, m[1])
		}
	}
	// What the workers count can be looked at.
	for name := range known {
		if base, ok := strings.CutSuffix(name, "_bucket"); ok {
			name = base
		} else if strings.HasSuffix(name, "_sum") || strings.HasSuffix(name, "_count") {
			continue
		}
		if strings.HasPrefix(name, "perago_") && !strings.Contains(text, name) {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
}
