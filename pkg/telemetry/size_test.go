package telemetry

import "testing"

func TestSize(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1<<20 - 1: "1.0 MiB", 1 << 30: "1.0 GiB", 5 << 40: "5.0 TiB", 1 << 62: "4.0 EiB",
	} {
		if got := Size(bytes); got != want {
			t.Errorf("%d: %q, want %q", bytes, got, want)
		}
	}
}
