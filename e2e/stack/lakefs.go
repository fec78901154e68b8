package stack

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// StartLakeFS starts a lakeFS for one test, with settings that the shared one does
// not have (NAME=value), and stops it when the test ends. Conductor is not part of
// what it returns.
func StartLakeFS(t testing.TB, settings ...string) Servers {
	t.Helper()
	bin, err := Prefetch(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	servers := Servers{ImportDir: filepath.Join(dir, "import"), BlocksDir: filepath.Join(dir, "lakefs", "blocks"), AccessKeyID: "perago-" + randomHex(6), SecretAccessKey: randomHex(20)}
	for _, folder := range []string{servers.ImportDir, filepath.Join(dir, "tmp")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	server := lakeFSServer(bin, dir, filepath.Join(dir, "lakefs.log"), servers, settings...)
	if err := server.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	servers.LakeFSURL = server.URL()
	return servers
}
