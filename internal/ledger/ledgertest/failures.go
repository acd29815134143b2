package ledgertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// failureCases: a caller that gives up, and bytes that are not what was written.
func failureCases() []testCase {
	return []testCase{
		{"a cancelled caller gets an error and nothing is applied", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.Context())
			s := f.step(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}, Rows: rows("row")})
			cancel()
			res, err := f.Store.Apply(ctx, f.scope, s)
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			require.False(f, res.Applied)
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			require.True(f, f.apply(s).Voided)
			f.lacks(key("a"))
			require.Empty(f, f.rows(ledger.RowRange{}))
		}},
		{"an elapsed deadline gets an error and nothing is applied", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}, Rows: rows("row")})
			ctx, cancel := context.WithDeadline(f.Context(), time.Unix(1, 0))
			defer cancel()
			_, err := f.Store.Apply(ctx, f.scope, s)
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			f.lacks(key("a"))
			require.Empty(f, f.rows(ledger.RowRange{}))
		}},
		{"a cancelled reader gets an error", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.Context())
			cancel()
			_, err := f.Store.Read(ctx, f.scope, ledger.Fetch{Key: key("a")})
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			_, err = f.Store.Entries(ctx, f.scope, ledger.EntryRange{Index: ledger.ByName, Limit: 1})
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			_, err = f.Store.Rows(ctx, f.scope, ledger.RowRange{Limit: 1})
			require.ErrorIs(f, err, ledger.ErrUnavailable)
			require.ErrorIs(f, f.Store.Trim(ctx, f.scope, ledger.ByName, time.Now()), ledger.ErrUnavailable)
			require.ErrorIs(f, f.Store.Ready(ctx), ledger.ErrUnavailable)
		}},
		{"a caller that gives up midway leaves a whole step or none", cancelMidway},
		{"a corrupt value is an error to a reader", func(f *fixture) {
			corruptOne(f)
			for _, fetch := range [][]ledger.Fetch{
				fetch(key("bad")), fetch(key("good"), key("bad")),
				{{Key: key("points"), Follow: []ledger.Kind{ledger.Meta}}},
			} {
				snap, err := f.Store.Read(f.Context(), f.scope, fetch...)
				require.ErrorIs(f, err, ledger.ErrCorrupt)
				require.Empty(f, snap.Values)
			}
			f.holds(key("good"), "intact")
		}},
		{"a corrupt value under a condition is an error and changes nothing", func(f *fixture) {
			n := corruptOne(f)
			for _, expect := range []ledger.Expect{absent(key("bad")), at(key("bad"), n)} {
				corruptRefused(f, ledger.Step{Expect: []ledger.Expect{expect}})
			}
		}},
		{"a corrupt value a refused step should return is an error", func(f *fixture) {
			corruptOne(f)
			corruptRefused(f, ledger.Step{
				Expect: []ledger.Expect{absent(key("good"))}, Fetch: fetch(key("good"), key("bad")),
			})
		}},
		{"a corrupt counter is an error and changes nothing", func(f *fixture) {
			n := counter("bad")
			f.must(ledger.Step{Add: []ledger.Add{{Key: n, Delta: 5}, {Key: counter("good"), Delta: 1}}})
			f.Corrupt(f.T, f.scope, n)
			corruptRefused(f, ledger.Step{Add: []ledger.Add{{Key: counter("good"), Delta: 1}, {Key: n, Delta: 1}}})
			require.Equal(f, int64(1), f.countOf(counter("good")))
		}},
		{"a step refused for a corrupt value may be repeated after repair", func(f *fixture) {
			corruptOne(f)
			s := f.step(ledger.Step{
				Expect: []ledger.Expect{absent(key("bad"))}, Put: []ledger.Put{put(key("bad"), "new")},
			})
			_, err := f.Store.Apply(f.Context(), f.scope, s)
			require.ErrorIs(f, err, ledger.ErrCorrupt)
			f.must(ledger.Step{Delete: []ledger.Key{key("bad")}})
			f.lacks(key("bad"))
			require.True(f, f.apply(s).Applied)
			f.holds(key("bad"), "new")
		}},
		{"a corrupt value harms nobody else", func(f *fixture) {
			corruptOne(f)
			f.must(ledger.Step{
				Expect: []ledger.Expect{absent(key("new"))}, Put: []ledger.Put{put(key("new"), "one")}, Rows: rows("row"),
			})
			f.holds(key("new"), "one")
			f.Store = f.Reopen(f.T)
			f.holds(key("new"), "one")
			_, err := f.Store.Read(f.Context(), f.scope, ledger.Fetch{Key: key("bad")})
			require.ErrorIs(f, err, ledger.ErrCorrupt)
		}},
	}
}

