// Command user-worker is an example of a worker of yours: it runs the task
// types prepare and train and knows nothing of lakeFS. What it has to do so
// that the perago_stage task after it finds its files:
//
//  1. write them below $PERAGO_WORKSPACE_ROOT/<workflow id>/<task id>/, on a
//     file system that the stage worker sees under the same path;
//  2. have all of them there before it completes the task;
//  3. complete the task with the output {"directory": "<that directory>"}.
//
// It reads CONDUCTOR_SERVER_URL, CONDUCTOR_AUTH_KEY, CONDUCTOR_AUTH_SECRET and
// PERAGO_WORKSPACE_ROOT. Copy it and replace prepare and train.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/antihax/optional"
	"github.com/conductor-sdk/conductor-go/sdk/client"
	"github.com/conductor-sdk/conductor-go/sdk/model"
	"github.com/conductor-sdk/conductor-go/sdk/settings"
)

func main() {
	prepareType := flag.String("prepare", "prepare", "the `task type` that writes the data set")
	trainType := flag.String("train", "train", "the `task type` that writes the model")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	w, err := newWorker()
	if err != nil {
		log.Print(err)
		os.Exit(2)
	}
	var loops sync.WaitGroup
	loops.Go(func() { w.poll(ctx, *prepareType, prepare) })
	loops.Go(func() { w.poll(ctx, *trainType, train) })
	log.Printf("polling %s and %s, files go below %s", *prepareType, *trainType, w.root)
	loops.Wait()
}

type worker struct {
	tasks client.TaskClient
	id    string
	root  string
}

// writeFiles is your code: it writes the step's files into dir.
type writeFiles func(dir string, input map[string]any) error

func newWorker() (*worker, error) {
	server, root := os.Getenv("CONDUCTOR_SERVER_URL"), os.Getenv("PERAGO_WORKSPACE_ROOT")
	if server == "" || !filepath.IsAbs(root) {
		return nil, errors.New("set CONDUCTOR_SERVER_URL, and PERAGO_WORKSPACE_ROOT to an absolute path")
	}
	server = strings.TrimSuffix(strings.TrimSuffix(server, "/"), "/api") + "/api"
	api := client.NewAPIClient(
		settings.NewAuthenticationSettings(os.Getenv("CONDUCTOR_AUTH_KEY"), os.Getenv("CONDUCTOR_AUTH_SECRET")),
		settings.NewHttpSettings(server))
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	return &worker{
		tasks: client.NewTaskClient(api),
		id:    fmt.Sprintf("user-worker-%s-%d", host, os.Getpid()),
		root:  root,
	}, nil
}

// poll runs one task at a time until the context ends; a task that has begun
// is finished.
func (w *worker) poll(ctx context.Context, taskType string, write writeFiles) {
	for ctx.Err() == nil {
		task, _, err := w.tasks.Poll(ctx, taskType, &client.TaskResourceApiPollOpts{Workerid: optional.NewString(w.id)})
		switch {
		case ctx.Err() != nil:
		case err != nil:
			log.Printf("poll %s: %v", taskType, err)
			pause(ctx, time.Second)
		case task.TaskId == "": // nothing to do
			pause(ctx, 100*time.Millisecond)
		default:
			w.run(context.WithoutCancel(ctx), task, write)
		}
	}
}

func (w *worker) run(ctx context.Context, task model.Task, write writeFiles) {
	result := &model.TaskResult{
		WorkflowInstanceId: task.WorkflowInstanceId,
		TaskId:             task.TaskId,
		WorkerId:           w.id,
	}
	dir, err := w.writeDirectory(task, write)
	if err != nil {
		result.Status = model.FailedTask
		result.ReasonForIncompletion = err.Error()
	} else {
		result.Status = model.CompletedTask
		result.OutputData = map[string]any{"directory": dir}
	}
	log.Printf("task %s %s of workflow %s: %s %s", task.TaskDefName, task.TaskId,
		task.WorkflowInstanceId, result.Status, result.ReasonForIncompletion)

	// A result that does not arrive costs a response timeout and a retry of
	// the task, so it is worth some tries.
	for try := 1; ; try++ {
		_, _, err := w.tasks.UpdateTask(ctx, result)
		if err == nil {
			return
		}
		log.Printf("update task %s: %v", task.TaskId, err)
		if try == 5 {
			return
		}
		pause(ctx, time.Duration(try)*time.Second)
	}
}

// writeDirectory has the files appear all at once, under the name of the task,
// so that nobody takes the leavings of a broken attempt for a result.
func (w *worker) writeDirectory(task model.Task, write writeFiles) (string, error) {
	dir := filepath.Join(w.root, task.WorkflowInstanceId, task.TaskId)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), task.TaskId+".tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil { // the stage worker may run as another user
		return "", err
	}
	if err := write(tmp, task.InputData); err != nil {
		return "", err
	}
	// Conductor's rerun gives the same task out again.
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
