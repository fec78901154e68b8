package model

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"

	"perago/pkg/lakefs/lakefstest"
	"perago/pkg/txn"
)

// lakeServer is a lakeFS as the use cases' ports see it: the model's own, or a
// memory server behind the real adapter.
type lakeServer interface {
	Commit(ctx context.Context, repository txn.Repository, id txn.CommitID) (txn.Commit, error)
	Head(ctx context.Context, repository txn.Repository, branch txn.Branch) (txn.CommitID, error)
	History(ctx context.Context, repository txn.Repository, from, stopAt txn.CommitID, limit int) ([]txn.Commit, bool, error)
	Differ(ctx context.Context, repository txn.Repository, left, right txn.CommitID, prefix txn.Prefix) (bool, error)
	Branches(ctx context.Context, repository txn.Repository, prefix string) ([]txn.BranchHead, error)
	CreateBranch(ctx context.Context, repository txn.Repository, name txn.Branch, source txn.CommitID) error
	DeleteBranch(ctx context.Context, repository txn.Repository, branch txn.Branch) error
	Objects(ctx context.Context, repository txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error]
	ReadObject(ctx context.Context, repository txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error)
	Upload(ctx context.Context, repository txn.Repository, branch txn.Branch, path string, content txn.Content) (txn.Object, error)
	DeleteObjects(ctx context.Context, repository txn.Repository, branch txn.Branch, paths []string) error
	CreateCommit(ctx context.Context, repository txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error)
	CommitTree(ctx context.Context, repository txn.Repository, branch txn.Branch, tree txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error)
	HookRuns(ctx context.Context, repository txn.Repository, commit txn.CommitID) ([]txn.HookRun, error)
	Merge(ctx context.Context, merge txn.Merge) (txn.CommitID, error)
}

// conductorServer is a Conductor as the workers' port and the use cases' see it.
type conductorServer interface {
	Poll(ctx context.Context, request txn.PollRequest) ([]txn.Task, error)
	Task(ctx context.Context, id txn.TaskID) (txn.Task, error)
	WorkflowStatus(ctx context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error)
	Workflow(ctx context.Context, id txn.WorkflowID) (txn.Workflow, error)
	Update(ctx context.Context, result txn.TaskResult) error
}

// The faults of each kind of call. A read that fails may be one of several things
// and shows the caller only that. A crash is worth trying only instead of what
// others could see: anywhere between two such calls it is the same. That a poll's
// answer is lost is a crash of its worker right after it.
var (
	ofRead   = []fate{lost}
	ofMerge  = []fate{lost, dropped, late, crash}
	ofCommit = []fate{lost, late, crash}
	ofDelete = []fate{lost, crash}
	ofUpdate = []fate{lost, dropped, late, crash}
)

// unknown is what a caller hears that hears nothing.
func unknown(server, what string) error {
	return &txn.ServerError{Server: server, Method: "model", Path: what, Class: txn.ErrUnknownOutcome, Message: "no answer"}
}

// unread is a read that failed for good, after what the adapter repeats.
func unread(server, what string) error {
	return &txn.ServerError{Server: server, Method: "model", Path: what, Class: txn.ErrRetryable, Message: "no answer"}
}

func class(err error) uint64 {
	if err == nil {
		return 0
	}
	return hashOf(err.Error())
}

// answered is the answer to a call of type T.
func answered[T any](value T, err error, digest func(T) uint64) answer {
	return answer{value, err, digest(value) + class(err)}
}

// ask makes a read of a program.
func ask[T any](p *player, c call, server string, do func(*world) (T, error), digest func(T) uint64) (T, error) {
	a := p.pass(&request{call: c, silent: answer{err: unread(server, c.name), digest: hashOf("no answer")}, do: func(w *world) answer {
		value, err := do(w)
		return answered(value, err, digest)
	}})
	value, _ := a.value.(T)
	return value, a.err
}

// send makes a write of a program.
func send[T any](p *player, c call, server string, do func(*world) (T, error), digest func(T) uint64) (T, error) {
	a := p.pass(&request{call: c, silent: answer{err: unknown(server, c.name), digest: hashOf("no answer")}, do: func(w *world) answer {
		value, err := do(w)
		return answered(value, err, digest)
	}})
	value, _ := a.value.(T)
	return value, a.err
}

