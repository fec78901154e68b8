package lakefs_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// losing loses the answers of matching requests, as the test says for each: one
// of "applied", "never", "late" (after so long) and "" for no fault.
type losing struct {
	next  http.RoundTripper
	path  string
	fates []string
	late  time.Duration
	sent  int
}

var errCut = errors.New("connection reset by peer")

func (l *losing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, l.path) {
		return l.next.RoundTrip(r)
	}
	fate := ""
	if l.sent < len(l.fates) {
		fate = l.fates[l.sent]
	}
	l.sent++
	apply := func(r *http.Request) error {
		response, err := l.next.RoundTrip(r)
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	switch fate {
	case "applied":
		if err := apply(r); err != nil {
			return nil, err
		}
		return nil, errCut
	case "never":
		return nil, errCut
	case "late":
		go func() {
			time.Sleep(l.late)
			_ = apply(r.WithContext(r.Context())) // the branch tells
		}()
		return nil, errCut
	}
	return l.next.RoundTrip(r)
}

type settleBench struct {
	client lakefs.Settling
	plain  *lakefs.Client
	wire   *losing
	repo   txn.Repository
	first  txn.CommitID
}

func newSettleBench(t *testing.T, path string, fates ...string) *settleBench {
	t.Helper()
	server := lakefstest.NewServer()
	b := &settleBench{plain: server.Client(t), wire: &losing{next: server.Transport(), path: path, fates: fates, late: time.Second}}
	b.repo, b.first = lakefstest.NewRepository(t, b.plain, map[string]string{"a": "1"}, lakefstest.Allow(lakefstest.RuleBranches))
	client, err := lakefs.New(server.Config(), b.wire)
	if err != nil {
		t.Fatal(err)
	}
	b.client = lakefs.Settling{Client: client}
	return b
}

// The creation of a branch is sent once, whatever becomes of its answer.
func TestCreateBranchIsSettledByReading(t *testing.T) {
	for name, c := range map[string]struct {
		fate  string
		want  error
		takes time.Duration
	}{
		"answered":                  {"", nil, 0},
		"lost and applied":          {"applied", nil, 0},
		"lands while it is read":    {"late", nil, 1400 * time.Millisecond},
		"lost and never applied":    {"never", txn.ErrUnknownOutcome, 3 * time.Second},
		"lost, its name is another": {"taken", txn.ErrExists, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fate := c.fate
				if fate == "taken" {
					fate = "never"
				}
				b := newSettleBench(t, "/branches", fate)
				if c.fate == "taken" {
					lakefstest.Put(t, b.plain, b.repo, "main", map[string]string{"b": "2"})
					other, err := b.plain.CreateCommit(t.Context(), b.repo, "main", "another", nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := b.plain.CreateBranch(t.Context(), b.repo, "perago-x", other.ID); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				err := b.client.CreateBranch(t.Context(), b.repo, "perago-x", b.first)
				if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if took := time.Since(began); took != c.takes {
					t.Errorf("took %s, want %s", took, c.takes)
				}
				if b.wire.sent != 1 {
					t.Errorf("sent %d times, want once", b.wire.sent)
				}
			})
		})
	}
}

func TestCommitIsSettledByReading(t *testing.T) {
	for name, c := range map[string]struct {
		fates []string
		sent  int
		fails bool
	}{
		"answered":                  {nil, 1, false},
		"lost and applied":          {[]string{"applied"}, 1, false},
		"lost and never applied":    {[]string{"never"}, 2, false},
		"lost twice, applied":       {[]string{"never", "applied"}, 2, false},
		"applied before it is sent": {[]string{"late", "never", "never", ""}, 3, false},
		"never answered":            {[]string{"never", "never", "never", "never", "never", "never"}, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSettleBench(t, "/commits", c.fates...)
				if err := b.plain.CreateBranch(t.Context(), b.repo, "perago-x", b.first); err != nil {
					t.Fatal(err)
				}
				lakefstest.Put(t, b.plain, b.repo, "perago-x", map[string]string{"b": "2"})
				record := txn.Record{
					Phase: txn.PhaseTry, Key: "k", Workflow: "w", Task: "t", Execution: "01890a5d-ac96-774b-bcce-b302099a8057",
					InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: "perago-x",
				}
				commit, err := b.client.CreateCommit(t.Context(), b.repo, "perago-x", "try", record.Metadata(""))
				if (err != nil) != c.fails || (c.fails && !errors.Is(err, txn.ErrUnknownOutcome)) {
					t.Fatalf("%v; want a failure: %v", err, c.fails)
				}
				if b.wire.sent != c.sent {
					t.Errorf("sent %d times, want %d", b.wire.sent, c.sent)
				}
				if c.fails {
					return
				}
				head, err := b.plain.Head(t.Context(), b.repo, "perago-x")
				if err != nil || head != commit.ID || len(commit.Parents) != 1 || commit.Parents[0] != b.first {
					t.Errorf("commit %+v, head %s, %v; want one commit on the first", commit, head, err)
				}
			})
		})
	}
}
