package usage_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/usage"
)

func TestCounterFoldsWhatIsDue(t *testing.T) {
	store, clock := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	c := usage.Counter{Store: store, Keep: keep}
	mark := func() string {
		snap, err := store.Read(t.Context(), acme, usage.Fetch(usage.Batch{})...)
		require.NoError(t, err)
		return usage.Folded(snap)
	}
	count := func() (more bool) {
		t.Helper()
		more, err := c.Count(t.Context(), acme)
		require.NoError(t, err)
		return more
	}
	require.False(t, count(), "nothing to count")
	appendRows(t, store, acme, audit.Row{Event: audit.Succeeded})
	require.False(t, count())
	require.Empty(t, mark(), "not for each row")
	clock.advance(time.Minute)
	require.False(t, count())
	require.Equal(t, all(t, store, acme)[0].Cursor, mark())

	many := make([]audit.Row, 1200)
	for i := range many {
		many[i] = audit.Row{Event: audit.Succeeded}
	}
	appendRows(t, store, acme, many...)
	require.True(t, count(), "a full batch is due at once, and there is more")
	require.False(t, count())
	require.Equal(t, all(t, store, acme)[1000].Cursor, mark())
	today := usage.DayOf(noon)
	got, err := usage.NewReader(store).Report(t.Context(), acme, usage.Query{From: today, To: today + 1})
	require.NoError(t, err)
	require.Equal(t, int64(1201), got.Total[usage.Writes])
}

// Many at once, and a sealer beside them, count each row once.
func TestCountersBesideEachOther(t *testing.T) {
	store, clock := openStore(t)
	defer func() { require.NoError(t, store.Close()) }()
	for range 50 {
		appendRows(t, store, acme, audit.Row{Event: audit.Succeeded})
		clock.advance(time.Second)
	}
	clock.advance(time.Minute)
	var counters sync.WaitGroup
	for range 4 {
		counters.Go(func() {
			_, _ = usage.Counter{Store: store, Keep: keep}.Count(t.Context(), acme)
		})
		counters.Go(func() { apply(t, store, acme, prepare(t, store, acme, 20)) })
	}
	counters.Wait()
	var step ledger.Step
	b := usage.Batch{Rows: all(t, store, acme)} // a sealer that begins where the log does
	snap, err := store.Read(t.Context(), acme, usage.Fetch(b)...)
	require.NoError(t, err)
	require.NoError(t, usage.Fold(&step, snap, b, keep))
	today := usage.DayOf(noon)
	got, err := usage.NewReader(store).Report(t.Context(), acme, usage.Query{From: today, To: today + 1})
	require.NoError(t, err)
	require.Equal(t, int64(50), got.Total[usage.Writes])
}
