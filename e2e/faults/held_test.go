package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"perago/pkg/fault"
)

// held is what a worker process holds.
type held struct{ descriptors, goroutines int }

// Workers that live for a long series of tasks, every second one with a fault in
// it, hold at the end what they held after the first ones.
func TestWorkersHoldNoMoreAfterManyTasks(t *testing.T) {
	t.Parallel()
	l := testLane(t)
	ctx := t.Context()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	var requests []request
	for _, of := range flows {
		found, err := l.clean(ctx, of)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, found...)
	}
	// A poll that is lost takes a response timeout, and holds nothing.
	requests = slices.DeleteFunc(requests, request.polls)
	faults := []fault.Fault{fault.Refused(), fault.Dropped(), fault.Lost(), fault.Cut(), fault.Garbled(), fault.Page(), fault.Status(http.StatusServiceUnavailable, 0)}
	series := func(chains int) {
		t.Helper()
		for i := range chains {
			if i%2 == 0 {
				if _, err := l.clean(ctx, plain); err != nil {
					t.Fatal(err)
				}
				continue
			}
			p := planned{request: requests[random.IntN(len(requests))], fault: faults[random.IntN(len(faults))]}
			got, err := l.run(ctx, p)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.problems) > 0 {
				t.Fatalf("%s: %v\n%s", p, got.problems, got.log)
			}
		}
	}

	const warm, long = 6, 40
	// Connections that wait for a next request may have become more or fewer. What
	// is held for good by every other chain is half of them.
	const slack = long / 4
	series(warm)
	before := map[worker]held{}
	for _, w := range workers {
		before[w] = heldBy(t, l.fleet[w])
	}
	series(long)
	for _, w := range workers {
		// What the last chain has begun may still be ending.
		var after held
		for range 40 {
			after = heldBy(t, l.fleet[w])
			if after.descriptors <= before[w].descriptors && after.goroutines <= before[w].goroutines {
				break
			}
			if err := l.fleet[w].idle(ctx); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s-worker: %+v after %d chains, %+v after %d more", w, before[w], warm, after, long)
		if after.descriptors > before[w].descriptors+slack || after.goroutines > before[w].goroutines+slack {
			t.Errorf("%s-worker held %+v, and after %d chains %+v", w, before[w], long, after)
		}
	}
}

// heldBy asks the worker's own metrics.
func heldBy(t *testing.T, m *member) held {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + addressOf(t, m) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	values := map[string]int{}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			values[name] = int(value)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	now := held{values["process_open_fds"], values["go_goroutines"]}
	if now.descriptors == 0 || now.goroutines == 0 {
		t.Fatalf("the metrics say %+v", now)
	}
	return now
}

// addressOf is where the worker says that it listens.
func addressOf(t *testing.T, m *member) string {
	t.Helper()
	raw, err := os.ReadFile(m.logPath)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var started struct {
			Message string `json:"msg"`
			Address string `json:"http_addr"`
		}
		if json.Unmarshal([]byte(line), &started) == nil && started.Message == "started" {
			return started.Address
		}
	}
	t.Fatal(fmt.Errorf("the log %s does not say where the worker listens", m.logPath))
	return ""
}
