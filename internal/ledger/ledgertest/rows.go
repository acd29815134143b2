package ledgertest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// rowCases: the audit rows, which are appended, read and never changed.
func rowCases() []testCase {
	return []testCase{
		{"rows come back in the order they were appended", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "b")})
			f.must(ledger.Step{Rows: rows("c")})
			require.Equal(f, []string{"a", "b", "c"}, f.rowData(ledger.RowRange{}))
			require.Equal(f, []string{"c", "b", "a"}, f.rowData(ledger.RowRange{Newest: true}))
		}},
		{"a scope without rows is empty", func(f *fixture) {
			require.Empty(f, f.rows(ledger.RowRange{}))
			require.Empty(f, f.rows(ledger.RowRange{Newest: true}))
		}},
		{"equal rows are different rows", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "a")})
			f.must(ledger.Step{Rows: rows("a")})
			require.Len(f, f.rows(ledger.RowRange{}), 3)
		}},
		{"cursors rise byte by byte and are printable", func(f *fixture) {
			for i := range 12 {
				f.must(ledger.Step{Rows: rows(fmt.Sprint(i), "x")})
			}
			got := f.rows(ledger.RowRange{})
			require.Len(f, got, 24)
			for i, r := range got {
				require.NotEmpty(f, r.Cursor)
				require.Equal(f, -1, strings.IndexFunc(r.Cursor, func(c rune) bool { return c < '!' || c > '~' }))
				if i > 0 {
					require.Less(f, got[i-1].Cursor, r.Cursor)
				}
			}
		}},
		{"a row carries the time of its step", func(f *fixture) {
			first := f.apply(ledger.Step{Rows: rows("a", "b")})
			f.advance(1234 * time.Millisecond)
			second := f.apply(ledger.Step{Rows: rows("c")})
			got := f.rows(ledger.RowRange{})
			require.Len(f, got, 3)
			require.True(f, first.Now.Equal(got[0].At))
			require.True(f, first.Now.Equal(got[1].At))
			require.True(f, second.Now.Equal(got[2].At))
		}},
		{"after continues behind a row in both directions", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "b", "c", "d")})
			all := f.rows(ledger.RowRange{})
			require.Equal(f, []string{"c", "d"}, f.rowData(ledger.RowRange{After: all[1].Cursor}))
			require.Equal(f, []string{"a"}, f.rowData(ledger.RowRange{After: all[1].Cursor, Newest: true}))
			require.Empty(f, f.rows(ledger.RowRange{After: all[3].Cursor}))
			require.Empty(f, f.rows(ledger.RowRange{After: all[0].Cursor, Newest: true}))
			f.must(ledger.Step{Rows: rows("e")})
			require.Equal(f, []string{"e"}, f.rowData(ledger.RowRange{After: all[3].Cursor}))
		}},
		{"limit cuts in the direction of reading", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a", "b", "c")})
			require.Equal(f, []string{"a", "b"}, f.rowData(ledger.RowRange{Limit: 2}))
			require.Equal(f, []string{"c", "b"}, f.rowData(ledger.RowRange{Limit: 2, Newest: true}))
		}},
		{"from is included, to is not", rowTimes},
		{"pages join without gap or repeat", func(f *fixture) {
			want := numbered("r", 20)
			for _, r := range want {
				f.must(ledger.Step{Rows: rows(r)})
			}
			require.Equal(f, want, f.page(ledger.RowRange{Limit: 3}, nil))
			got := f.page(ledger.RowRange{Limit: 3, Newest: true}, nil)
			slices.Reverse(got)
			require.Equal(f, want, got)
		}},
		{"a reader that pages misses no row appended meanwhile", pageWhileAppending},
		{"paging backwards is not moved by rows appended meanwhile", func(f *fixture) {
			want := numbered("r", 20)
			for _, r := range want {
				f.must(ledger.Step{Rows: rows(r)})
			}
			got := f.page(ledger.RowRange{Limit: 3, Newest: true}, func() {
				f.must(ledger.Step{Rows: rows("new")})
			})
			slices.Reverse(got)
			require.Equal(f, want, got)
		}},
		{"a range without a limit is an error", func(f *fixture) {
			for _, n := range []int{0, -1} {
				_, err := f.Store.Rows(f.Context(), f.scope, ledger.RowRange{Limit: n})
				require.Error(f, err)
			}
		}},
		{"a cursor the store never gave does no harm", func(f *fixture) {
			f.must(ledger.Step{Rows: rows("a")})
			for _, c := range []string{"x", "\x00", strings.Repeat("f", 300), "0", "-", "($"} {
				got, err := f.Store.Rows(f.Context(), f.scope, ledger.RowRange{After: c, Limit: 10})
				if err == nil {
					require.LessOrEqual(f, len(got), 1)
				}
			}
			require.Equal(f, []string{"a"}, f.rowData(ledger.RowRange{}))
		}},
	}
}

