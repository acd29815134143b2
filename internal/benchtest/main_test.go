package benchtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/benchtest"
)

// TestMain lets this binary be the other processes, too.
func TestMain(m *testing.M) {
	if benchtest.PlayRole() {
		return
	}
	goleak.VerifyTestMain(m)
}
