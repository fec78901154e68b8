package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/conductor-sdk/conductor-go/sdk/model"
)

func TestSteps(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		write writeFiles
		input map[string]any
		files []string
		err   string
	}{
		{name: "prepare", write: prepare, input: map[string]any{"days": []string{"2026-03-01", "2026-03-02"}},
			files: []string{"day=2026-03-01/visits.csv", "day=2026-03-02/visits.csv", "days.json"}},
		{name: "prepare without days", write: prepare, err: `prepare needs the input "days"`},
		{name: "prepare with a day that leads out", write: prepare,
			input: map[string]any{"days": []string{"x/../../../y"}}, err: "is not a name inside"},
		{name: "train", write: train, input: map[string]any{"epochs": 2},
			files: []string{"checkpoints/epoch-1.json", "checkpoints/epoch-2.json", "metrics.json", "model.json"}},
		{name: "train without epochs", write: train, err: `train needs the input "epochs"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &worker{root: t.TempDir()}
			task := model.Task{WorkflowInstanceId: "w", TaskId: "t", InputData: tt.input}
			dir, err := w.writeDirectory(task, tt.write)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %v, want %q", err, tt.err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if want := filepath.Join(w.root, "w", "t"); dir != want {
				t.Errorf("directory %s, want %s", dir, want)
			}
			var files []string
			err = filepath.WalkDir(w.root, func(path string, e fs.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					name, _ := filepath.Rel(filepath.Join(w.root, "w", "t"), path)
					files = append(files, filepath.ToSlash(name))
				}
				return err
			})
			if err != nil || !slices.Equal(files, tt.files) {
				t.Errorf("files %v, %v, want %v", files, err, tt.files)
			}
		})
	}
}

// Conductor's rerun gives the same task out again: its files replace the old.
func TestWriteDirectoryAgain(t *testing.T) {
	t.Parallel()
	w := &worker{root: t.TempDir()}
	task := model.Task{WorkflowInstanceId: "w", TaskId: "t"}
	var dir string
	for _, epochs := range []int{3, 1} {
		task.InputData = map[string]any{"epochs": epochs}
		var err error
		if dir, err = w.writeDirectory(task, train); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(filepath.Join(dir, "checkpoints"))
	if err != nil || len(left) != 1 {
		t.Errorf("checkpoints %v, %v, want one", left, err)
	}
}
