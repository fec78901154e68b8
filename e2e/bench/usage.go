package main

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// processes are those that work for the contenders, by their ids.
type processes struct {
	// lakefs is the server and that of its objects, where it has one.
	lakefs, conductor []int
	// workers are the clients that outlive one run.
	workers []int
}

// usage is processor time in seconds.
type usage struct{ took, lakefs, conductor, client float64 }

// usage is what they and all children that have ended used so far.
func (p processes) usage() (usage, error) {
	u := usage{took: time.Duration(time.Now().UnixNano()).Seconds()}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var r syscall.Rusage
		if err := syscall.Getrusage(who, &r); err != nil {
			return usage{}, err
		}
		u.client += (time.Duration(r.Utime.Nano()) + time.Duration(r.Stime.Nano())).Seconds()
	}
	for _, group := range []struct {
		pids []int
		sum  *float64
	}{{p.lakefs, &u.lakefs}, {p.conductor, &u.conductor}, {p.workers, &u.client}} {
		for _, pid := range group.pids {
			process, err := procfs.NewProc(pid)
			if err != nil {
				return usage{}, err
			}
			stat, err := process.Stat()
			if err != nil {
				return usage{}, err
			}
			*group.sum += stat.CPUTime()
		}
	}
	return u, nil
}

func (u usage) since(before usage) usage {
	return usage{u.took - before.took, u.lakefs - before.lakefs, u.conductor - before.conductor, u.client - before.client}
}

// describe gives the medians.
func describe(all []usage) string {
	of := func(figure func(usage) float64) float64 {
		var figures []float64
		for _, u := range all {
			figures = append(figures, figure(u))
		}
		slices.Sort(figures)
		return figures[len(figures)/2]
	}
	return fmt.Sprintf("took=%.2fs lakefs=%.2fs conductor=%.2fs client=%.2fs",
		of(func(u usage) float64 { return u.took }), of(func(u usage) float64 { return u.lakefs }),
		of(func(u usage) float64 { return u.conductor }), of(func(u usage) float64 { return u.client }))
}
