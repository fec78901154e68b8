package conductortest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"perago/pkg/conductor/conductortest"
)

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
