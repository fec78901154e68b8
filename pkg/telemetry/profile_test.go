package telemetry

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestProfileAddress(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"127.0.0.1:6060": true, "127.0.0.2:0": true, "[::1]:6060": true, "localhost:6060": true,
		"": false, ":6060": false, "0.0.0.0:6060": false, "[::]:6060": false, "10.0.0.1:6060": false,
		"localhost.example:6060": false, "127.0.0.1": false, "[::ffff:10.0.0.1]:1": false,
	} {
		if err := CheckProfileAddress(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
	if _, err := ListenProfiles("0.0.0.0:0"); err == nil {
		t.Error("listens on every address")
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	server, err := ListenProfiles("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Abort)
	for path, want := range map[string]string{"": "goroutine", "goroutine?debug=1": "goroutine profile", "heap?debug=1": "heap profile"} {
		response, err := http.Get("http://" + server.Address() + "/debug/pprof/" + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: %d, %v", path, response.StatusCode, err)
		}
	}
	// Nothing else is there.
	response, err := http.Get("http://" + server.Address() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNotFound {
		t.Errorf("/metrics: %d", response.StatusCode)
	}
}
