package ledgertest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// trimRowCases: rows go only from the old end, and cursors never come again.
func trimRowCases() []testCase {
	return []testCase{
		{"rows up to and with the cursor are gone", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "b", "c")})
			f.must(ledger.Step{Rows: rows("d")})
			f.trimRows(f.rows(ledger.RowRange{})[1].Cursor)
			require.Equal(f, []string{"c", "d"}, f.rowData(ledger.RowRange{}))
			require.Equal(f, []string{"d", "c"}, f.rowData(ledger.RowRange{Newest: true}))
		}},
		{"trimming again changes nothing", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "b", "c")})
			all := f.rows(ledger.RowRange{})
			f.trimRows(all[1].Cursor)
			f.trimRows(all[1].Cursor)
			f.trimRows(all[0].Cursor)
			require.Equal(f, []string{"c"}, f.rowData(ledger.RowRange{}))
		}},
		{"a reader goes on behind a cursor that was trimmed", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "b", "c")})
			all := f.rows(ledger.RowRange{})
			f.trimRows(all[1].Cursor)
			require.Equal(f, []string{"c"}, f.rowData(ledger.RowRange{After: all[0].Cursor}))
			require.Equal(f, []string{"c"}, f.rowData(ledger.RowRange{After: all[1].Cursor}))
			require.Empty(f, f.rows(ledger.RowRange{After: all[1].Cursor, Newest: true}))
		}},
		{"rows come behind those trimmed, though none is left", cursorsGoOn},
		{"trimming keeps other scopes and everything but rows", func(f *fixture) {
			k := key(id("kept"))
			other := freshScope()
			f.must(ledger.Step{Rows: rows("a"), Put: []ledger.Put{put(k, "value")}})
			_, err := f.Store.Apply(f.Context(), other, f.step(ledger.Step{Rows: rows("b")}))
			require.NoError(f, err)
			f.trimRows(f.rows(ledger.RowRange{})[0].Cursor)
			require.Empty(f, f.rows(ledger.RowRange{}))
			f.holds(k, "value")
			left, err := f.Store.Rows(f.Context(), other, ledger.RowRange{Limit: 10})
			require.NoError(f, err)
			require.Len(f, left, 1)
		}},
		{"many rows are trimmed to the exact one", func(f *fixture) {
			want := numbered("r", 700)
			for i := 0; i < len(want); i += 100 {
				f.must(ledger.Step{Rows: rows(want[i : i+100]...)})
			}
			f.trimRows(f.rows(ledger.RowRange{})[612].Cursor)
			require.Equal(f, want[613:], f.rowData(ledger.RowRange{}))
		}},
		{"a scope without rows is trimmed without harm", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a")})
			cursor := f.rows(ledger.RowRange{})[0].Cursor
			require.NoError(f, f.Store.TrimRows(f.Context(), freshScope(), cursor))
			require.Len(f, f.rows(ledger.RowRange{}), 1)
		}},
		{"a cursor the store never gave is refused", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a")})
			for _, c := range []string{"", "x", "\x00", "-", "($", "+"} {
				require.Error(f, f.Store.TrimRows(f.Context(), f.scope, c), "%q", c)
			}
			require.Len(f, f.rows(ledger.RowRange{}), 1)
		}},
		{"what was trimmed stays so when the store is opened again", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "b")})
			all := f.rows(ledger.RowRange{})
			f.trimRows(all[1].Cursor)
			f.Store = f.Reopen(f.T)
			require.Empty(f, f.rows(ledger.RowRange{}))
			f.must(ledger.Step{Rows: rows("c")})
			require.Equal(f, []string{"c"}, f.rowData(ledger.RowRange{After: all[1].Cursor}))
		}},
	}
}

// cursorsGoOn: a reader that remembers the last row's cursor misses nothing,
// also within one millisecond and after a restart.
func cursorsGoOn(f *fixture) {
	last := ""
	for i := range 6 {
		f.must(ledger.Step{Rows: rows(fmt.Sprint(i))})
		got := f.rows(ledger.RowRange{After: last})
		require.Len(f, got, 1)
		require.Less(f, last, got[0].Cursor)
		last = got[0].Cursor
		f.trimRows(last)
		require.Empty(f, f.rows(ledger.RowRange{}))
		switch i {
		case 2:
			f.Store = f.Reopen(f.T)
		case 4:
			f.advance(time.Second)
		}
	}
}

func (f *fixture) trimRows(upTo string) {
	f.Helper()
	require.NoError(f, f.Store.TrimRows(f.Context(), f.scope, upTo))
}
