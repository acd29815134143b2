package ledgertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// lifecycleCases: opening again, closing, the clock.
func lifecycleCases() []testCase {
	k := key("a")
	return []testCase{
		{"everything is found again after reopening", func(f *fixture) {
			n := f.must(ledger.Step{
				Put:   []ledger.Put{put(k, "one")},
				Add:   []ledger.Add{{Key: counter("n"), Delta: 7}},
				Index: []ledger.Entry{{Index: ledger.ByName, Score: f.now(), Member: "m"}},
				Rows:  rows("r1", "r2"),
			})
			before := f.rows(ledger.RowRange{})
			f.Store = f.Reopen(f.T)
			v, ok := f.get(k)
			require.True(f, ok)
			require.Equal(f, ledger.Value{Version: n.Version(), Data: []byte("one")}, v)
			require.Equal(f, int64(7), f.countOf(counter("n")))
			require.Equal(f, []string{"m"}, f.entries(ledger.EntryRange{Index: ledger.ByName}))
			require.Equal(f, before, f.rows(ledger.RowRange{}))

			f.must(ledger.Step{Expect: []ledger.Expect{at(k, n)}, Put: []ledger.Put{put(k, "two")}, Rows: rows("r3")})
			require.Equal(f, []string{"r1", "r2", "r3"}, f.rowData(ledger.RowRange{}))
			require.Equal(f, []string{"r3"}, f.rowData(ledger.RowRange{After: before[1].Cursor}))
		}},
		{"deletions and moves are found again after reopening", func(f *fixture) {
			now := f.now()
			e := ledger.Entry{Index: ledger.ByName, Score: now, Member: "m"}
			f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}, Index: []ledger.Entry{e}})
			f.must(ledger.Step{Delete: []ledger.Key{k}, Unindex: []ledger.Entry{e}})
			f.Store = f.Reopen(f.T)
			f.lacks(k)
			require.Empty(f, f.entries(ledger.EntryRange{Index: ledger.ByName}))
		}},
		{"the clock does not go back over reopening", func(f *fixture) {
			f.advance(time.Hour)
			before := f.apply(ledger.Step{Rows: rows("row")}).Now
			f.Store = f.Reopen(f.T)
			require.False(f, f.now().Before(before))
		}},
		{"the estimate of the clock is good to a fraction of drift", func(f *fixture) {
			near := func() {
				f.Helper()
				before := f.now()
				estimate := f.Store.Now()
				after := f.now()
				require.False(f, estimate.Before(before.Add(-ledger.Drift/4)), "%s before %s", estimate, before)
				require.False(f, estimate.After(after.Add(ledger.Drift/4)), "%s after %s", estimate, after)
			}
			near()
			f.advance(time.Hour)
			near()
			f.must(ledger.Step{At: f.Store.Now()})
		}},
		{"a store that answers is ready", func(f *fixture) {
			require.NoError(f, f.Store.Ready(f.Context()))
			f.must(ledger.Step{Rows: rows("row")})
			require.NoError(f, f.Store.Ready(f.Context()))
		}},
		{"close may be called twice", func(f *fixture) {
			require.NoError(f, f.Store.Close())
			require.NoError(f, f.Store.Close())
		}},
		{"a closed store is unavailable", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			closed := f.Store
			require.NoError(f, closed.Close())
			res, err := closed.Apply(f.Context(), f.scope, s)
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			require.False(f, res.Applied)
			_, err = closed.Read(f.Context(), f.scope, ledger.Fetch{Key: k})
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			_, err = closed.Entries(f.Context(), f.scope, ledger.EntryRange{Index: ledger.ByName, Limit: 1})
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			_, err = closed.Rows(f.Context(), f.scope, ledger.RowRange{Limit: 1})
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			require.ErrorIs(f, closed.Trim(f.Context(), f.scope, ledger.ByName, s.At), ledger.ErrUnavailable)
			require.ErrorIs(f, closed.Ready(f.Context()), ledger.ErrUnavailable)

			f.Store = f.Reopen(f.T)
			f.lacks(k)
			require.True(f, f.apply(s).Applied)
		}},
		{"close waits for running calls", closeDuringCalls},
	}
}

// closeDuringCalls closes a store under load: each step was applied and said
// so, or was not answered with success; after reopening, all that said so stand.
func closeDuringCalls(f *fixture) {
	const callers = 16
	f.now()
	type outcome struct {
		name string
		res  ledger.Result
		err  error
	}
	out := make(chan outcome, callers)
	started := make(chan struct{}, callers)
	store, now := f.Store, f.now()
	for _, name := range numbered("c", callers) {
		go func() {
			started <- struct{}{}
			res, err := store.Apply(f.Context(), f.scope, ledger.Step{
				Nonce: ledger.NewNonce(), At: now, Put: []ledger.Put{put(key(name), name)}, Rows: rows(name),
			})
			out <- outcome{name, res, err}
		}()
	}
	for range callers {
		<-started
	}
	require.NoError(f, store.Close())
	f.Store = f.Reopen(f.T)
	for range callers {
		o := <-out
		if o.err != nil {
			require.ErrorIs(f, o.err, ledger.ErrUnavailable)
			continue
		}
		require.True(f, o.res.Applied)
		f.holds(key(o.name), o.name)
		require.Contains(f, f.rowData(ledger.RowRange{}), o.name)
	}
}
