package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"perago/e2e/fleet"
)

// leaks watches the workers that are never killed: what they hold must be as much
// at the end as at the beginning.
type leaks struct {
	*soak
	// samples are by worker, in the order of time.
	samples map[fleet.Worker][]sample
}

// sample is what a process holds at one moment.
type sample struct{ goroutines, descriptors, memory float64 }

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
	l.samples = map[fleet.Worker][]sample{}
	for pause(ctx, 5*time.Second) {
		for i, m := range l.members {
			if i%l.replicas != 0 {
				continue
			}
			// A worker that is suspended does not answer.
			if got, err := take(ctx, m); err == nil {
				l.samples[m.Worker] = append(l.samples[m.Worker], got)
			}
		}
	}
}

func take(ctx context.Context, m *fleet.Member) (sample, error) {
	address, err := m.HTTPAddress()
	if err != nil {
		return sample{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return sample{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return sample{}, err
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		return sample{}, err
	}
	var got sample
	for name, into := range map[string]*float64{
		"go_goroutines": &got.goroutines, "process_open_fds": &got.descriptors, "process_resident_memory_bytes": &got.memory,
	} {
		family := families[name]
		if family == nil || len(family.Metric) != 1 {
			return sample{}, fmt.Errorf("no %s", name)
		}
		*into = family.Metric[0].GetGauge().GetValue()
	}
	return got, nil
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
			figure func(sample) float64
		}{
			{"goroutines", 1, leakGoroutines, func(s sample) float64 { return s.goroutines }},
			{"descriptors", 1, leakDescriptors, func(s sample) float64 { return s.descriptors }},
			{"MiB", 1 << 20, leakMemory, func(s sample) float64 { return s.memory }},
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

func median(samples []sample, figure func(sample) float64) float64 {
	var all []float64
	for _, s := range samples {
		all = append(all, figure(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