func nothing(struct{}) uint64 { return 0 }

func commitDigest(c txn.Commit) uint64 { return hashOf(string(c.ID)) }

func idDigest(id txn.CommitID) uint64 { return hashOf(string(id)) }

const (
	theLake      = "lakeFS"
	theConductor = "Conductor"
)

// lakePort is the lakeFS of one program: each call of it is a step of the
// schedule. What the product may send twice by itself, and what its adapter
// settles by reading, it does above this; so an unknown outcome here is one that
// reading did not settle.
type lakePort struct{ *player }

func (p lakePort) Commit(_ context.Context, repo txn.Repository, id txn.CommitID) (txn.Commit, error) {
	return ask(p.player, call{name: "read commit", faults: ofRead, reach: local}, theLake, func(w *world) (txn.Commit, error) {
		return w.lakefs.Commit(context.Background(), repo, id)
	}, commitDigest)
}

func (p lakePort) Head(_ context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error) {
	return ask(p.player, call{name: "read head", faults: ofRead}, theLake, func(w *world) (txn.CommitID, error) {
		return w.lakefs.Head(context.Background(), repo, branch)
	}, idDigest)
}

// stagePort is the lakeFS of a stage. Of the target a stage asks only whether it is
// there, and nobody in the model deletes it, so nobody else can notice the call.
type stagePort struct{ lakePort }

func (p stagePort) Head(_ context.Context, repo txn.Repository, branch txn.Branch) (txn.CommitID, error) {
	return ask(p.player, call{name: "look for the target", reach: instant}, theLake, func(w *world) (txn.CommitID, error) {
		return w.lakefs.Head(context.Background(), repo, branch)
	}, func(txn.CommitID) uint64 { return 0 })
}

// History is of a commit that was read, and no commit changes.
func (p lakePort) History(_ context.Context, repo txn.Repository, from, stopAt txn.CommitID, limit int) ([]txn.Commit, bool, error) {
	type answer struct {
		commits []txn.Commit
		reached bool
	}
	a, err := ask(p.player, call{name: "read history", faults: ofRead, reach: local}, theLake, func(w *world) (a answer, err error) {
		a.commits, a.reached, err = w.lakefs.History(context.Background(), repo, from, stopAt, limit)
		return a, err
	}, func(a answer) uint64 {
		sum := hashOf(fmt.Sprint(a.reached))
		for _, c := range a.commits {
			sum = sum*31 + commitDigest(c)
		}
		return sum
	})
	return a.commits, a.reached, err
}

// Differ is of two commits, and no commit changes.
func (p lakePort) Differ(_ context.Context, repo txn.Repository, left, right txn.CommitID, prefix txn.Prefix) (bool, error) {
	return ask(p.player, call{name: "compare commits", faults: ofRead, reach: local}, theLake, func(w *world) (bool, error) {
		return w.lakefs.Differ(context.Background(), repo, left, right, prefix)
	}, func(differ bool) uint64 { return hashOf(fmt.Sprint(differ)) })
}

func (p lakePort) Branches(_ context.Context, repo txn.Repository, prefix string) ([]txn.BranchHead, error) {
	return ask(p.player, call{name: "list branches", faults: ofRead}, theLake, func(w *world) ([]txn.BranchHead, error) {
		return w.lakefs.Branches(context.Background(), repo, prefix)
	}, func(branches []txn.BranchHead) (sum uint64) {
		for _, b := range branches {
			sum = sum*31 + hashOf(string(b.Name), string(b.Head))
		}
		return sum
	})
}

func (p lakePort) BranchPages(ctx context.Context, repo txn.Repository, prefix string) iter.Seq2[[]txn.BranchHead, error] {
	return func(yield func([]txn.BranchHead, error) bool) { yield(p.Branches(ctx, repo, prefix)) }
}

func (p lakePort) Repositories(context.Context) ([]txn.Repository, error) {
	return []txn.Repository{repository}, nil
}

// UploadLimit is none: the model's files have no size.
func (p lakePort) UploadLimit(context.Context, int64) (int64, error) { return 0, nil }

func (p lakePort) CreateBranch(_ context.Context, repo txn.Repository, name txn.Branch, source txn.CommitID) error {
	_, err := send(p.player, call{name: "create branch", faults: ofCommit}, theLake, func(w *world) (struct{}, error) {
		return struct{}{}, w.lakefs.CreateBranch(context.Background(), repo, name, source)
	}, nothing)
	return err
}

