package cleanup

import (
	"context"
	"math/rand/v2"
	"time"
)

// Every runs rounds with an interval between the end of one and the beginning of
// the next, until ctx ends; 0 runs none. The interval varies by a tenth, so that
// replicas that were started together do not stay together, and the first round
// waits too: a worker that is restarted again and again asks no more than others.
func Every(ctx context.Context, interval time.Duration, round func(ctx context.Context)) {
	if interval <= 0 {
		return
	}
	for {
		timer := time.NewTimer(time.Duration(float64(interval) * (0.9 + 0.2*rand.Float64())))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			round(ctx)
		}
	}
}