// corruptOne leaves a good value, a bad one and one that points to the bad one.
func corruptOne(f *fixture) ledger.Nonce {
	f.Helper()
	target := "0123456789abcdef"
	n := f.must(ledger.Step{Put: []ledger.Put{
		put(key("good"), "intact"), put(key("bad"), "intact"), put(key(target), "intact"), put(key("points"), target),
	}})
	f.Corrupt(f.T, f.scope, key("bad"))
	f.Corrupt(f.T, f.scope, key(target))
	return n
}

// corruptRefused sends a step with more parts, all of which must come to nothing.
func corruptRefused(f *fixture, s ledger.Step) {
	f.Helper()
	gone, e := key("stays"), ledger.Entry{Index: ledger.ByName, Score: time.UnixMilli(1), Member: "stays"}
	f.must(ledger.Step{Put: []ledger.Put{put(gone, "here")}, Index: []ledger.Entry{e}})
	victim := f.step(ledger.Step{})
	s.Delete = append(s.Delete, gone)
	s.Put = append(s.Put, put(key("x"), "one"))
	s.Unindex = append(s.Unindex, e)
	s.Index = append(s.Index, ledger.Entry{Index: ledger.ByHold, Score: f.now(), Member: "x"})
	s.Rows = append(s.Rows, []byte("row"))
	s.Void = append(s.Void, victim.Nonce)

	res, err := f.Store.Apply(f.Context(), f.scope, f.step(s))
	require.ErrorIs(f, err, ledger.ErrCorrupt)
	require.False(f, res.Applied)
	require.Empty(f, res.Values)
	f.holds(gone, "here")
	f.lacks(key("x"))
	require.Equal(f, []string{"stays"}, f.entries(ledger.EntryRange{Index: ledger.ByName}))
	require.Empty(f, f.entries(ledger.EntryRange{Index: ledger.ByHold}))
	require.Empty(f, f.rows(ledger.RowRange{}))
	require.True(f, f.apply(victim).Applied, "the void came to nothing too")
}

// cancelMidway gives up at every stage of a step it can reach by chance, then
// voids it: what the void found is what stays.
func cancelMidway(f *fixture) {
	const callers = 24
	f.now()
	var wg sync.WaitGroup
	steps := make([]ledger.Step, callers)
	for i := range steps {
		name := fmt.Sprintf("%03d", i)
		steps[i] = f.step(ledger.Step{
			Put:  []ledger.Put{put(key("v"+name), name), put(key("w"+name), name)},
			Add:  []ledger.Add{{Key: counter("n"), Delta: 1}},
			Rows: rows(name),
		})
		ctx, cancel := context.WithTimeout(f.Context(), time.Duration(i*50)*time.Microsecond)
		wg.Go(func() {
			defer cancel()
			if _, err := f.Store.Apply(ctx, f.scope, steps[i]); err != nil {
				assert.ErrorIs(f, err, ledger.ErrUnavailable)
			}
		})
	}
	wg.Wait()
	applied := []string{}
	for i, s := range steps {
		f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
		name := fmt.Sprintf("%03d", i)
		_, v := f.get(key("v" + name))
		_, w := f.get(key("w" + name))
		require.Equal(f, v, w)
		if v {
			applied = append(applied, name)
		}
		res := f.apply(s)
		require.Equal(f, v, res.Applied)
		require.Equal(f, !v, res.Voided)
	}
	require.ElementsMatch(f, applied, f.rowData(ledger.RowRange{}))
	require.Equal(f, int64(len(applied)), f.countOf(counter("n")))
}