func (p lakePort) DeleteBranch(_ context.Context, repo txn.Repository, branch txn.Branch) error {
	_, err := send(p.player, call{name: "delete branch", faults: ofDelete}, theLake, func(w *world) (struct{}, error) {
		return struct{}{}, w.lakefs.DeleteBranch(context.Background(), repo, branch)
	}, nothing)
	return err
}

func (p lakePort) Objects(_ context.Context, repo txn.Repository, ref txn.CommitID, prefix txn.Prefix) iter.Seq2[txn.Object, error] {
	return func(yield func(txn.Object, error) bool) {
		objects, err := ask(p.player, call{name: "list objects", reach: instant}, theLake, func(w *world) (all []txn.Object, err error) {
			for o, err := range w.lakefs.Objects(context.Background(), repo, ref, prefix) {
				if err != nil {
					return nil, err
				}
				all = append(all, o)
			}
			return all, nil
		}, func(objects []txn.Object) uint64 { return hashOf(fmt.Sprint(objects)) })
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
		if err != nil {
			yield(txn.Object{}, err)
		}
	}
}

func (p lakePort) ReadObject(_ context.Context, repo txn.Repository, ref txn.CommitID, path string) (io.ReadCloser, error) {
	data, err := ask(p.player, call{name: "read object", reach: instant}, theLake, func(w *world) ([]byte, error) {
		reader, err := w.lakefs.ReadObject(context.Background(), repo, ref, path)
		if err != nil {
			return nil, err
		}
		defer reader.Close()
		return io.ReadAll(reader)
	}, func(data []byte) uint64 { return hashOf(string(data)) })
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// Upload and DeleteObjects write what nobody sees before it is committed.
func (p lakePort) Upload(_ context.Context, repo txn.Repository, branch txn.Branch, path string, content txn.Content) (txn.Object, error) {
	reader, err := content.Open()
	if err != nil {
		return txn.Object{}, err
	}
	defer reader.Close()
	data, err := io.ReadAll(reader)
	if err != nil {
		return txn.Object{}, err
	}
	return ask(p.player, call{name: "upload", reach: instant}, theLake, func(w *world) (txn.Object, error) {
		return w.lakefs.Upload(context.Background(), repo, branch, path, lakefstest.Text(string(data)))
	}, func(o txn.Object) uint64 { return hashOf(fmt.Sprint(o)) })
}

func (p lakePort) DeleteObjects(_ context.Context, repo txn.Repository, branch txn.Branch, paths []string) error {
	_, err := ask(p.player, call{name: "delete objects", reach: instant}, theLake, func(w *world) (struct{}, error) {
		return struct{}{}, w.lakefs.DeleteObjects(context.Background(), repo, branch, paths)
	}, nothing)
	return err
}

// Import is not in the model: to all that comes after it, what it staged is a
// staged commit like another.
func (p lakePort) Import(context.Context, txn.Repository, txn.Branch, txn.ImportSource, txn.Prefix, string, map[string]string) (txn.Commit, error) {
	return txn.Commit{}, errors.ErrUnsupported
}

func (p lakePort) CreateCommit(_ context.Context, repo txn.Repository, branch txn.Branch, message string, metadata map[string]string) (txn.Commit, error) {
	return send(p.player, call{name: "commit", faults: ofCommit}, theLake, func(w *world) (txn.Commit, error) {
		return w.lakefs.CreateCommit(context.Background(), repo, branch, message, metadata)
	}, commitDigest)
}

func (p lakePort) CommitTree(_ context.Context, repo txn.Repository, branch txn.Branch, tree txn.MetaRangeID, message string, metadata map[string]string) (txn.Commit, error) {
	return send(p.player, call{name: "commit tree", faults: ofCommit}, theLake, func(w *world) (txn.Commit, error) {
		return w.lakefs.CommitTree(context.Background(), repo, branch, tree, message, metadata)
	}, commitDigest)
}

// HookRuns are recorded before their commit lands.
func (p lakePort) HookRuns(_ context.Context, repo txn.Repository, id txn.CommitID) ([]txn.HookRun, error) {
	return ask(p.player, call{name: "read hook runs", reach: instant}, theLake, func(w *world) ([]txn.HookRun, error) {
		return w.lakefs.HookRuns(context.Background(), repo, id)
	}, func(runs []txn.HookRun) uint64 { return hashOf(fmt.Sprint(runs)) })
}

func (p lakePort) Merge(_ context.Context, merge txn.Merge) (txn.CommitID, error) {
	return send(p.player, call{name: "merge", faults: ofMerge}, theLake, func(w *world) (txn.CommitID, error) {
		return w.lakefs.Merge(context.Background(), merge)
	}, idDigest)
}

// conductorPort is the Conductor of one worker that takes one task.
type conductorPort struct {
	*player
	definition txn.TaskDefinition
	// turn says whether it may poll now: workers of a kind are alike, so they poll
	// in order.
	turn func(*state) bool
	// change makes the task that is handed out, beside what Conductor says of it.
	change func(txn.Task) txn.Task
	// attempt is what was polled.
	attempt txn.Attempt
	// current says what the latest read of the task showed.
	current bool
	// loud says that a stale attempt speaks on, which is a weakness.
	loud bool
}

func (p *conductorPort) Poll(_ context.Context, request txn.PollRequest) ([]txn.Task, error) {
	if p.polled {
		// One task is all that it takes.
		p.stop()
		return nil, nil
	}
	p.polled = true
	tasks, err := ask(p.player, call{name: "poll", ready: p.turn}, theConductor, func(w *world) ([]txn.Task, error) {
		return w.server.Poll(context.Background(), request)
	}, func(tasks []txn.Task) uint64 { return taskDigest(tasks[0]) })
	if err != nil || len(tasks) != 1 {
		return nil, err
	}
	task := tasks[0]
	p.attempt = txn.AttemptOf(task)
	if p.change != nil {
		task = p.change(task)
	}
	return []txn.Task{task}, nil
}

func (p *conductorPort) Task(_ context.Context, id txn.TaskID) (txn.Task, error) {
	c := call{name: "read task"}
	if id != p.attempt.Task {
		// The fence's reads are repeated until they succeed; this one is not.
		c = call{name: "read stage task", faults: ofRead}
	}
	task, err := ask(p.player, c, theConductor, func(w *world) (txn.Task, error) { return w.server.Task(context.Background(), id) }, taskDigest)
	if id == p.attempt.Task {
		p.current = err == nil && p.attempt.CurrentTask(task) == nil
	}
	return task, err
}

func (p *conductorPort) WorkflowStatus(_ context.Context, id txn.WorkflowID) (txn.WorkflowStatus, error) {
	return ask(p.player, call{name: "read workflow status"}, theConductor, func(w *world) (txn.WorkflowStatus, error) {
		return w.server.WorkflowStatus(context.Background(), id)
	}, func(s txn.WorkflowStatus) uint64 { return hashOf(string(s)) })
}

func (p *conductorPort) Workflow(_ context.Context, id txn.WorkflowID) (txn.Workflow, error) {
	return ask(p.player, call{name: "read workflow", faults: ofRead}, theConductor, func(w *world) (txn.Workflow, error) {
		return w.server.Workflow(context.Background(), id)
	}, func(w txn.Workflow) uint64 {
		sum := hashOf(string(w.Status))
		for _, t := range w.Tasks {
			sum = sum*31 + taskDigest(t)
		}
		return sum
	})
}

func (p *conductorPort) Update(_ context.Context, result txn.TaskResult) error {
	// The time that something took is no part of a state.
	delete(result.Output, "timings")
	attempt, fenced := p.attempt, p.current
	_, err := send(p.player, call{name: "update " + string(result.Status), faults: ofUpdate}, theConductor, func(w *world) (struct{}, error) {
		return struct{}{}, w.update(context.Background(), attempt, fenced, result)
	}, nothing)
	return err
}

// ExtendLease is never needed: no lease ends here.
func (p *conductorPort) ExtendLease(context.Context, txn.WorkflowID, txn.TaskID, txn.WorkerID) error {
	return nil
}

func (p *conductorPort) TaskDefinition(context.Context, txn.TaskType) (txn.TaskDefinition, error) {
	return p.definition, nil
}

func (p *conductorPort) Ping(context.Context) error { return nil }
