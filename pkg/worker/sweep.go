package worker

import (
	"context"
	"log/slog"

	"perago/pkg/telemetry"
)

// Swept logs and counts how a background sweep ended. A sweep that a stop ended
// did not fail: the next process sweeps.
func (p *Process) Swept(ctx context.Context, deleted, kept, failed int, err error) {
	if ctx.Err() != nil {
		return
	}
	p.Metrics.Swept(err)
	log := p.Log.With(slog.Int(telemetry.KeyDeleted, deleted), slog.Int(telemetry.KeyKept, kept), slog.Int(telemetry.KeyFailed, failed))
	if err != nil {
		log.Warn("sweep failed", slog.Any(telemetry.KeyError, err))
		return
	}
	log.Info("swept")
}
