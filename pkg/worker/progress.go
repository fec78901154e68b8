package worker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"perago/pkg/telemetry"
	"perago/pkg/txn"
)

// TaskLog is the lines that Conductor shows beside a task.
type TaskLog interface {
	// LogTask adds a line. No error does not mean that anybody will read it:
	// without an index the server drops it.
	LogTask(ctx context.Context, task txn.TaskID, line string) error
}

// phase is a part of an attempt's work. Whoever works counts, from any number of
// goroutines, and whoever reports reads.
type phase struct {
	name  string
	began time.Time

	objects, objectsTotal atomic.Int64
	bytes, bytesTotal     atomic.Int64
}

// Expect says how much there is to do in the phase that began last; 0 is not
// known. done adds to what has been done of it. It only counts, so that it may be
// called for each piece that is read, from any goroutine. Bytes below 0 take back
// those of a try that is repeated.
func (a *Attempt) Expect(objects int, bytes int64) (done func(objects int, bytes int64)) {
	current := a.phase.Load()
	if current == nil {
		return func(int, int64) {}
	}
	current.objectsTotal.Store(int64(objects))
	current.bytesTotal.Store(bytes)
	count := a.metrics.Progress(a.Task.Type, current.name)
	return func(objects int, bytes int64) {
		current.objects.Add(int64(objects))
		current.bytes.Add(bytes)
		count(objects, bytes)
	}
}

// progress is how far a phase was at a moment. A total of 0 is not known.
type progress struct {
	of *phase
	at time.Time

	objects, objectsTotal int64
	bytes, bytesTotal     int64
	// The rates are of the time since the report before.
	objectsPerSecond, bytesPerSecond int64
}

// progressSince is how far the attempt is now; false between two phases.
func (a *Attempt) progressSince(before progress) (now progress, ok bool) {
	current := a.phase.Load()
	if current == nil {
		return progress{}, false
	}
	now = progress{
		of: current, at: time.Now(),
		objects: current.objects.Load(), objectsTotal: current.objectsTotal.Load(),
		bytes: current.bytes.Load(), bytesTotal: current.bytesTotal.Load(),
	}
	if before.of != current {
		before = progress{at: current.began}
	}
	if seconds := now.at.Sub(before.at).Seconds(); seconds > 0 {
		// What was taken back meanwhile is no rate.
		perSecond := func(n int64) int64 { return int64(math.Round(max(float64(n), 0) / seconds)) }
		now.objectsPerSecond, now.bytesPerSecond = perSecond(now.objects-before.objects), perSecond(now.bytes-before.bytes)
	}
	return now, true
}

// attributes are those of the log's line; a total that is not known has none.
func (p progress) attributes() []any {
	all := []any{
		slog.String(telemetry.KeyPhase, p.of.name), slog.Duration(telemetry.KeyTook, p.at.Sub(p.of.began)),
		slog.Int64(telemetry.KeyObjects, p.objects), slog.Int64(telemetry.KeyObjectsPerSec, p.objectsPerSecond),
		slog.Int64(telemetry.KeyBytes, p.bytes), slog.Int64(telemetry.KeyBytesPerSec, p.bytesPerSecond),
	}
	if p.objectsTotal > 0 {
		all = append(all, slog.Int64(telemetry.KeyObjectsTotal, p.objectsTotal))
	}
	if p.bytesTotal > 0 {
		all = append(all, slog.Int64(telemetry.KeyBytesTotal, p.bytesTotal))
	}
	return all
}

// String is a line for people.
func (p progress) String() string {
	var line strings.Builder
	fmt.Fprintf(&line, "%s for %s", p.of.name, p.at.Sub(p.of.began).Round(time.Second))
	part := func(done, total int64, text func(int64) string, unit string) {
		switch {
		case total > 0:
			fmt.Fprintf(&line, ", %s of %s%s", text(done), text(total), unit)
		case done > 0:
			fmt.Fprintf(&line, ", %s%s", text(done), unit)
		}
	}
	part(p.objects, p.objectsTotal, func(n int64) string { return fmt.Sprint(n) }, " objects")
	part(p.bytes, p.bytesTotal, telemetry.Size, "")
	switch {
	case p.bytesPerSecond > 0:
		fmt.Fprintf(&line, ", %s/s", telemetry.Size(p.bytesPerSecond))
	case p.objectsPerSecond > 0:
		fmt.Fprintf(&line, ", %d objects/s", p.objectsPerSecond)
	}
	if left := p.left(); left > 0 {
		fmt.Fprintf(&line, ", about %s left", left)
	}
	return line.String()
}

// left is about how long the phase goes on at the rates of now; 0 is not known.
// Small objects are bound by their number and large ones by their bytes, so it is
// the later of the two.
func (p progress) left() time.Duration {
	seconds := 0.0
	for _, one := range []struct{ left, perSecond int64 }{
		{p.objectsTotal - p.objects, p.objectsPerSecond}, {p.bytesTotal - p.bytes, p.bytesPerSecond},
	} {
		if one.left > 0 && one.perSecond > 0 {
			seconds = max(seconds, float64(one.left)/float64(one.perSecond))
		}
	}
	return time.Duration(math.Ceil(seconds)) * time.Second
}

// watch says how far the work is, at each interval until stop is called: in the
// log, and in Conductor's log of the task after one interval, two, four and so on,
// because Conductor shows few lines of a task. None of it is waited for by the
// work.
func (r *Runtime) watch(ctx context.Context, attempt *Attempt) (stop func()) {
	if r.ProgressInterval <= 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var last progress
		for told, next := 1, 1; pause(ctx, r.ProgressInterval); told++ {
			if attempt.foundStale() != nil {
				return
			}
			now, ok := attempt.progressSince(last)
			if !ok {
				continue
			}
			last = now
			attempt.log.Info("progress", now.attributes()...)
			if r.TaskLog != nil && told >= next {
				next = 2 * told
				r.tell(ctx, attempt, now.String())
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// tell adds a line to Conductor's log of the task, if the task is still this
// attempt's: a stale attempt writes nothing. It is tried once, and a failure costs
// the line alone.
func (r *Runtime) tell(ctx context.Context, attempt *Attempt, line string) {
	try, cancel := context.WithTimeout(ctx, min(r.ProgressInterval, attempt.tryTimeout()))
	defer cancel()
	task, err := attempt.readTask(try)
	if err == nil {
		err = attempt.identity.CurrentTask(task)
	}
	if err == nil {
		err = r.TaskLog.LogTask(try, attempt.identity.Task, line)
	}
	if err != nil && ctx.Err() == nil {
		attempt.log.Debug("a line for the task's log was not taken", slog.Any(telemetry.KeyError, err))
	}
}
