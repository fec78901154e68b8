package lakefs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"perago/pkg/fault"
	"perago/pkg/lakefs"
	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// settleBench is a memory server, a client behind a wire and one without.
type settleBench struct {
	client lakefs.Settling
	plain  *lakefs.Client
	wire   *fault.Wire
	// at are the requests that the faults are aimed at.
	at    fault.Match
	repo  txn.Repository
	first txn.CommitID
	// staged is what a merge is of.
	staged txn.CommitID
}

// newSettleBench does these faults to the first POSTs to a path.
func newSettleBench(t *testing.T, path string, faults ...fault.Fault) *settleBench {
	t.Helper()
	return newFaultBench(t, fault.Match{Method: http.MethodPost, Path: path}, faults...)
}

func newFaultBench(t *testing.T, at fault.Match, faults ...fault.Fault) *settleBench {
	t.Helper()
	server := lakefstest.NewServer()
	b := &settleBench{plain: server.Client(t), wire: fault.NewWire(server.Transport()), at: at}
	b.repo, b.first = lakefstest.NewRepository(t, b.plain, map[string]string{"a": "1"}, lakefstest.Allow(lakefstest.RuleBranches))
	for _, f := range faults {
		b.wire.Arm(at, f)
	}
	client, err := lakefs.New(server.Config(), b.wire)
	if err != nil {
		t.Fatal(err)
	}
	b.client = lakefs.Settling{Client: client}
	return b
}

// tryRecord is the metadata of a commit on staging.
func (b *settleBench) tryRecord() map[string]string {
	record := txn.Record{
		Phase: txn.PhaseTry, Key: "k", Workflow: "w", Task: "t", Execution: "01890a5d-ac96-774b-bcce-b302099a8057",
		InputRef: b.first, TargetBranch: "main", Prefix: "data/", StagingBranch: staging,
	}
	return record.Metadata("")
}

func (b *settleBench) sent() int { return len(b.wire.Matching(b.at)) }

// The creation of a branch is sent once, whatever becomes of its answer.
func TestCreateBranchIsSettledByReading(t *testing.T) {
	for name, c := range map[string]struct {
		fate  fault.Fault
		taken bool
		want  error
		takes time.Duration
	}{
		"answered":                  {fault.Fault{}, false, nil, 0},
		"lost and applied":          {fault.Lost(), false, nil, 0},
		"lands while it is read":    {fault.Late(time.Second), false, nil, 1400 * time.Millisecond},
		"lost and never applied":    {fault.Dropped(), false, txn.ErrUnknownOutcome, 3 * time.Second},
		"lost, its name is another": {fault.Dropped(), true, txn.ErrExists, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSettleBench(t, "/branches", c.fate)
				if c.taken {
					lakefstest.Put(t, b.plain, b.repo, "main", map[string]string{"b": "2"})
					other, err := b.plain.CreateCommit(t.Context(), b.repo, "main", "another", nil)
					if err != nil {
						t.Fatal(err)
					}
					if err := b.plain.CreateBranch(t.Context(), b.repo, staging, other.ID); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				err := b.client.CreateBranch(t.Context(), b.repo, staging, b.first)
				if !errors.Is(err, c.want) || (c.want == nil && err != nil) {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if took := time.Since(began); took != c.takes {
					t.Errorf("took %s, want %s", took, c.takes)
				}
				if b.sent() != 1 {
					t.Errorf("sent %d times, want once", b.sent())
				}
			})
		})
	}
}

// A name that a person chose proves nothing: a branch that is there, at the very
// commit, may be another person's. It is neither read nor deleted twice.
func TestSettle_NeverByAChosenName(t *testing.T) {
	t.Parallel()
	creations := map[string]func(*settleBench, *testing.T, txn.Branch) error{
		"CreateBranch": func(b *settleBench, t *testing.T, name txn.Branch) error {
			return b.client.CreateBranch(t.Context(), b.repo, name, b.first)
		},
		"CreateVisibleBranch": func(b *settleBench, t *testing.T, name txn.Branch) error {
			return b.client.CreateVisibleBranch(t.Context(), b.repo, name, b.first)
		},
	}
	for _, name := range []txn.Branch{"mine", "perago-x", txn.HandBranches + "mine", staging + "-mine", txn.ProbeBranches + "01890a5d"} {
		for what, create := range creations {
			for how, lost := range map[string]fault.Fault{"its 409 is lost": fault.Lost(), "it is lost": fault.Dropped()} {
				b := newSettleBench(t, "/branches", lost)
				if err := b.plain.CreateBranch(t.Context(), b.repo, name, b.first); err != nil {
					t.Fatal(err)
				}
				reads := fault.Match{Method: http.MethodGet}
				if err := create(b, t, name); !errors.Is(err, txn.ErrUnknownOutcome) || b.sent() != 1 || len(b.wire.Matching(reads)) != 0 {
					t.Errorf("%s %s, %s: %v, after %d requests and %d reads", what, name, how, err, b.sent(), len(b.wire.Matching(reads)))
				}
			}
		}
		deletes := fault.Match{Method: http.MethodDelete, Path: "/branches/"}
		b := newFaultBench(t, deletes, fault.Lost())
		if err := b.plain.CreateBranch(t.Context(), b.repo, name, b.first); err != nil {
			t.Fatal(err)
		}
		if err := b.client.DeleteBranch(t.Context(), b.repo, name); !errors.Is(err, txn.ErrUnknownOutcome) || b.sent() != 1 {
			t.Errorf("delete %s: %v after %d requests", name, err, b.sent())
		}
	}
}

