package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"perago/e2e/stack"
)

// A child of the bench is the program itself: here the binary of the tests.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == childFlag {
		main()
		return
	}
	os.Exit(m.Run())
}

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

// The scenario with a few files: each run has its figure, of all the files.
func TestMillion_PrintsTheMemoryOfEachRun(t *testing.T) {
	t.Parallel()
	if stack.Short(t) {
		return
	}
	servers := stack.StartLakeFS(t)
	// The children need the names of all servers and ask this one for nothing.
	servers.ConductorURL, servers.ConductorVersion = "http://127.0.0.1:1", "none"
	binaries, err := stack.Prefetch(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	b := &bench{
		out: &out, servers: servers, store: "local://", lakectl: binaries.Lakectl, dir: t.TempDir(), scale: 1, million: 300, millionLakectl: 20,
	}
	if b.lake, err = newLake(servers); err != nil {
		t.Fatal(err)
	}
	if err := million(t.Context(), b, "million"); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	wants := []string{
		`by=perago run=stage files=300 .* limit=256MiB`, `by=perago run=stage-changed files=300 .* limit=256MiB`,
		`by=perago run=checkout files=300 .* limit=256MiB`, `lakectl has 20 of the 300 files`,
		`by=lakectl run=commit files=20 `, `by=lakectl run=commit-changed files=20 `, `by=lakectl run=clone files=20 `,
	}
	if len(lines) != len(wants) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(wants), out.String())
	}
	for i, want := range wants {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d is %q, want %s", i+1, lines[i], want)
		}
	}
	left, err := os.ReadDir(b.dir)
	if err != nil || len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// The scenario with a file of 10 MiB and a limit below that: each run has its figure,
// where lakeFS signs URLs and where it does not.
func TestSixGiB_PrintsTheMemoryOfEachRun(t *testing.T) {
	t.Parallel()
	if stack.Short(t) {
		return
	}
	var out bytes.Buffer
	b := &bench{out: &out, scale: 600}
	// The children need the names of all servers and ask these for nothing.
	b.servers.ConductorURL, b.servers.ConductorVersion, b.servers.ImportDir = "http://127.0.0.1:1", "none", t.TempDir()
	if err := sixGiB(t.Context(), b, "six-gib"); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
	var want strings.Builder
	for _, signs := range []bool{true, false} {
		for _, run := range []string{"stage", "stage-unchanged", "checkout"} {
			fmt.Fprintf(&want, `bench six-gib peak=[0-9.]+MiB run=%s signs=%t bytes=10737418 took=[0-9.]+s limit=100MiB\n`, run, signs)
		}
	}
	if !regexp.MustCompile("^" + want.String() + "$").MatchString(out.String()) {
		t.Errorf("got\n%swant\n%s", out.String(), want.String())
	}
}

// Every run above the limit is named, and one at the limit is not.
func TestTooMuch_NamesEveryRunAboveTheLimit(t *testing.T) {
	t.Parallel()
	if err := tooMuch([]peakMemory{{"stage", millionLimit}, {"checkout", 1}}, millionLimit); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	err := tooMuch([]peakMemory{{"stage", millionLimit + kib}, {"stage-changed", 1}, {"checkout", 2 * millionLimit}}, millionLimit)
	want := "stage took 262145 KiB of memory, more than 262144 KiB\ncheckout took 524288 KiB of memory, more than 262144 KiB"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestMillionPath_Has75Characters(t *testing.T) {
	t.Parallel()
	for _, i := range []int{0, 999_999} {
		if path := millionPath(i); len(path) != 75 {
			t.Errorf("%s has %d characters", path, len(path))
		}
	}
}