func rowTimes(f *fixture) {
	var at []time.Time
	for _, r := range []string{"a", "b", "c", "d"} {
		at = append(at, f.apply(ledger.Step{Rows: rows(r, r+"'")}).Now)
		f.advance(10 * time.Millisecond)
	}
	between := func(from, to time.Time) []string {
		got := f.rowData(ledger.RowRange{From: from, To: to})
		reversed := f.rowData(ledger.RowRange{From: from, To: to, Newest: true})
		slices.Reverse(reversed)
		require.Equal(f, got, reversed)
		return got
	}
	ms := time.Millisecond
	var never time.Time
	require.Equal(f, []string{"b", "b'", "c", "c'"}, between(at[1], at[3]))
	require.Equal(f, []string{"b", "b'", "c", "c'"}, between(at[1].Add(-ms), at[3].Add(-ms)))
	require.Equal(f, []string{"c", "c'", "d", "d'"}, between(at[1].Add(ms), at[3].Add(ms)))
	require.Equal(f, []string{"c", "c'", "d", "d'"}, between(at[2], never))
	require.Equal(f, []string{"a", "a'"}, between(never, at[1]))
	require.Empty(f, between(at[1], at[1]))
	require.Empty(f, between(at[2], at[1]))
	require.Empty(f, between(at[3].Add(ms), never))
	require.Empty(f, between(never, at[0]))

	all := f.rows(ledger.RowRange{})
	require.Equal(f, []string{"c", "c'"}, f.rowData(ledger.RowRange{From: at[1], To: at[3], After: all[3].Cursor}))
	require.Equal(f, []string{"b'", "b"},
		f.rowData(ledger.RowRange{From: at[1], To: at[3], After: all[4].Cursor, Newest: true}))
	require.Equal(f, []string{"b"}, f.rowData(ledger.RowRange{From: at[1], To: at[3], After: all[0].Cursor, Limit: 1}))
}

// page reads all rows of a range page by page and calls between after each.
func (f *fixture) page(r ledger.RowRange, between func()) []string {
	f.Helper()
	var out []string
	for {
		got := f.rows(r)
		if len(got) == 0 {
			return out
		}
		for _, row := range got {
			out = append(out, string(row.Data))
		}
		r.After = got[len(got)-1].Cursor
		if between != nil {
			between()
		}
	}
}

func pageWhileAppending(f *fixture) {
	const writers, each = 4, 25
	f.now()
	var wg sync.WaitGroup
	var mu sync.Mutex
	applied := 0
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
					Nonce: ledger.NewNonce(), At: f.Store.Now(), Rows: rows(fmt.Sprintf("%d/%03d", w, i)),
				})
				if err == nil && res.Applied {
					mu.Lock()
					applied++
					mu.Unlock()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()

	var got []string
	r := ledger.RowRange{Limit: 3}
	for last := false; ; {
		page := f.rows(r)
		for _, row := range page {
			got = append(got, string(row.Data))
			r.After = row.Cursor
		}
		if len(page) > 0 {
			continue
		}
		if last {
			break
		}
		select {
		case <-done:
			last = true // one more pass, now that nobody appends
		default:
		}
	}
	require.Equal(f, writers*each, applied)
	require.Len(f, got, applied)
	require.Equal(f, got, f.rowData(ledger.RowRange{}))
	for w := range writers {
		own := slices.DeleteFunc(slices.Clone(got), func(s string) bool { return s[0] != byte('0'+w) })
		require.True(f, slices.IsSorted(own), "the rows of one writer are in its order")
		require.Len(f, own, each)
	}
}
