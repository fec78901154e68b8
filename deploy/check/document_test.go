package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
)

// block is the text of the one fenced block of docs/deploy.md below a mark.
func block(t *testing.T, mark string) string {
	t.Helper()
	found := regexp.MustCompile("(?s)<!-- "+regexp.QuoteMeta(mark)+" -->\n```[a-z]+\n(.*?)```").FindAllStringSubmatch(read(t, root+"/docs/deploy.md"), -1)
	if len(found) != 1 {
		t.Fatalf("docs/deploy.md has %d blocks marked %q, want 1", len(found), mark)
	}
	return found[0][1]
}

// run runs a block of docs/deploy.md, as it stands there, in a copy of what it is
// about.
func run(t *testing.T, name string, environment ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(root+"/deploy")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, binary := range []string{"stage-worker", "publish-worker", "cleanup-worker", "perago"} {
		if err := os.WriteFile(filepath.Join(dir, "bin", binary), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := block(t, "not run: here; deploy/check runs it, "+name)
	command := exec.CommandContext(t.Context(), "bash", "-euc", script)
	command.Dir = dir
	command.Env = append(os.Environ(), "PATH="+filepath.Dir(promtool(t))+":"+os.Getenv("PATH"))
	command.Env = append(command.Env, environment...)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	return dir
}

func TestDocumentedCommands(t *testing.T) {
	t.Parallel()
	t.Run("compose", func(t *testing.T) {
		t.Parallel()
		dir := run(t, "compose")
		compose := read(t, filepath.Join(dir, "deploy", "compose", "compose.yaml"))
		for _, m := range regexp.MustCompile(`(?m)^    file: (.*)$`).FindAllStringSubmatch(compose, -1) {
			if _, err := os.Stat(filepath.Join(dir, "deploy", "compose", m[1])); err != nil {
				t.Errorf("the commands do not make a file of compose.yaml: %v", err)
			}
		}
		if read(t, filepath.Join(dir, "deploy", "compose", ".env")) == "" {
			t.Error("there are no settings")
		}
	})
	t.Run("systemd", func(t *testing.T) {
		t.Parallel()
		host := t.TempDir()
		run(t, "systemd", "DESTDIR="+host)
		settings := read(t, filepath.Join(host, "etc/perago/perago.env"))
		for name, program := range workers {
			unit := read(t, filepath.Join(host, "etc/systemd/system/perago-"+name+".service"))
			for _, file := range regexp.MustCompile(`(?m)^(?:ExecStart|EnvironmentFile)=(/.*)$`).FindAllStringSubmatch(unit, -1) {
				if _, err := os.Stat(filepath.Join(host, file[1])); err != nil {
					t.Errorf("the unit of %s names what the commands do not install: %v", program, err)
				}
			}
		}
		for _, file := range regexp.MustCompile(`(?m)^\w+_FILE=(/.*)$`).FindAllStringSubmatch(settings, -1) {
			info, err := os.Stat(filepath.Join(host, file[1]))
			if err != nil || info.Mode().Perm()&0o007 != 0 {
				t.Errorf("the settings name %s, which the commands do not make, or others may read: %v", file[1], err)
			}
		}
	})
	t.Run("prometheus", func(t *testing.T) {
		t.Parallel()
		run(t, "prometheus")
	})
}

// The values of the document are taken by the chart, and all three workers come
// of them.
func TestDocumentedValues(t *testing.T) {
	t.Parallel()
	values, err := chartutil.ReadValues([]byte(block(t, "values")))
	if err != nil {
		t.Fatal(err)
	}
	all, err := render(loadChart(t), values)
	if err != nil || len(all.deployments) != 3 {
		t.Fatalf("%d deployments, %v", len(all.deployments), err)
	}
	for _, d := range all.deployments {
		checkDeployment(t, "docs/deploy.md, "+d.Name, d)
	}
}

// Every file and folder of deploy that a document names is there.
func TestDocumentedFiles(t *testing.T) {
	t.Parallel()
	file := regexp.MustCompile(`deploy/[\w./*-]*[\w*]`)
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "docs/deploy.md", "docs/runbook.md", "docs/operations.md"} {
		for _, named := range file.FindAllString(read(t, root+"/"+name), -1) {
			if found, err := filepath.Glob(filepath.Join(root, named)); err != nil || len(found) == 0 {
				t.Errorf("%s names %s, which is not there", name, named)
			}
		}
	}
	if text := read(t, root+"/docs/deploy.md"); !strings.Contains(text, "deploy/helm/perago") {
		t.Error("docs/deploy.md does not name the chart")
	}
}
