package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/dotenv"
	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"sigs.k8s.io/yaml"
)

// workers are the binaries, by what they are called in compose and in the units.
var workers = map[string]string{"stage": "stage-worker", "publish": "publish-worker", "cleanup": "cleanup-worker"}

// The compose file is one, with the variables of its example, and each service is
// a worker as the chart makes it.
func TestCompose(t *testing.T) {
	t.Parallel()
	environment, err := dotenv.Read(deploy + "/compose/env.example")
	if err != nil {
		t.Fatal(err)
	}
	load := func(environment map[string]string) (*types.Project, error) {
		return loader.LoadWithContext(t.Context(), types.ConfigDetails{
			WorkingDir:  deploy + "/compose",
			ConfigFiles: []types.ConfigFile{{Filename: deploy + "/compose/compose.yaml"}},
			Environment: environment,
		}, loader.WithProfiles([]string{"*"}))
	}
	project, err := load(environment)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := load(nil); err == nil || !strings.Contains(err.Error(), "required variable") {
		t.Errorf("without its variables: %v; it must say which are required", err)
	}
	reference := variables(t)
	for name, program := range workers {
		service, err := project.GetService(name)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		where := "compose.yaml, " + name
		if !slices.Equal(service.Command, []string{"/" + program}) || !service.ReadOnly || !slices.Equal(service.CapDrop, []string{"ALL"}) {
			t.Errorf("%s runs %v, read-only: %t, without %v", where, service.Command, service.ReadOnly, service.CapDrop)
		}
		values := map[string]string{}
		for variable, value := range service.Environment {
			if value != nil && *value != "" {
				values[variable] = *value
			}
			if v, ok := reference[variable]; !ok || !v.of(program) {
				t.Errorf("%s sets %s, which %s does not read", where, variable, program)
			}
			if reference[variable].secret {
				t.Errorf("%s has the secret %s in its environment", where, variable)
			}
		}
		for variable, v := range reference {
			if v.required && v.of(program) && values[variable] == "" && values[variable+"_FILE"] == "" {
				t.Errorf("%s lacks %s", where, variable)
			}
		}
		checkGrace(t, where, values["PERAGO_SHUTDOWN_GRACE"], service.StopGracePeriod.String())
		if name == "stage" && !slices.Contains(service.Tmpfs, "/tmp") {
			t.Errorf("%s has no /tmp, and its root is read-only", where)
		}
		for variable, value := range values {
			if file, ok := strings.CutPrefix(value, "/run/secrets/"); ok {
				if !slices.ContainsFunc(service.Secrets, func(s types.ServiceSecretConfig) bool { return s.Source == file }) {
					t.Errorf("%s: %s names %s, which it does not get", where, variable, value)
				}
			}
		}
		if root := values["PERAGO_WORKSPACE_ROOT"]; root != "" && (len(service.Volumes) != 1 || service.Volumes[0].Target != root || service.Volumes[0].Source != root) {
			t.Errorf("%s has no volume at %s: %v", where, root, service.Volumes)
		}
	}
	register, err := project.GetService("register")
	if err != nil || !slices.Equal(register.Command, []string{"/perago", "register"}) || len(register.Profiles) == 0 {
		t.Errorf("compose.yaml, register: %v, %v, in the profiles %v", err, register.Command, register.Profiles)
	}
}

