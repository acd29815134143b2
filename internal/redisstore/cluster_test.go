package redisstore_test

import (
	"crypto/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// All keys of a scope live on one master, scopes on all of them, and a store
// that knows one address finds the others.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3, redistest.Durable()...)
	for name, pipeline := range map[string]bool{"pool": false, "pipeline": true} {
		t.Run(name, func(t *testing.T) {
			opts := redisstore.Options{URL: nodes[0].URL() + "?mode=cluster", Pipeline: pipeline}
			if err := redisstore.Init(t.Context(), opts); err != nil {
				require.ErrorIs(t, err, redisstore.ErrInitialised)
			}
			s := open(t, opts)
			require.NoError(t, s.Ready(t.Context()))
			for range 20 {
				everyPart(t, s, ledger.ScopeOf(rand.Text()))
			}

			_, err := nodes[2].Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
			require.NoError(t, err)
			require.ErrorIs(t, s.Ready(t.Context()), ledger.ErrNotReady, "one unfit master is enough")
			_, err = nodes[2].Do(t.Context(), "CONFIG", "SET", "maxmemory-policy", "noeviction")
			require.NoError(t, err)
		})
	}
	for _, n := range nodes {
		size, err := n.Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		require.NotEqual(t, "0", size)
	}
	untold := open(t, redisstore.Options{URL: nodes[0].URL()})
	sentAway := 0
	for range 20 {
		if _, err := untold.Read(t.Context(), ledger.ScopeOf(rand.Text())); err != nil {
			require.ErrorIs(t, err, ledger.ErrUnavailable)
			sentAway++
		}
	}
	require.Positive(t, sentAway, "a store not told that this is a cluster is no store")
}

// everyPart runs a step with every part, refused and applied, and each way to
// read what it left.
func everyPart(t *testing.T, s *redisstore.Store, scope ledger.Scope) {
	t.Helper()
	id := "0123456789abcdef"
	step := claim(s, id)
	step.Add = []ledger.Add{{Key: key("n"), Delta: 1}}
	step.Delete = []ledger.Key{key("gone")}
	step.Unindex = []ledger.Entry{{Index: ledger.ByHold, Score: s.Now(), Member: "gone"}}
	step.Void = []ledger.Nonce{ledger.NewNonce()}
	require.True(t, apply(t, s, scope, step).Applied)
	require.True(t, apply(t, s, scope, step).Applied, "a repeat")
	again := claim(s, id)
	again.Fetch[0].Follow = []ledger.Kind{ledger.Action, ledger.Answer}
	res := apply(t, s, scope, again)
	require.False(t, res.Applied)
	require.Len(t, res.Values, 2, "the binding and the action it points to")
	require.Len(t, rowsOf(t, s, scope), 1)
	entries, err := s.Entries(t.Context(), scope, ledger.EntryRange{Index: ledger.ByLease, Limit: 5, After: &ledger.Entry{Score: s.Now().Add(-1e9)}})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	require.NoError(t, s.Trim(t.Context(), scope, ledger.ByLease, s.Now().Add(1e9)))
	rows, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 1})
	require.NoError(t, err)
	require.NoError(t, s.TrimRows(t.Context(), scope, rows[0].Cursor))
	require.Empty(t, rowsOf(t, s, scope))
}
