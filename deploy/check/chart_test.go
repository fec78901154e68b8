package check

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	admission "k8s.io/pod-security-admission/api"
	security "k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const chartDir = deploy + "/helm/perago"

func loadChart(t *testing.T) *chart.Chart {
	t.Helper()
	loaded, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// valueFiles are the files of values that people begin with.
func valueFiles(t *testing.T) map[string]map[string]any {
	t.Helper()
	names, err := filepath.Glob(deploy + "/helm/values/*.yaml")
	if err != nil || len(names) < 4 {
		t.Fatalf("found %d value files, %v", len(names), err)
	}
	files := map[string]map[string]any{}
	for _, name := range names {
		values, err := chartutil.ReadValuesFile(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		files[filepath.Base(name)] = values
	}
	return files
}

// manifests are what a chart with values renders, decoded strictly: a field that
// Kubernetes does not know is a fault.
type manifests struct {
	deployments []apps.Deployment
	budgets     []policy.PodDisruptionBudget
	services    []core.Service
	configMaps  []core.ConfigMap
	monitors    []monitoring.ServiceMonitor
	rules       []monitoring.PrometheusRule
	notes       string
}

func render(loaded *chart.Chart, values map[string]any) (manifests, error) {
	var all manifests
	release := chartutil.ReleaseOptions{Name: "example", Namespace: "perago", Revision: 1, IsInstall: true}
	with, err := chartutil.ToRenderValues(loaded, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return all, err
	}
	files, err := engine.Engine{Strict: true}.Render(loaded, with)
	if err != nil {
		return all, err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			all.notes = files[name]
			continue
		}
		for _, document := range regexp.MustCompile(`(?m)^---$`).Split(files[name], -1) {
			if strings.TrimSpace(document) == "" {
				continue
			}
			if err := all.decode([]byte(document)); err != nil {
				return all, fmt.Errorf("%s: %w in\n%s", name, err, document)
			}
		}
	}
	return all, nil
}

func (m *manifests) decode(document []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	switch head.APIVersion + " " + head.Kind {
	case "apps/v1 Deployment":
		return into(&m.deployments, document)
	case "policy/v1 PodDisruptionBudget":
		return into(&m.budgets, document)
	case "v1 Service":
		return into(&m.services, document)
	case "v1 ConfigMap":
		return into(&m.configMaps, document)
	case "monitoring.coreos.com/v1 ServiceMonitor":
		return into(&m.monitors, document)
	case "monitoring.coreos.com/v1 PrometheusRule":
		return into(&m.rules, document)
	}
	return fmt.Errorf("no type is known here for %s %s", head.APIVersion, head.Kind)
}

func into[T any](all *[]T, document []byte) error {
	var one T
	if err := yaml.UnmarshalStrict(document, &one); err != nil {
		return err
	}
	*all = append(*all, one)
	return nil
}

func TestChartLints(t *testing.T) {
	t.Parallel()
	for name, values := range valueFiles(t) {
		for _, message := range lint.All(chartDir, values, "perago", true).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: %s: %v", name, message.Path, message.Err)
			}
		}
	}
}

