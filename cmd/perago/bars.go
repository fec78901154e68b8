package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"perago/pkg/checkout"
	"perago/pkg/stage"
)

var (
	_ stage.Attempt    = (*bars)(nil)
	_ checkout.Attempt = (*bars)(nil)
)

// bars is the attempt of a command: it may act until it is interrupted, and its
// phases are shown on a terminal, as bars where it is known how much there is to do.
type bars struct {
	// to is nil where nobody looks.
	to    io.Writer
	shown *bar
}

// bars are for a person: not for what goes into a file, and not beside JSON.
func (e *environment) bars() *bars {
	file, ok := e.stderr.(*os.File)
	if !ok || e.out.format == formatJSON || !term.IsTerminal(int(file.Fd())) {
		return &bars{}
	}
	return &bars{to: file}
}

// Current is never stale: nobody else has been given the work.
func (b *bars) Current(ctx context.Context) error { return context.Cause(ctx) }

// Phase shows how far the phase is until it ends.
func (b *bars) Phase(name string) (end func()) {
	if b.to == nil {
		return func() {}
	}
	b.shown = &bar{name: name}
	return b.shown.show(b.to)
}

// Expect is for the phase that began last.
func (b *bars) Expect(objects int, bytes int64) (done func(objects int, bytes int64)) {
	if b.to == nil {
		return func(int, int64) {}
	}
	shown := b.shown
	shown.objectsTotal.Store(int64(objects))
	shown.bytesTotal.Store(bytes)
	return func(objects int, bytes int64) {
		shown.objects.Add(int64(objects))
		shown.bytes.Add(bytes)
	}
}

// bar is one phase. Whoever works only counts; the drawing looks at the counts.
type bar struct {
	name                  string
	objects, objectsTotal atomic.Int64
	bytes, bytesTotal     atomic.Int64
}

// drawn is the pace of the drawing. A phase that takes less has no bar.
const drawn = 200 * time.Millisecond

// show draws until stop is called, which takes the bar away.
func (b *bar) show(to io.Writer) (stop func()) {
	ended, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		ticker := time.NewTicker(drawn)
		defer ticker.Stop()
		var line *progressbar.ProgressBar
		for of := int64(-1); ; {
			select {
			case <-ended:
				if line != nil {
					_ = line.Clear() // the terminal is gone: nobody is left to look
				}
				return
			case <-ticker.C:
			}
			done, total, inBytes := b.state()
			if line == nil || total != of {
				line, of = newLine(to, total, inBytes), total
			}
			line.Describe(b.describe())
			_ = line.Set64(done)
		}
	}()
	return func() {
		close(ended)
		<-gone
	}
}

// state is how much is done of what is to do: in bytes where there are some, else
// in objects; a total of -1 is not known. It never is the whole: a bar that is full
// disappears, and the phase has not ended.
func (b *bar) state() (done, total int64, inBytes bool) {
	done, total, inBytes = b.bytes.Load(), b.bytesTotal.Load(), true
	if total == 0 {
		done, total, inBytes = b.objects.Load(), b.objectsTotal.Load(), false
	}
	if total == 0 {
		return b.objects.Load(), -1, false
	}
	return min(done, total-1), total, inBytes
}

func (b *bar) describe() string {
	switch objects, total := b.objects.Load(), b.objectsTotal.Load(); {
	case total > 0:
		return fmt.Sprintf("%s: %d of %d objects", b.name, objects, total)
	case objects > 0:
		return fmt.Sprintf("%s: %d objects", b.name, objects)
	}
	return b.name
}

func newLine(to io.Writer, total int64, inBytes bool) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(to), progressbar.OptionSetWidth(20), progressbar.OptionShowBytes(inBytes), progressbar.OptionUseIECUnits(true),
		progressbar.OptionShowCount(),
		progressbar.OptionSpinnerType(14), progressbar.OptionUseANSICodes(true),
		// Its own drawing of a spinner never ends.
		progressbar.OptionSetSpinnerChangeInterval(0),
	)
}
