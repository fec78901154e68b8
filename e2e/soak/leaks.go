package main

import (
	"context"
	"slices"
	"time"

	"perago/e2e/fleet"
)

// leaks watches the workers that are never killed: what they hold must be as much
// at the end as at the beginning.
type leaks struct {
	*soak
	// samples are by worker, in the order of time.
	samples map[fleet.Worker][]fleet.Held
}

// What counts as a leak: half as much again, and more than what comes and goes with
// the load.
const (
	leakFactor      = 1.5
	leakGoroutines  = 30
	leakDescriptors = 30
	leakMemory      = 48 << 20
	// fewest is how many samples say something.
	fewest = 12
)

func (l *leaks) watch(ctx context.Context) {
	l.samples = map[fleet.Worker][]fleet.Held{}
	for pause(ctx, 5*time.Second) {
		for i, m := range l.members {
			if i%l.replicas != 0 {
				continue
			}
			// A worker that is suspended does not answer.
			if got, err := m.Held(ctx); err == nil {
				l.samples[m.Worker] = append(l.samples[m.Worker], got)
			}
		}
	}
}

// judge compares the median of the second quarter with that of the last: the first
// is when everything is made for the first time.
func (l *leaks) judge(v *verdict) {
	for _, w := range fleet.Workers() {
		all := l.samples[w]
		if len(all) < fewest || l.replicas == 1 {
			v.note("%s-worker: %d samples, too few to see a leak", w, len(all))
			continue
		}
		quarter := len(all) / 4
		early, late := all[quarter:2*quarter], all[3*quarter:]
		for _, of := range []struct {
			what   string
			unit   float64
			slack  float64
			figure func(fleet.Held) float64
		}{
			{"goroutines", 1, leakGoroutines, func(h fleet.Held) float64 { return h.Goroutines }},
			{"descriptors", 1, leakDescriptors, func(h fleet.Held) float64 { return h.Descriptors }},
			{"MiB", 1 << 20, leakMemory, func(h fleet.Held) float64 { return h.Memory }},
		} {
			before, after := median(early, of.figure), median(late, of.figure)
			v.note("%s-worker: %.0f %s, at the end %.0f", w, before/of.unit, of.what, after/of.unit)
			if leaked(before, after, of.slack) {
				v.report("violation", "%s-worker leaks: %.0f %s, at the end %.0f", w, before/of.unit, of.what, after/of.unit)
			}
		}
	}
}

func leaked(before, after, slack float64) bool {
	return after > before*leakFactor && after > before+slack
}

func median(samples []fleet.Held, figure func(fleet.Held) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, figure(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
