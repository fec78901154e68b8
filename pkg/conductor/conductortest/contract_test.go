package conductortest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"perago/e2e/stack"
	"perago/pkg/conductor"
	"perago/pkg/conductor/conductortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestContractOnMemoryServer runs each row on a server of its own, in virtual
// time, in the manner of each version.
func TestContractOnMemoryServer(t *testing.T) {
	for _, version := range conductortest.Versions() {
		t.Run(string(version), func(t *testing.T) {
			conductortest.Contract(t, func(t *testing.T, row func(*testing.T, conductortest.Conductor)) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const address = "http://conductor.test"
					transport := conductortest.Transport(conductortest.NewVersion(time.Now, version))
					client, err := conductor.New(conductor.Config{ServerURL: address}, transport)
					if err != nil {
						t.Fatal(err)
					}
					row(t, conductortest.Conductor{Client: client, Operator: conductortest.NewOperator(address, transport), Version: version})
				})
			})
		})
	}
}

// TestContractOnRealServer holds the real server to the contract: what the fake
// does is only worth as much as this.
func TestContractOnRealServer(t *testing.T) {
	if stack.Short(t) {
		return
	}
	servers := stack.Require(t)
	address, version := servers.ConductorURL, conductortest.InTheMannerOf(servers.ConductorVersion)
	onReal := func(t *testing.T, row func(*testing.T, conductortest.Conductor)) {
		t.Parallel()
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		client, err := conductor.New(conductor.Config{ServerURL: address}, transport)
		if err != nil {
			t.Fatal(err)
		}
		row(t, conductortest.Conductor{Client: client, Operator: conductortest.NewOperator(address, transport), Version: version})
	}
	conductortest.Contract(t, onReal)
	conductortest.ServerContract(t, onReal)
}

// Conductor can fail a workflow for the task that is being retried, although the new
// task stands already. It then refuses another retry, and a rerun from the new task is
// what is left.
func TestRetryTaken_RerunsWhereNothingCanBeRetried(t *testing.T) {
	t.Parallel()
	var acts []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := func(status int, body any) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(body)
		}
		task := func(id, status string) map[string]any { return map[string]any{"taskId": id, "status": status} }
		if r.Method == http.MethodPost {
			acts = append(acts, r.URL.Path)
		}
		switch r.URL.Path {
		case "/api/workflow/w":
			answer(http.StatusOK, map[string]any{"status": "FAILED", "tasks": []any{task("old", "FAILED"), task("new", "IN_PROGRESS")}})
		case "/api/workflow/w/retry":
			answer(http.StatusConflict, map[string]any{"status": 409, "message": "There are no retryable tasks! Use restart if you want to attempt entire workflow execution again!"})
		case "/api/workflow/w/rerun":
			answer(http.StatusOK, "w")
		case "/api/tasks/new":
			answer(http.StatusOK, task("new", "IN_PROGRESS"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	if err := conductortest.NewOperator(server.URL, http.DefaultTransport).RetryTaken(t.Context(), "w"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/api/workflow/w/retry", "/api/workflow/w/rerun"}; !slices.Equal(acts, want) {
		t.Errorf("sent %v, want %v", acts, want)
	}
}
