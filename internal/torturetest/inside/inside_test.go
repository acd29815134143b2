package inside_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/torturetest/inside"
)

// The wall clock is set and the monotonic one is not.
func TestShift(t *testing.T) {
	now := time.Now()
	for _, d := range []time.Duration{0, time.Nanosecond, -time.Nanosecond, 999_999_999, -999_999_999, 1500 * time.Millisecond, -40 * time.Hour, 40 * time.Hour} {
		off := inside.Shift(now, d)
		require.True(t, off.Round(0).Equal(now.Round(0).Add(d)), "%s: %s", d, off)
		require.Zero(t, off.Sub(now), d)
		require.Equal(t, now.Location(), off.Location())
	}
	require.Equal(t, now.Round(0).Add(time.Hour), inside.Shift(now.Round(0), time.Hour), "a time without a monotonic reading")
}
