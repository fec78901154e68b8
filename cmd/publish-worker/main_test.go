package main

import (
	"testing"

	"go.uber.org/goleak"

	"perago/e2e/fleet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The program polls each of its task types, and after a drain nothing of it runs any
// more: TestMain sees what does.
func TestNothingRunsAfterADrain(t *testing.T) {
	t.Parallel()
	fleet.Drain(t, program)
}