func TestChartRenders(t *testing.T) {
	t.Parallel()
	loaded := loadChart(t)
	evaluator, err := security.NewEvaluator(security.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range valueFiles(t) {
		all, err := render(loaded, values)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(all.deployments) == 0 || !strings.Contains(all.notes, "perago register") {
			t.Errorf("%s: %d deployments, and the notes\n%s", name, len(all.deployments), all.notes)
		}
		for _, d := range all.deployments {
			where := name + ": " + d.Name
			pod := d.Spec.Template
			for _, result := range evaluator.EvaluatePod(admission.LevelVersion{Level: admission.LevelRestricted, Version: admission.LatestVersion()}, &pod.ObjectMeta, &pod.Spec) {
				if !result.Allowed {
					t.Errorf("%s is not restricted: %s, %s", where, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
			checkDeployment(t, where, d)
		}
		// A budget holds for the pods of one deployment each.
		for _, d := range all.deployments {
			found := 0
			for _, b := range all.budgets {
				if selects(b.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
					found++
				}
			}
			if found != 1 {
				t.Errorf("%s: %d PodDisruptionBudgets select the pods of %s", name, found, d.Name)
			}
			for _, s := range all.services {
				if !selects(s.Spec.Selector, d.Spec.Template.Labels) || s.Spec.Ports[0].TargetPort.StrVal != d.Spec.Template.Spec.Containers[0].Ports[0].Name {
					t.Errorf("%s: the service %s does not reach %s", name, s.Name, d.Name)
				}
			}
		}
		for _, m := range all.monitors {
			for _, s := range all.services {
				if !selects(m.Spec.Selector.MatchLabels, s.Labels) || m.Spec.Endpoints[0].Port != s.Spec.Ports[0].Name {
					t.Errorf("%s: the ServiceMonitor %s does not reach the service %s", name, m.Name, s.Name)
				}
			}
		}
	}
}

func selects(selector, labels map[string]string) bool {
	for name, value := range selector {
		if labels[name] != value {
			return false
		}
	}
	return len(selector) > 0
}

// checkDeployment holds a deployment to what docs/operations.md asks of whoever
// runs a worker.
func checkDeployment(t *testing.T, where string, d apps.Deployment) {
	t.Helper()
	spec := d.Spec.Template.Spec
	c := spec.Containers[0]
	if !*c.SecurityContext.ReadOnlyRootFilesystem || *spec.AutomountServiceAccountToken {
		t.Errorf("%s can write to its root, or has a token", where)
	}
	if c.LivenessProbe.HTTPGet.Path != "/livez" || c.ReadinessProbe.HTTPGet.Path != "/readyz" ||
		c.LivenessProbe.HTTPGet.Port.StrVal != c.Ports[0].Name || c.ReadinessProbe.HTTPGet.Port.StrVal != c.Ports[0].Name {
		t.Errorf("%s has other probes: %v, %v", where, c.LivenessProbe, c.ReadinessProbe)
	}
	values := map[string]string{}
	for _, v := range c.Env {
		if _, twice := values[v.Name]; twice {
			t.Errorf("%s sets %s twice", where, v.Name)
		}
		values[v.Name] = v.Value
		if v.Value == "" {
			t.Errorf("%s sets %s to nothing", where, v.Name)
		}
	}
	if want := ":" + fmt.Sprint(c.Ports[0].ContainerPort); values["PERAGO_HTTP_ADDR"] != want {
		t.Errorf("%s listens on %s, and its port is %s", where, values["PERAGO_HTTP_ADDR"], want)
	}
	checkGrace(t, where, values["PERAGO_SHUTDOWN_GRACE"], fmt.Sprintf("%ds", *spec.TerminationGracePeriodSeconds))

	// The program says itself which variables it must have and may have.
	program, ok := strings.CutPrefix(c.Command[0], "/")
	if !ok || len(c.Command) != 1 {
		t.Fatalf("%s runs %q", where, c.Command)
	}
	reference := variables(t)
	for name := range values {
		if name == "GOMEMLIMIT" {
			continue // Go's own
		}
		v, ok := reference[name]
		switch {
		case !ok:
			t.Errorf("%s sets %s, which docs/configuration.md has not", where, name)
		case !v.of(program):
			t.Errorf("%s sets %s, which is not read by %s", where, name, program)
		case v.secret:
			t.Errorf("%s has the secret %s in its environment", where, name)
		}
	}
	for name, v := range reference {
		_, value := values[name]
		_, file := values[name+"_FILE"]
		if v.required && v.of(program) && !value && !file {
			t.Errorf("%s lacks %s", where, name)
		}
	}

	// Every file that a variable names is mounted, from the secret of a volume.
	for name, value := range values {
		if !strings.HasSuffix(name, "_FILE") {
			continue
		}
		found := false
		for _, mount := range c.VolumeMounts {
			for _, volume := range spec.Volumes {
				if mount.Name == volume.Name && volume.Secret != nil && mount.MountPath == path.Dir(value) && mount.SubPath == "" {
					found = volume.Secret.SecretName != "" && slices.ContainsFunc(volume.Secret.Items, func(k core.KeyToPath) bool { return k.Path == path.Base(value) && k.Key != "" })
				}
			}
		}
		if !found {
			t.Errorf("%s has no secret mounted where %s=%s says", where, name, value)
		}
	}
	// Nine tenths, so that garbage is collected before the limit is met.
	if limit := c.Resources.Limits.Memory().Value(); limit > 0 && values["GOMEMLIMIT"] != fmt.Sprint(limit*9/10) {
		t.Errorf("%s has GOMEMLIMIT=%s and the memory limit %d", where, values["GOMEMLIMIT"], limit)
	}
	if program == "stage-worker" && !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == "/tmp" && !m.ReadOnly }) {
		t.Errorf("%s has no /tmp, and its root is read-only", where)
	}
	if root, ok := values["PERAGO_WORKSPACE_ROOT"]; ok && !slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.MountPath == root && !m.ReadOnly }) {
		t.Errorf("%s has no volume at %s", where, root)
	}
}

