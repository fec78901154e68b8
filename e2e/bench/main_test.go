package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"perago/e2e/stack"
)

// Everybody runs once in each round, in another order each time, and a line has
// the medians, the ratio of them and each round's.
func TestCompare(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	b := &bench{out: &out, rounds: 3, servers: stack.Servers{BlocksDir: t.TempDir()}}
	var order []string
	runs := func(name string, goal float64, times ...time.Duration) contender {
		return contender{name: name, goal: goal, run: func(context.Context) (time.Duration, error) {
			order = append(order, name)
			took := times[0]
			times = times[1:]
			return took, nil
		}}
	}
	err := b.compare(t.Context(), "demo", 100, "/s", runs("ours", 0, 2*time.Second, time.Second, 4*time.Second),
		runs("a peer", 1.5, 4*time.Second, 4*time.Second, 4*time.Second), runs("other", 0, time.Second, time.Second, time.Second))
	if err != nil {
		t.Fatal(err)
	}
	want := "bench demo ratio=2.00 ours=50.0/s other=25.0/s peer=a_peer n=3 spread=1.00-4.00 goal=1.50\n" +
		"bench demo ratio=0.50 ours=50.0/s other=100.0/s peer=other n=3 spread=0.25-1.00\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if got := strings.Join(order, ","); got != "ours,a peer,other,a peer,other,ours,other,ours,a peer" {
		t.Errorf("the order was %s", got)
	}

	broken := errors.New("broken")
	fails := contender{name: "peer", run: func(context.Context) (time.Duration, error) { return 0, broken }}
	if err := b.compare(t.Context(), "demo", 1, "/s", runs("ours", 0, 1, 1, 1), fails); !errors.Is(err, broken) {
		t.Errorf("a contender that fails gives %v", err)
	}
}

func TestBestIsTheFastest(t *testing.T) {
	t.Parallel()
	b := &bench{rounds: 1, servers: stack.Servers{BlocksDir: t.TempDir()}}
	takes := func(name string, took time.Duration) contender {
		return contender{name: name, run: func(context.Context) (time.Duration, error) { return took, nil }}
	}
	best, err := b.best(t.Context(), "floor", .9, takes("8", 3), takes("16", 2), takes("32", 4))
	if err != nil || best.name != "floor at 16" || best.goal != .9 {
		t.Errorf("%+v, %v", best, err)
	}
}
