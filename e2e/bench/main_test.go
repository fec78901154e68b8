package main

import (
	"bytes"
	"context"
	"errors"
	"os"
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
	lines := strings.SplitAfter(out.String(), "\n")
	for i, name := range []string{"ours", "a_peer", "other"} {
		// The client is the process of the tests, which does what it does.
		if want := "bench demo cpu=" + name + " took=0.0"; !strings.HasPrefix(lines[i], want) || !strings.Contains(lines[i], " lakefs=0.00s conductor=0.00s client=") {
			t.Errorf("got %swant %s...", lines[i], want)
		}
	}
	figures := strings.Join(lines[3:], "")
	want := "bench demo ratio=2.00 ours=50.0/s other=25.0/s peer=a_peer n=3 spread=1.00-4.00 goal=1.50\n" +
		"bench demo ratio=0.50 ours=50.0/s other=100.0/s peer=other n=3 spread=0.25-1.00\n"
	if figures != want {
		t.Errorf("got\n%swant\n%s", figures, want)
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

// The processor time is that of the processes: of this one here, twice.
func TestUsageIsProcessorTime(t *testing.T) {
	t.Parallel()
	p := processes{lakefs: []int{os.Getpid()}}
	before, err := p.usage()
	if err != nil {
		t.Fatal(err)
	}
	// Until the kernel's clock of hundredths of a second has seen some.
	var used usage
	for deadline := time.Now().Add(20 * time.Second); used.lakefs < .1; {
		after, err := p.usage()
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", used, err)
		}
		used = after.since(before)
	}
	if used.client < used.lakefs-.05 || used.took < used.lakefs/64 || used.conductor != 0 {
		t.Errorf("%+v: the same process is both lakeFS and the client", used)
	}
	if got, want := describe([]usage{{1, 2, 3, 4}, {5, 6, 7, 8}, {0, 0, 0, 0}}), "took=1.00s lakefs=2.00s conductor=3.00s client=4.00s"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if _, err := (processes{workers: []int{-1}}).usage(); err == nil {
		t.Error("a process that is not there has used something")
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
