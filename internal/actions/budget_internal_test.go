package actions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

func TestABudgetIsUsedUpAndComesBack(t *testing.T) {
	now := time.Hour
	b := newBudgets(func() time.Duration { return now })
	limits := connectors.RateLimits{BudgetRequests: 3, BudgetPer: time.Minute}
	take := func(id string) (time.Duration, bool) { return b.take(limits, "acme", id) }
	for range 3 {
		_, ok := take("a")
		require.True(t, ok)
	}
	wait, ok := take("a")
	require.False(t, ok)
	require.Equal(t, 20*time.Second, wait)
	_, ok = take("b")
	require.True(t, ok, "another connection has its own")
	now += 20 * time.Second
	_, ok = take("a")
	require.True(t, ok)
	_, ok = take("a")
	require.False(t, ok)
	now += time.Hour
	for range 3 {
		_, ok := take("a")
		require.True(t, ok, "it never holds more than its size")
	}
	_, ok = take("a")
	require.False(t, ok)

	limits.Scope = "connector"
	for _, id := range []string{"a", "b", "c"} {
		_, ok := take(id)
		require.True(t, ok)
	}
	_, ok = take("d")
	require.False(t, ok, "the vendor counts all of them together")

	_, ok = b.take(connectors.RateLimits{}, "acme", "a")
	require.True(t, ok, "no budget, no bound")
	now = clockFailed
	_, ok = take("e")
	require.False(t, ok, "without a clock nothing is known")
}
