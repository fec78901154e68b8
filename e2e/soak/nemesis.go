package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"perago/e2e/fleet"
	"perago/e2e/stack"
	"perago/pkg/fault"
)

// nemesis breaks what it can, one thing after the other, and what it has broken it
// mends. The first process of each worker is spared the kills, so that a leak has
// the time to show.
type nemesis struct {
	*soak
	random *rand.Rand

	injected counter
	mu       sync.Mutex
	// armed are the faults that have met no request yet, by their name.
	armed map[*fault.Hold]string
	// problems are what did not come back.
	problems []string
}

// Of restarts the servers get this much rest, for nothing is published meanwhile.
const betweenRestarts = 50 * time.Second

func (n *nemesis) run(ctx context.Context) {
	var mending sync.WaitGroup
	defer mending.Wait()
	busy := map[*fleet.Member]bool{}
	restarted := time.Now()
	for pause(ctx, time.Duration(100+n.random.IntN(700))*time.Millisecond) {
		if len(n.servers.restarted) > 0 && time.Since(restarted) > betweenRestarts {
			n.restart(ctx, n.servers.restarted[n.random.IntN(len(n.servers.restarted))])
			restarted = time.Now()
			continue
		}
		if n.soft {
			// What the fence is for, and nothing else: when it lands, the next attempt
			// has published.
			for _, m := range n.members {
				if m.Worker == fleet.Publish && !n.waits() {
					n.strike(m, fault.Late(6*time.Second))
				}
			}
			pause(ctx, 2*time.Second)
			continue
		}
		i := n.random.IntN(len(n.members))
		m, spared := n.members[i], i%n.replicas == 0 && n.replicas > 1
		n.mu.Lock()
		taken := busy[m]
		n.mu.Unlock()
		if taken {
			continue
		}
		// A worker that one thing happens to is left alone by the next.
		occupy := func(mend func()) {
			n.mu.Lock()
			busy[m] = true
			n.mu.Unlock()
			mending.Go(func() {
				mend()
				n.mu.Lock()
				defer n.mu.Unlock()
				busy[m] = false
			})
		}
		away := time.Duration(n.random.IntN(3000)) * time.Millisecond
		switch fate := n.random.IntN(100); {
		case fate < 15 && !spared:
			if n.done("kill", m.Kill()) {
				occupy(func() { pause(ctx, away); n.done("", m.Start()) })
			}
		case fate < 20 && !spared:
			occupy(func() {
				if n.done("stop in order", m.Stop(40*time.Second)) {
					pause(ctx, away)
					n.done("", m.Start())
				}
			})
		case fate < 35:
			// Past its lease of 8 s about half of the times.
			frozen := time.Duration(1+n.random.IntN(15)) * time.Second
			if n.done("suspend", m.Signal(syscall.SIGSTOP)) {
				occupy(func() { pause(ctx, frozen); n.done("", m.Signal(syscall.SIGCONT)) })
			}
		default:
			n.arm(m)
		}
	}
}

// unknowing are the faults that leave a worker without an answer, while the server
// acts: at once, or when the next attempt is at work.
var unknowing = []fault.Fault{fault.Lost(), fault.Late(time.Second), fault.Late(4 * time.Second), fault.Late(7 * time.Second)}

// arm aims a fault at one of the next requests of a worker to a server, whatever it
// is; of a publish worker most often at its next merge, which is where it hurts.
func (n *nemesis) arm(m *fleet.Member) {
	if m.Worker == fleet.Publish && n.random.IntN(3) > 0 {
		n.strike(m, unknowing[n.random.IntN(len(unknowing))])
		return
	}
	all := fault.All()
	proxy, to := m.Conductor, "conductor"
	if n.random.IntN(2) == 0 {
		proxy, to = m.LakeFS, "lakefs"
	}
	n.aim(m, proxy, to, fault.Match{Nth: 1 + n.random.IntN(3)}, all[n.random.IntN(len(all))])
}

// strike is a fault for the next merge of a publish worker.
func (n *nemesis) strike(m *fleet.Member, f fault.Fault) {
	n.aim(m, m.LakeFS, "a merge", fault.Match{Method: http.MethodPost, Path: "/merge/"}, f)
}

func (n *nemesis) aim(m *fleet.Member, proxy *fault.Proxy, to string, match fault.Match, f fault.Fault) {
	hold := proxy.Arm(match, f)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.armed[hold] = fmt.Sprintf("%s to %s of %s", f.Name, to, m.LogPath)
	n.injected.add("fault " + f.Name)
}

// restart ends a server, by a crash or in order, and starts it again.
func (n *nemesis) restart(ctx context.Context, server *stack.Server) {
	how := "stop"
	if n.random.IntN(2) == 0 {
		how = "kill"
		server.Kill()
	} else if err := server.Stop(); !n.done("", err) {
		return
	}
	pause(ctx, time.Duration(n.random.IntN(3000))*time.Millisecond)
	n.done(how+" "+server.Name, server.Start(context.WithoutCancel(ctx)))
}

// done counts what was done, or writes down that it was not.
func (n *nemesis) done(what string, err error) bool {
	if err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.problems = append(n.problems, err.Error())
		return false
	}
	if what != "" {
		n.injected.add(what)
	}
	return true
}

// waits reports whether a fault is armed that has met no request yet.
func (n *nemesis) waits() bool { return len(n.unmet()) > 0 }

func (n *nemesis) unmet() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for hold := range n.armed {
		select {
		case <-hold.Arrived():
			delete(n.armed, hold)
		default:
		}
	}
	return slices.Sorted(maps.Values(n.armed))
}

func (n *nemesis) judge(v *verdict) {
	v.injected = &n.injected
	for _, problem := range n.problems {
		v.report("violation", "%s", problem)
	}
	for _, name := range n.unmet() {
		v.report("violation", "a fault never met its request: %s", name)
	}
}
