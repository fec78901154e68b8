package telemetry

import "fmt"

// Size is a number of bytes for people, such as 1.5 GiB.
func Size(bytes int64) string {
	if bytes < 1<<10 {
		return fmt.Sprintf("%d B", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for units := len(sizeUnits); value >= 999.95 && unit < units-1; unit++ {
		value /= 1 << 10
	}
	return fmt.Sprintf("%.1f %s", value, sizeUnits[unit])
}

var sizeUnits = []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
