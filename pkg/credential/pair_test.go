package credential_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"perago/pkg/credential"
)

// files are a key and a secret in two files of a folder.
type files struct {
	t      testing.TB
	folder string
}

func newFiles(t testing.TB, key, secret string) files {
	f := files{t, t.TempDir()}
	f.write("key", key)
	f.write("secret", secret)
	return f
}

func (f files) path(name string) string { return filepath.Join(f.folder, name) }

func (f files) write(name, content string) {
	f.t.Helper()
	if err := os.WriteFile(f.path(name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f files) remove(name string) {
	f.t.Helper()
	if err := os.Remove(f.path(name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f files) value(name string) credential.Value {
	f.t.Helper()
	value, err := credential.Read(strings.ToUpper(name)+"_FILE", f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return value
}

func (f files) pair(renewed func(credential.Shown)) *credential.Pair {
	f.t.Helper()
	return credential.NewPair(f.value("key"), f.value("secret"), renewed)
}

func text(s credential.Shown) string { return s.Key.Reveal() + ":" + s.Secret.Reveal() }

// TestRenew: what a refused caller gets after the files changed.
func TestRenew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(files)
		want   string
		faults []string
	}{
		"nothing changed": {func(files) {}, "", nil},
		"both":            {func(f files) { f.write("key", "k2\n"); f.write("secret", "s2\n") }, "k2:s2", nil},
		"the secret":      {func(f files) { f.write("secret", "s2") }, "k1:s2", nil},
		"another newline": {func(f files) { f.write("secret", "s1\r\n") }, "", nil},
		"half written":    {func(f files) { f.write("key", "k2"); f.write("secret", "") }, "", []string{"SECRET_FILE names an empty file"}},
		"key removed":     {func(f files) { f.remove("key"); f.write("secret", "s2") }, "", []string{"KEY_FILE cannot be read"}},
		"both removed":    {func(f files) { f.remove("key"); f.remove("secret") }, "", []string{"KEY_FILE cannot be read", "SECRET_FILE cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFiles(t, "k1", "s1\n")
			told := ""
			pair := f.pair(func(now credential.Shown) { told += text(now) })
			c.change(f)
			now, other, err := pair.Renew(t.Context(), pair.Current())
			if got := text(now); other != (c.want != "") || (other && got != c.want) || (!other && got != "k1:s1") {
				t.Errorf("got %s, another one: %v", got, other)
			}
			if text(pair.Current()) != text(now) || told != c.want {
				t.Errorf("in use %s, told %s", text(pair.Current()), told)
			}
			if (err != nil) != (c.faults != nil) {
				t.Fatalf("%v", err)
			}
			for _, fault := range c.faults {
				if !strings.Contains(err.Error(), fault) {
					t.Errorf("%q does not say %q", err, fault)
				}
			}
			// Nothing is lost: when the files are whole again they are taken up.
			f.write("key", "k3")
			f.write("secret", "s3")
			if now, other, err := pair.Renew(t.Context(), pair.Current()); text(now) != "k3:s3" || !other || err != nil {
				t.Errorf("whole again: %s, %v, %v", text(now), other, err)
			}
		})
	}
}

// TestGivenValuesStay: they are not read anywhere.
func TestGivenValuesStay(t *testing.T) {
	t.Parallel()
	pair := credential.NewPair(credential.New("k"), credential.New("s"), func(credential.Shown) { t.Error("renewed") })
	if now, other, err := pair.Renew(t.Context(), pair.Current()); text(now) != "k:s" || other || err != nil {
		t.Errorf("%s, %v, %v", text(now), other, err)
	}
}

// TestRenewOnce: of many who were refused with one pair each gets the new one, and
// it is taken up once.
func TestRenewOnce(t *testing.T) {
	t.Parallel()
	f := newFiles(t, "k1", "s1")
	var taken atomic.Int32
	pair := f.pair(func(credential.Shown) { taken.Add(1) })
	refused := pair.Current()
	f.write("key", "k2")
	f.write("secret", "s2")
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			if now, other, err := pair.Renew(t.Context(), refused); text(now) != "k2:s2" || !other || err != nil {
				t.Errorf("%s, %v, %v", text(now), other, err)
			}
		})
	}
	group.Wait()
	if taken.Load() != 1 {
		t.Errorf("taken up %d times", taken.Load())
	}
	// A late one, refused with the old pair, costs no reading.
	f.remove("key")
	if now, other, err := pair.Renew(t.Context(), refused); text(now) != "k2:s2" || !other || err != nil {
		t.Errorf("late: %s, %v, %v", text(now), other, err)
	}
}

// TestFilesThatHang: whoever waits leaves with its own context, the others get
// what is read in the end, and only one reads.
func TestFilesThatHang(t *testing.T) {
	t.Parallel()
	f := newFiles(t, "k1", "s1")
	pair := f.pair(nil)
	refused := pair.Current()
	// Opening a FIFO waits for a writer, as a file system that is gone does.
	f.remove("secret")
	if err := syscall.Mkfifo(f.path("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	var leaving, staying sync.WaitGroup
	for range 10 {
		leaving.Go(func() {
			if now, other, err := pair.Renew(cancelled, refused); text(now) != "k1:s1" || other || !errors.Is(err, context.Canceled) {
				t.Errorf("the one that left: %s, %v, %v", text(now), other, err)
			}
		})
		staying.Go(func() {
			if now, other, err := pair.Renew(t.Context(), refused); text(now) != "k1:s2" || !other || err != nil {
				t.Errorf("the one that stayed: %s, %v, %v", text(now), other, err)
			}
		})
	}
	cancel()
	leaving.Wait()
	// One writer, one reader: a second reading would wait for ever.
	f.write("secret", "s2")
	staying.Wait()
}