// The units are what systemd takes, and shut in. Their binaries are stood in for:
// systemd looks whether they are there.
func TestUnits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var units []string
	for name, program := range workers {
		unit := "perago-" + name + ".service"
		text := read(t, deploy+"/systemd/"+unit)
		if !strings.Contains(text, "\nExecStart=/usr/local/bin/"+program+"\n") {
			t.Errorf("%s does not start %s", unit, program)
		}
		setting := func(name string) string {
			all := regexp.MustCompile(`(?m)^`+name+`=(.*)$`).FindAllStringSubmatch(text, -1)
			if len(all) != 1 {
				t.Fatalf("%s has %d settings %s, want 1", unit, len(all), name)
			}
			return all[0][1]
		}
		environment := map[string]string{}
		for _, pair := range strings.Fields(setting("Environment")) {
			name, value, _ := strings.Cut(pair, "=")
			environment[name] = value
		}
		checkGrace(t, unit, environment["PERAGO_SHUTDOWN_GRACE"], setting("TimeoutStopSec")+"s")
		// Nine tenths, so that garbage is collected before the limit is met.
		limit, _ := strconv.Atoi(strings.TrimSuffix(setting("MemoryMax"), "M"))
		if soft, _ := strconv.Atoi(strings.TrimSuffix(environment["GOMEMLIMIT"], "MiB")); soft != limit*9/10 {
			t.Errorf("%s has GOMEMLIMIT=%s and MemoryMax=%s", unit, environment["GOMEMLIMIT"], setting("MemoryMax"))
		}
		if name == "stage" && environment["TMPDIR"] != "/var/tmp" {
			t.Errorf("%s has TMPDIR=%s; /tmp is often in memory", unit, environment["TMPDIR"])
		}
		stand := filepath.Join(dir, program)
		if err := os.WriteFile(stand, []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, unit)
		if err := os.WriteFile(path, []byte(strings.Replace(text, "/usr/local/bin/"+program, stand, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		units = append(units, path)
	}
	out, err := exec.Command("systemd-analyze", append([]string{"verify", "--man=no"}, units...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// 10 is a service that is not shut in at all, here times ten.
	for _, unit := range units {
		out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--no-pager", "--threshold=25", unit).CombinedOutput()
		if err != nil {
			t.Errorf("systemd-analyze security: %v\n%s", err, out)
		}
	}

	// The environment that the units read.
	environment, err := dotenv.Read(deploy + "/systemd/perago.env.example")
	if err != nil {
		t.Fatal(err)
	}
	reference := variables(t)
	for name := range environment {
		if _, ok := reference[name]; !ok {
			t.Errorf("perago.env.example sets %s, which docs/configuration.md has not", name)
		}
	}
	for name, v := range reference {
		if v.required && environment[name] == "" && environment[name+"_FILE"] == "" {
			t.Errorf("perago.env.example lacks %s", name)
		}
	}
}

// What goreleaser is told to build and pack is there, and built as the image is.
func TestRelease(t *testing.T) {
	t.Parallel()
	var release struct {
		Builds []struct {
			ID, Main, Binary string
			Env              []string
		}
		Archives []struct {
			IDs   []string
			Files []string
		}
		Checksum struct{ Algorithm string }
		SBOMs    []struct{ Artifacts string }
	}
	if err := yaml.Unmarshal([]byte(read(t, root+"/.goreleaser.yaml")), &release); err != nil {
		t.Fatal(err)
	}
	var built []string
	for _, build := range release.Builds {
		built = append(built, build.Binary)
		if _, err := os.Stat(filepath.Join(root, build.Main, "main.go")); err != nil || filepath.Base(build.Main) != build.Binary || build.ID != build.Binary {
			t.Errorf("the build %+v: %v", build, err)
		}
		if !slices.Contains(build.Env, "CGO_ENABLED=0") {
			t.Errorf("%s is not built static: %v", build.Binary, build.Env)
		}
	}
	commands, err := filepath.Glob(root + "/cmd/*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range commands {
		if name := filepath.Base(filepath.Dir(command)); !slices.Contains(built, name) {
			t.Errorf("%s is not built", name)
		}
	}
	if len(release.Archives) != 1 || !slices.Equal(release.Archives[0].IDs, built) {
		t.Fatalf("the archives %+v do not hold what is built: %v", release.Archives, built)
	}
	for _, pattern := range release.Archives[0].Files {
		if files, err := filepath.Glob(filepath.Join(root, pattern)); err != nil || len(files) == 0 {
			t.Errorf("the archive has %s, where nothing is, %v", pattern, err)
		}
	}
	if release.Checksum.Algorithm != "sha256" || len(release.SBOMs) != 1 || release.SBOMs[0].Artifacts != "archive" {
		t.Errorf("checksums by %q, SBOMs of %v", release.Checksum.Algorithm, release.SBOMs)
	}
}
