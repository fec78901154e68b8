package stack

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func ignoreTerm() { signal.Ignore(syscall.SIGTERM) }

func TestKeyFollowsTheModule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := moduleKey(dir, "server-1.0"); err == nil {
		t.Error("a key without a module")
	}
	seen := map[string]string{}
	for _, c := range [][2]string{{"m", "s"}, {"m2", "s"}, {"m", "s2"}, {"ms", ""}, {"", "ms"}} {
		write("go.mod", c[0])
		write("go.sum", c[1])
		key, err := moduleKey(dir, "server-1.0")
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := moduleKey(dir, "server-1.0"); again != key {
			t.Errorf("%s, then %s for the same files", key, again)
		}
		if !strings.HasPrefix(key, "server-1.0-") {
			t.Errorf("key %s does not name the version", key)
		}
		if other, ok := seen[key]; ok {
			t.Errorf("%v and %s have one key", c, other)
		}
		seen[key] = c[0] + "|" + c[1]
	}
}

// The versions in the code and those in the modules' go.mod are the same.
func TestVersionsAreTheModules(t *testing.T) {
	t.Parallel()
	for directory, want := range map[string]string{
		"lakefs": "require " + lakeFSModule + " v" + lakeFSVersion + "\n",
		"s3":     "\t" + s3Module + " v" + s3Version + " // indirect\n",
	} {
		b, err := os.ReadFile(filepath.Join("servers", directory, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(b), want) {
			t.Errorf("servers/%s/go.mod does not say %q", directory, want)
		}
	}
}

// The version is the one that is asked for, and nothing else is taken for it.
func TestChooseConductor(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]string{"": "3.15.0", "3.15.0": "3.15.0", "3.13.8": "3.13.8"} {
		release, err := chooseConductor(func(name string) string {
			if name != EnvConductorVersion {
				t.Errorf("asked for %s", name)
			}
			return asked
		})
		if err != nil || release.version != want {
			t.Errorf("%q: got %+v, %v, want %s", asked, release, err, want)
		}
		if jar := release.jar; jar.file != "conductor-server-"+want+"-boot.jar" || !strings.Contains(jar.artifact, ":"+want+":") {
			t.Errorf("%q: the file is %s of %s", asked, jar.file, jar.artifact)
		}
		for _, jar := range append(release.libraries, release.jar) {
			if len(jar.sha256) != 64 {
				t.Errorf("%q: the SHA-256 of %s is %q", asked, jar.file, jar.sha256)
			}
		}
		if files := release.files(); len(files) != 1+len(release.libraries) || files[0] != release.jar.file {
			t.Errorf("%q: the files are %v", asked, files)
		}
	}
	for _, asked := range []string{"3.14", "3.15", "latest"} {
		if jar, err := chooseConductor(func(string) string { return asked }); err == nil || !strings.Contains(err.Error(), "3.15.0 and 3.13.8") {
			t.Errorf("%q: got %+v, %v, want an error that names the versions", asked, jar, err)
		}
	}
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	dir := filepath.Join(cache, "thing")
	files := []string{"a", "b"}
	fill := func(names ...string) func(string) error {
		return func(tmp string) error {
			for _, name := range names {
				if err := os.WriteFile(filepath.Join(tmp, name), []byte(name), 0o644); err != nil {
					return err
				}
			}
			return nil
		}
	}
	broken := errors.New("broken")
	if err := ensure(t.Context(), dir, files, func(tmp string) error {
		_ = fill("a")(tmp)
		return broken
	}); !errors.Is(err, broken) {
		t.Errorf("got %v, want the failure of the build", err)
	}
	if err := ensure(t.Context(), dir, files, fill("a")); err == nil {
		t.Error("half of the files was taken for the whole")
	}
	if present(dir, files) {
		t.Fatal("a failed build is in the cache")
	}

	var fills int // written under ensure's lock
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := ensure(t.Context(), dir, files, func(tmp string) error {
				fills++
				return fill("a", "b")(tmp)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if fills != 1 || !present(dir, files) {
		t.Errorf("built %d times, present %v; want once and present", fills, present(dir, files))
	}
	left, err := filepath.Glob(filepath.Join(cache, "*.tmp-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary folders are left: %v %v", left, err)
	}
}

func TestFromEnv(t *testing.T) {
	t.Parallel()
	want := Servers{
		ConductorURL: "http://127.0.0.1:1", ConductorVersion: "3.13.8", LakeFSURL: "http://127.0.0.1:2",
		AccessKeyID: "key", SecretAccessKey: "secret", ImportDir: "/import", BlocksDir: "/blocks",
	}
	env := map[string]string{}
	for _, kv := range want.Env() {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	got, err := fromEnv(func(k string) string { return env[k] })
	if err != nil || got != want {
		t.Errorf("got %+v %v, want %+v", got, err, want)
	}
	delete(env, EnvLakeFSURL)
	_, err = fromEnv(func(k string) string { return env[k] })
	if err == nil || err.Error() != "needs the real servers: run `make test` (not set: "+EnvLakeFSURL+")" {
		t.Errorf("got %v", err)
	}
}
