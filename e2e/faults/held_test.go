package main

import (
	"math/rand/v2"
	"net/http"
	"slices"
	"testing"

	"perago/e2e/fleet"
	"perago/pkg/fault"
)

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
	before := map[worker]fleet.Held{}
	for _, w := range workers {
		before[w] = heldBy(t, l.fleet[w])
	}
	series(long)
	for _, w := range workers {
		// What the last chain has begun may still be ending.
		var after fleet.Held
		for range 40 {
			after = heldBy(t, l.fleet[w])
			if after.Descriptors <= before[w].Descriptors && after.Goroutines <= before[w].Goroutines {
				break
			}
			if err := l.fleet[w].idle(ctx); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%s-worker: %+v after %d chains, %+v after %d more", w, before[w], warm, after, long)
		if after.Descriptors > before[w].Descriptors+slack || after.Goroutines > before[w].Goroutines+slack {
			t.Errorf("%s-worker held %+v, and after %d chains %+v", w, before[w], long, after)
		}
	}
}

func heldBy(t *testing.T, m *member) fleet.Held {
	t.Helper()
	held, err := m.Held(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return held
}
