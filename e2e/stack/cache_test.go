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
	"testing/synctest"
	"time"
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
	for asked, want := range map[string]string{"": conductorVersions[0].version, "3.32.3": "3.32.3", "3.21.14": "3.21.14", "3.15.0": "3.15.0"} {
		release, err := chooseConductor(func(name string) string {
			return map[string]string{EnvConductorVersion: asked}[name]
		})
		if err != nil || release.version != want {
			t.Errorf("%q: got %+v, %v, want %s", asked, release, err, want)
		}
		if len(release.sha256) != 64 || release.group == "" || release.megabytes == 0 || release.java == 0 {
			t.Errorf("%q: %+v is incomplete", asked, release)
		}
		if jar := release.jar(); jar != "conductor-server-"+want+"-boot.jar" {
			t.Errorf("%q: the file is %s", asked, jar)
		}
	}
	for _, asked := range []string{"3.14", "3.15", "latest"} {
		if jar, err := chooseConductor(func(name string) string { return map[string]string{EnvConductorVersion: asked}[name] }); err == nil || !strings.Contains(err.Error(), conductorVersions[0].version+", ") {
			t.Errorf("%q: got %+v, %v, want an error that names the versions", asked, jar, err)
		}
	}
}

// What takes minutes says how large it is, and how far it has come.
func TestProgressOfADownload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var said lines
		stop := showProgress(&said, "Conductor 1.2.3", 5, dir)
		for _, file := range []string{"a", "b"} {
			if err := os.WriteFile(filepath.Join(dir, file), make([]byte, 1_500_000), 0o644); err != nil {
				t.Fatal(err)
			}
			time.Sleep(progressInterval) // virtual
			synctest.Wait()
		}
		stop()
		want := "fetching Conductor 1.2.3 (5 MB, once)\n" +
			"fetching Conductor 1.2.3: 1 of 5 MB\n" +
			"fetching Conductor 1.2.3: 3 of 5 MB\n"
		if got := said.String(); got != want {
			t.Errorf("said:\n%swant:\n%s", got, want)
		}
	})
}

// lines may be written and read by several goroutines.
type lines struct {
	mutex sync.Mutex
	strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.Builder.Write(b)
}

// A file that was changed or cut off on its way is refused.
func TestChecksumOfADownload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "server.jar")
	if err := os.WriteFile(path, []byte("jar"), 0o644); err != nil {
		t.Fatal(err)
	}
	const sum = "eb5e6e8d0dc7a61a9f1de8bb0cdc9e0b02e5f4d04c02b5f8f6c5d9e1e7d7e0ce"
	err := checkSHA256(path, sum)
	if err == nil || !strings.Contains(err.Error(), "server.jar has SHA-256 ") || !strings.Contains(err.Error(), ", want "+sum) {
		t.Errorf("got %v", err)
	}
	right := strings.Fields(err.Error())[3]
	if err := checkSHA256(path, strings.TrimSuffix(right, ",")); err != nil {
		t.Error(err)
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
		ConductorURL: "http://127.0.0.1:1", ConductorVersion: "3.21.14", LakeFSURL: "http://127.0.0.1:2",
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
