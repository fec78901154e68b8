package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"perago/e2e/fleet"
	"perago/e2e/secrets"
)

// listened is how many of the last workflows are kept as Conductor shows them.
const listened = 40

// listen keeps what is said elsewhere than in the logs: metrics, readiness, workflows
// with the outputs and reasons of their tasks, and the page of perago explain.
func (s *soak) listen(ctx context.Context) error {
	keep := func(name string, content []byte) error {
		return os.WriteFile(filepath.Join(s.said(), name), content, 0o644)
	}
	for i, m := range s.members {
		for _, path := range []string{"/metrics", "/readyz"} {
			var content []byte
			// It may have been started a moment ago.
			if err := wait(ctx, time.Minute, 100*time.Millisecond, func() (bool, error) {
				var err error
				content, err = m.Get(ctx, path)
				return err == nil, nil
			}); err != nil {
				return fmt.Errorf("%s of %s-worker: %w; its log is %s", path, m.Worker, err, m.LogPath)
			}
			if err := keep(fmt.Sprintf("%s-%d.%s", m.Worker, i%s.replicas, path[1:]), content); err != nil {
				return err
			}
		}
	}
	ids := s.record.workflows
	for i, id := range ids[max(0, len(ids)-listened):] {
		answer, err := s.operator.Do(ctx, http.MethodGet, "/workflow/"+string(id), nil)
		if err != nil {
			return err
		}
		if err := keep(fmt.Sprintf("workflow-%d.json", i), answer.Body); err != nil {
			return err
		}
		if i > 0 {
			continue
		}
		command := exec.CommandContext(ctx, filepath.Join(s.binaries, "perago"), "explain", string(id), "--html", filepath.Join(s.said(), "explain.html"))
		command.Env = append(fleet.Env(s.servers.Servers), s.env()...)
		out, err := command.CombinedOutput()
		if err != nil {
			return fmt.Errorf("perago explain: %w\n%s", err, out)
		}
		if err := keep("explain.text", out); err != nil {
			return err
		}
	}
	return nil
}

// search looks for the keys to lakeFS in all that was said, and for the name of the
// run, which has to be found in each kind of it.
func (s *soak) search(v *verdict) error {
	hits, err := secrets.Search(s.said(), []string{s.servers.SecretAccessKey, s.servers.AccessKeyID, s.name})
	if err != nil {
		return err
	}
	const control = 2
	found := map[string]bool{}
	for _, hit := range hits {
		if hit.Secret != control {
			v.report(violation, "a key to lakeFS is in what was said: %s", hit)
			continue
		}
		found[filepath.Ext(hit.File)] = true
	}
	files, err := os.ReadDir(s.said())
	if err != nil {
		return err
	}
	var kinds []string
	for _, file := range files {
		if kind := filepath.Ext(file.Name()); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range kinds {
		if !found[kind] {
			v.report(violation, "the search for keys finds not even the name of the run in what ends in %s", kind)
		}
	}
	v.note("the keys to lakeFS were looked for in %d files (%s)", len(files), strings.Join(kinds, " "))
	return nil
}
