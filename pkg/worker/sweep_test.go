package worker

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"perago/pkg/telemetry"
)

func TestSwept(t *testing.T) {
	t.Parallel()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		ctx     context.Context
		err     error
		line    string
		outcome string
	}{
		"whole":   {t.Context(), nil, `level=INFO msg=swept deleted=1 kept=2 failed=3`, "completed"},
		"failed":  {t.Context(), errors.New("down"), `level=WARN msg="sweep failed" deleted=1 kept=2 failed=3 error=down`, "failed"},
		"stopped": {stopped, context.Canceled, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			p := &Process{Metrics: telemetry.NewMetrics(), Log: slog.New(slog.NewTextHandler(&log, nil))}
			p.Swept(c.ctx, 1, 2, 3, c.err)
			if got := strings.TrimSpace(log.String()); !strings.HasSuffix(got, c.line) || (c.line == "") != (got == "") {
				t.Errorf("logged %q, want %q", got, c.line)
			}
			families, err := p.Metrics.Registry().Gather()
			if err != nil {
				t.Fatal(err)
			}
			outcome := ""
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					if family.GetName() == "perago_sweeps_total" && metric.GetCounter().GetValue() > 0 {
						outcome += metric.GetLabel()[0].GetValue()
					}
				}
			}
			if outcome != c.outcome {
				t.Errorf("counted %q, want %q", outcome, c.outcome)
			}
		})
	}
}