func TestCommitIsSettledByReading(t *testing.T) {
	var (
		never = fault.Dropped()
		pass  = fault.Fault{}
	)
	for name, c := range map[string]struct {
		fates []fault.Fault
		sent  int
		fails bool
	}{
		"answered":                  {nil, 1, false},
		"lost and applied":          {[]fault.Fault{fault.Lost()}, 1, false},
		"lost and never applied":    {[]fault.Fault{never}, 2, false},
		"lost twice, applied":       {[]fault.Fault{never, fault.Lost()}, 2, false},
		"applied before it is sent": {[]fault.Fault{fault.Late(time.Second), never, never, pass}, 3, false},
		"never answered":            {[]fault.Fault{never, never, never, never, never, never}, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSettleBench(t, "/commits", c.fates...)
				if err := b.plain.CreateBranch(t.Context(), b.repo, staging, b.first); err != nil {
					t.Fatal(err)
				}
				lakefstest.Put(t, b.plain, b.repo, staging, map[string]string{"b": "2"})
				commit, err := b.client.CreateCommit(t.Context(), b.repo, staging, "try", b.tryRecord())
				if (err != nil) != c.fails || (c.fails && !errors.Is(err, txn.ErrUnknownOutcome)) {
					t.Fatalf("%v; want a failure: %v", err, c.fails)
				}
				if b.sent() != c.sent {
					t.Errorf("sent %d times, want %d", b.sent(), c.sent)
				}
				if c.fails {
					return
				}
				head, err := b.plain.Head(t.Context(), b.repo, staging)
				if err != nil || head != commit.ID || len(commit.Parents) != 1 || commit.Parents[0] != b.first {
					t.Errorf("commit %+v, head %s, %v; want one commit on the first", commit, head, err)
				}
			})
		})
	}
}

// A commit that changes nothing lands as often as it is sent. What is held back
// lands just before the repeat, or before the branch is read for the repeat's own
// lost answer: the first of the two is the commit.
func TestOfTwoCommitsTheFirstCounts(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"the repeat is answered": false, "the repeat is lost": true} {
		for what, commit := range map[string]func(*testing.T, *settleBench, txn.MetaRangeID) (txn.Commit, error){
			"tree": func(t *testing.T, b *settleBench, tree txn.MetaRangeID) (txn.Commit, error) {
				return b.client.CommitTree(t.Context(), b.repo, staging, tree, "try", b.tryRecord())
			},
			"unchanged": func(t *testing.T, b *settleBench, _ txn.MetaRangeID) (txn.Commit, error) {
				return b.client.CommitUnchanged(t.Context(), b.repo, staging, "try", b.tryRecord())
			},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := newSettleBench(t, "/commits")
					if err := b.plain.CreateBranch(t.Context(), b.repo, staging, b.first); err != nil {
						t.Fatal(err)
					}
					first, err := b.plain.Commit(t.Context(), b.repo, b.first)
					if err != nil {
						t.Fatal(err)
					}
					deliver := b.wire.Hold(b.at).Late(t)
					hold := b.wire.Hold
					if lost {
						hold = b.wire.HoldAnswer
					}
					repeat := hold(b.at)
					go func() {
						<-repeat.Arrived()
						deliver()
						if lost {
							repeat.Drop()
						} else {
							repeat.Pass()
						}
					}()
					got, err := commit(t, b, first.MetaRange)
					if err != nil {
						t.Fatal(err)
					}
					if b.sent() != 2 {
						t.Errorf("sent %d times, want twice", b.sent())
					}
					if len(got.Parents) != 1 || got.Parents[0] != b.first {
						t.Errorf("got a commit on %v, want the one on %s", got.Parents, b.first)
					}
					head, err := b.plain.Head(t.Context(), b.repo, staging)
					if err != nil || head == got.ID {
						t.Errorf("only one landed: the head is %s, %v", head, err)
					}
				})
			})
		}
	}
}

// A commit that says that it is its own parent is looked at a few times, and is
// then what the caller refuses.
func TestACommitThatIsItsOwnParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newSettleBench(t, "/commits", fault.Lost())
		makeBranch(t, b)
		lakefstest.Put(t, b.plain, b.repo, staging, map[string]string{"b": "2"})
		reads := 0
		liar := roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := b.wire.RoundTrip(r)
			if err != nil || !strings.Contains(r.URL.Path, "/commits/") {
				return response, err
			}
			if reads++; reads > 1000 {
				return nil, errors.New("it does not end")
			}
			var commit map[string]any
			if err := json.NewDecoder(response.Body).Decode(&commit); err != nil {
				return nil, err
			}
			commit["parents"] = []any{commit["id"]}
			raw, err := json.Marshal(commit)
			response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
			return response, err
		})
		client, err := lakefs.New(lakefstest.NewServer().Config(), liar)
		if err != nil {
			t.Fatal(err)
		}
		commit, err := lakefs.Settling{Client: client}.CreateCommit(t.Context(), b.repo, staging, "try", b.tryRecord())
		if err != nil || reads > 20 || commit.Parents[0] != commit.ID {
			t.Errorf("%d reads, %+v, %v", reads, commit, err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
