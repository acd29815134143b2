package pebblestore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// TestCursorsRiseOverTrimsOfOneMillisecond: with the clock standing still, only
// the sequence keeps a row behind one that was trimmed before a restart.
func TestCursorsRiseOverTrimsOfOneMillisecond(t *testing.T) {
	dir, clock, last := t.TempDir(), newFakeClock(), ""
	for range 4 {
		s := open(t, dir, pebblestore.Options{Clock: clock.Now})
		must(t, s, ledger.Step{Rows: [][]byte{[]byte("a"), []byte("b")}})
		rows := allRows(t, s)
		require.Len(t, rows, 2)
		require.Less(t, last, rows[0].Cursor)
		last = rows[1].Cursor
		require.NoError(t, s.TrimRows(t.Context(), scope, last))
		require.Empty(t, allRows(t, s))
		require.NoError(t, s.Close())
	}
}
