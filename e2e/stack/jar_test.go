package stack

import (
	"archive/zip"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"perago/pkg/conductor/conductortest"
)

// A person's own jar is run as its manifest says.
func TestChooseConductor_Jar(t *testing.T) {
	t.Parallel()
	const class = "Start-Class: com.netflix.conductor.Conductor\r\n"
	newest := conductorVersions[0]
	for name, c := range map[string]struct {
		manifest   string
		version    string
		java       int
		memoryOnly bool
	}{
		"a version that is known":     {class + "Implementation-Version: 3.15.0\r\n", "3.15.0", 17, true},
		"one that is not":             {class + "Implementation-Version: 3.99.0\r\nBuild-Jdk-Spec: 25\r\n", "3.99.0", 25, false},
		"one that does not say which": {class, "", newest.java, false},
	} {
		path := jarFile(t, c.manifest)
		release, err := chooseConductor(func(name string) string {
			return map[string]string{EnvConductorJar: path, EnvConductorVersion: "3.21.14"}[name]
		})
		if err != nil || release.version != c.version || release.java != c.java || release.memoryOnly != c.memoryOnly || release.file != path {
			t.Errorf("%s: got %+v %v", name, release, err)
		}
	}
	noJar := filepath.Join(t.TempDir(), "no.jar")
	if err := os.WriteFile(noJar, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		jarFile(t, "Start-Class: org.example.Other\r\n"): "it does not start com.netflix.conductor.Conductor; take the jar of conductor-server with the classifier boot",
		noJar: "not a valid zip file",
		filepath.Join(t.TempDir(), "missing.jar"): "no such file",
	} {
		_, err := chooseConductor(func(name string) string { return map[string]string{EnvConductorJar: path}[name] })
		if err == nil || !strings.Contains(err.Error(), EnvConductorJar+"="+path+": ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", path, err, want)
		}
	}
}

func jarFile(t *testing.T, manifest string) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "conductor.jar"))
	if err != nil {
		t.Fatal(err)
	}
	jar := zip.NewWriter(file)
	w, err := jar.Create("META-INF/MANIFEST.MF")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("Manifest-Version: 1.0\r\n" + manifest)); err != nil {
		t.Fatal(err)
	}
	if err := jar.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Name()
}

func TestAskVersion(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct{ version, failed string }{
		http.StatusOK:                 {"3.99.0", ""},
		http.StatusNotFound:           {"", ""}, // 3.21.14 and older do not have the path
		http.StatusServiceUnavailable: {"", "503"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/version" {
				t.Errorf("asked for %s", r.URL)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte("3.99.0\n"))
		}))
		defer server.Close()
		version, err := askVersion(context.Background(), server.URL)
		if version != want.version || (err != nil) != (want.failed != "") || err != nil && !strings.Contains(err.Error(), want.failed) {
			t.Errorf("%d: got %q %v, want %+v", status, version, err, want)
		}
	}
}

// The versions that are run are those that the contract knows, the newest first, and
// one that it does not know gets a line.
func TestVersionsAreTheContracts(t *testing.T) {
	t.Parallel()
	var run, known []string
	for _, release := range conductorVersions {
		run = append(run, release.version)
	}
	for _, version := range conductortest.Versions() {
		known = append(known, string(version))
	}
	if strings.Join(run, " ") != strings.Join(known, " ") {
		t.Errorf("run are %v, known are %v", run, known)
	}
	if got := unknownVersion(run[2]); got != "" {
		t.Errorf("of a known one: %s", got)
	}
	want := "the tests do not know Conductor 3.99.0: what they expect of it is what " + string(conductortest.InTheMannerOf("3.99.0")) + " does"
	if got := unknownVersion("3.99.0"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
