package bootclock_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/bootclock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestItRuns(t *testing.T) {
	first := bootclock.Now()
	require.Positive(t, first)
	require.GreaterOrEqual(t, bootclock.Now(), first)
}

func TestOneRunHasOneID(t *testing.T) {
	require.Equal(t, bootclock.ID(), bootclock.ID())
}
