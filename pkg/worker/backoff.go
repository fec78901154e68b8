package worker

import (
	"context"
	"math/rand/v2"
	"time"
)

// backoff gives pauses with full jitter: anywhere between nothing and a ceiling
// that doubles from base to limit, so that a fleet which failed together does
// not come back together.
type backoff struct {
	base, limit time.Duration
	tries       int
}

// The pauses between tries: of polls, which may wait for a server to come back,
// and of single calls inside a lease.
func pollBackoff() *backoff { return &backoff{base: 250 * time.Millisecond, limit: 10 * time.Second} }
func callBackoff() *backoff { return &backoff{base: 200 * time.Millisecond, limit: 5 * time.Second} }

func (b *backoff) next() time.Duration {
	ceiling := b.limit
	// Shifting further would overflow; the limit is reached long before.
	if b.tries < 20 && b.base<<b.tries < b.limit {
		ceiling = b.base << b.tries
	}
	b.tries++
	return rand.N(ceiling) + 1
}

func (b *backoff) reset() { b.tries = 0 }

// pause waits for d and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
