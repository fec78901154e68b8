package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// prepare writes a data set with one folder for each of the days it is given:
//
//	{"days": ["2026-03-01", "2026-03-02"], "revision": 1}
//
// The files of a day change only with the revision, so a second run with other
// days adds, keeps and removes some; days.json changes.
func prepare(dir string, input map[string]any) error {
	var in struct {
		Days     []string `json:"days"`
		Revision int      `json:"revision"`
	}
	if err := decode(input, &in); err != nil {
		return err
	}
	if len(in.Days) == 0 {
		return errors.New(`prepare needs the input "days", a list of dates`)
	}
	for _, day := range in.Days {
		var rows strings.Builder
		rows.WriteString("day,hour,visits\n")
		for hour := range 24 {
			fmt.Fprintf(&rows, "%s,%d,%d\n", day, hour, (10*hour+in.Revision)%17)
		}
		if err := writeFile(dir, "day="+day+"/visits.csv", rows.String()); err != nil {
			return err
		}
	}
	return writeJSON(dir, "days.json", in.Days)
}

// train writes a model and its metrics:
//
//	{"epochs": 3, "revision": 1}
//
// One checkpoint for each epoch, so fewer epochs than before remove some. With
// "data", the directory of a checkout of what prepare wrote, the metrics say how
// many days it holds.
func train(dir string, input map[string]any) error {
	var in struct {
		Data     string `json:"data"`
		Epochs   int    `json:"epochs"`
		Revision int    `json:"revision"`
	}
	if err := decode(input, &in); err != nil {
		return err
	}
	if in.Epochs < 1 {
		return errors.New(`train needs the input "epochs", a number from 1`)
	}
	loss := 1.0
	for epoch := range in.Epochs {
		loss /= 2
		name := fmt.Sprintf("checkpoints/epoch-%d.json", epoch+1)
		if err := writeJSON(dir, name, map[string]any{"weights": []float64{loss, -loss}}); err != nil {
			return err
		}
	}
	if err := writeJSON(dir, "model.json", map[string]any{"weights": []float64{loss, -loss}}); err != nil {
		return err
	}
	metrics := map[string]any{"epochs": in.Epochs, "loss": loss, "revision": in.Revision}
	if in.Data != "" {
		days, err := filepath.Glob(filepath.Join(in.Data, "day=*", "visits.csv"))
		if err != nil {
			return err
		}
		metrics["days"] = len(days)
	}
	return writeJSON(dir, "metrics.json", metrics)
}

func decode(input map[string]any, to any) error {
	b, err := json.Marshal(input)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, to); err != nil {
		return fmt.Errorf("task input: %w", err)
	}
	return nil
}

func writeJSON(dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(dir, name, string(b)+"\n")
}

// writeFile refuses a name that leads out of dir: parts of names come from the
// task's input.
func writeFile(dir, name, content string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is not a name inside the step's directory", name)
	}
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o644)
}