// What a value is for can be seen in what is rendered.
func TestChartValues(t *testing.T) {
	t.Parallel()
	loaded := loadChart(t)
	files := valueFiles(t)
	deployment := func(all manifests, component string) *apps.Deployment {
		for i := range all.deployments {
			if all.deployments[i].Labels["app.kubernetes.io/component"] == component {
				return &all.deployments[i]
			}
		}
		return nil
	}
	must := func(file string) manifests {
		all, err := render(loaded, files[file])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		return all
	}

	minimal := must("minimal.yaml")
	if len(minimal.deployments) != 3 || len(minimal.budgets) != 3 || len(minimal.monitors)+len(minimal.rules)+len(minimal.services)+len(minimal.configMaps) != 0 {
		t.Errorf("minimal.yaml renders %+v", minimal)
	}
	host := must("stage-on-a-host.yaml")
	if stage := deployment(host, "stage"); len(host.deployments) != 1 || stage == nil || stage.Spec.Template.Spec.NodeSelector["kubernetes.io/hostname"] != "host-a" {
		t.Errorf("stage-on-a-host.yaml renders %+v", host.deployments)
	}
	production := must("production.yaml")
	for component, replicas := range map[string]int32{"stage": 4, "publish": 3, "cleanup": 2} {
		d := deployment(production, component)
		if d == nil || *d.Spec.Replicas != replicas {
			t.Fatalf("production.yaml: %s has not %d replicas: %+v", component, replicas, d)
		}
		secret := d.Spec.Template.Spec.Volumes[0].Secret.SecretName
		if secret != "lakefs-key-"+component {
			t.Errorf("production.yaml: %s has the lakeFS key of %s", component, secret)
		}
	}
	stage := deployment(production, "stage").Spec.Template.Spec
	if *stage.TerminationGracePeriodSeconds != 310 || *stage.SecurityContext.RunAsUser != 1000 || *stage.SecurityContext.FSGroup != 1000 {
		t.Errorf("production.yaml: the stage worker has %d s and %+v", *stage.TerminationGracePeriodSeconds, stage.SecurityContext)
	}
	if !slices.ContainsFunc(stage.Volumes, func(v core.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == "workspace"
	}) {
		t.Errorf("production.yaml: the stage worker has no claim: %+v", stage.Volumes)
	}
	if len(production.rules) != 1 || len(production.monitors) != 1 || len(production.configMaps) != 1 {
		t.Fatalf("production.yaml renders %d rules, %d monitors, %d dashboards", len(production.rules), len(production.monitors), len(production.configMaps))
	}
	// The alerts are those of the file, and link to where the runbook can be read.
	want := alerts(t)
	for _, group := range production.rules[0].Spec.Groups {
		for _, rule := range group.Rules {
			w, ok := want[rule.Alert]
			if !ok || rule.Expr.StrVal != w.Expr {
				t.Errorf("production.yaml has the alert %s with\n%s\nwant\n%s", rule.Alert, rule.Expr.StrVal, w.Expr)
			}
			if url := rule.Annotations["runbook_url"]; url != "https://docs.example.com/perago/runbook.md#"+strings.ToLower(rule.Alert) {
				t.Errorf("production.yaml: %s links to %s", rule.Alert, url)
			}
			delete(want, rule.Alert)
		}
	}
	if len(want) > 0 {
		t.Errorf("production.yaml lacks the alerts %v", slices.Sorted(maps.Keys(want)))
	}
	dashboard, err := os.ReadFile(deploy + "/grafana/perago.json")
	if err != nil || strings.TrimSpace(production.configMaps[0].Data["perago.json"]) != strings.TrimSpace(string(dashboard)) {
		t.Errorf("production.yaml has another dashboard than deploy/grafana, %v", err)
	}
}

// What cannot work is said before anything is installed.
func TestChartRefuses(t *testing.T) {
	t.Parallel()
	loaded := loadChart(t)
	minimal := valueFiles(t)["minimal.yaml"]
	for _, c := range []struct{ name, change, says string }{
		{"a misspelt value", "publish: {replica: 3}", "replica"},
		{"no image", "image: {repository: ''}", "image.repository is required"},
		{"no Conductor", "conductor: {url: ''}", "conductor.url is required"},
		{"no Conductor id", "conductor: {id: ''}", "conductor.id is required"},
		{"no lakeFS", "lakefs: {url: ''}", "lakefs.url is required"},
		{"no key", "lakefs: {existingSecret: ''}", "lakefs.existingSecret is required, or stage.lakefs.existingSecret"},
		{"no repositories", "allowedRepositories: []", "allowedRepositories is required"},
		{"root", "user: 0", "user"},
		{"a variable that is none", "env: {perago-x: y}", "perago-x"},
		{"a grace of words", "stage: {shutdownGraceSeconds: 20s}", "shutdownGraceSeconds"},
	} {
		change, err := chartutil.ReadValues([]byte(c.change))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		_, err = render(loaded, chartutil.CoalesceTables(change, minimal))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; it must say %q", c.name, err, c.says)
		}
	}
}
