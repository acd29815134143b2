package ledgertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// conditionCases: when a step is applied, and what a step that is not returns.
func conditionCases() []testCase {
	k := key("a")
	return []testCase{
		{"expect absent holds for a value never put", func(f *fixture) {
			f.must(ledger.Step{Expect: []ledger.Expect{absent(k)}, Put: []ledger.Put{put(k, "one")}})
			f.holds(k, "one")
		}},
		{"expect absent holds for a deleted value", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.must(ledger.Step{Delete: []ledger.Key{k}})
			f.must(ledger.Step{Expect: []ledger.Expect{absent(k)}})
		}},
		{"expect absent fails for a value that exists", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.refused(ledger.Step{Expect: []ledger.Expect{absent(k)}, Put: []ledger.Put{put(k, "two")}})
			f.holds(k, "one")
		}},
		{"expect a version holds for exactly that version", func(f *fixture) {
			n := f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.must(ledger.Step{Expect: []ledger.Expect{at(k, n)}, Put: []ledger.Put{put(k, "two")}})
			f.refused(ledger.Step{Expect: []ledger.Expect{at(k, n)}, Put: []ledger.Put{put(k, "three")}})
			f.holds(k, "two")
		}},
		{"expect a version fails when the same bytes were put again", func(f *fixture) {
			n := f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.refused(ledger.Step{Expect: []ledger.Expect{at(k, n)}})
		}},
		{"expect a version fails for an absent value", func(f *fixture) {
			f.refused(ledger.Step{Expect: []ledger.Expect{at(k, ledger.NewNonce())}})
		}},
		{"one failed condition among many refuses the step", func(f *fixture) {
			n := f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.refused(ledger.Step{
				Expect: []ledger.Expect{at(k, n), absent(key("b")), absent(k)},
				Put:    []ledger.Put{put(key("b"), "two")},
			})
			f.lacks(key("b"))
		}},
		{"a refused step changes nothing", refusedChangesNothing},
		{"a refused step returns the values it names", func(f *fixture) {
			n := f.must(ledger.Step{Put: []ledger.Put{put(k, "one"), put(key("c"), "three")}})
			before := f.now()
			res := f.refused(ledger.Step{
				Expect: []ledger.Expect{absent(k)},
				Put:    []ledger.Put{put(key("b"), "two")},
				Fetch:  fetch(k, key("b")),
			})
			require.Equal(f, map[ledger.Key]ledger.Value{
				k: {Version: n.Version(), Data: []byte("one")},
			}, res.Values)
			require.False(f, res.Now.Before(before))
		}},
		{"before refuses from its instant on", beforeBound},
		{"at may lie within drift of the store's clock", func(f *fixture) {
			f.must(ledger.Step{At: f.now().Add(-ledger.Drift / 2)})
			f.must(ledger.Step{At: f.now().Add(ledger.Drift / 2)})
		}},
		{"at too old is refused with the store's time", func(f *fixture) {
			driftRefused(f, -ledger.Drift-time.Millisecond)
			driftRefused(f, -time.Hour)
		}},
		{"at too far ahead is refused with the store's time", func(f *fixture) {
			driftRefused(f, 2*ledger.Drift)
			driftRefused(f, time.Hour)
		}},
		{"at never set is refused", func(f *fixture) {
			res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
				Nonce: ledger.NewNonce(), Put: []ledger.Put{put(k, "one")},
			})
			require.NoError(f, err)
			require.False(f, res.Applied)
			f.lacks(k)
		}},
	}
}

func refusedChangesNothing(f *fixture) {
	now := f.now()
	entry := ledger.Entry{Index: ledger.ByLease, Score: now, Member: "m"}
	f.must(ledger.Step{
		Put:   []ledger.Put{put(key("a"), "one"), put(key("gone?"), "still here")},
		Add:   []ledger.Add{{Key: counter("n"), Delta: 7}},
		Index: []ledger.Entry{entry},
		Rows:  rows("first"),
	})
	voided := f.step(ledger.Step{Put: []ledger.Put{put(key("later"), "applied")}})
	f.refused(ledger.Step{
		Expect:  []ledger.Expect{absent(key("a"))},
		Delete:  []ledger.Key{key("gone?")},
		Put:     []ledger.Put{put(key("a"), "two"), put(key("b"), "two")},
		Add:     []ledger.Add{{Key: counter("n"), Delta: 1}},
		Unindex: []ledger.Entry{entry},
		Index:   []ledger.Entry{{Index: ledger.ByHold, Score: now, Member: "h"}},
		Rows:    rows("second"),
		Void:    []ledger.Nonce{voided.Nonce},
	})
	f.holds(key("a"), "one")
	f.holds(key("gone?"), "still here")
	f.lacks(key("b"))
	require.Equal(f, int64(7), f.countOf(counter("n")))
	require.Equal(f, []string{"m"}, f.entries(ledger.EntryRange{Index: ledger.ByLease}))
	require.Empty(f, f.entries(ledger.EntryRange{Index: ledger.ByHold}))
	require.Equal(f, []string{"first"}, f.rowData(ledger.RowRange{}))
	require.True(f, f.apply(voided).Applied)
}

func beforeBound(f *fixture) {
	bound := f.second(time.Second)
	f.must(ledger.Step{Before: bound})
	n := 0
	f.around(bound, func() time.Time {
		n++
		res := f.apply(ledger.Step{Before: bound, Add: []ledger.Add{{Key: counter("n"), Delta: 1}}})
		require.Equal(f, res.Now.Before(bound), res.Applied)
		if !res.Applied {
			n--
		}
		return res.Now
	})
	require.Equal(f, int64(n), f.countOf(counter("n")))
}

func driftRefused(f *fixture, off time.Duration) {
	f.Helper()
	k := key(id("drift"))
	other := key(id("other"))
	n := f.must(ledger.Step{Put: []ledger.Put{put(other, "seen")}})
	now := f.now()
	s := f.step(ledger.Step{
		At: now.Add(off), Put: []ledger.Put{put(k, "one")}, Rows: rows("row"), Fetch: fetch(other),
	})
	res := f.refused(s)
	require.False(f, res.Now.Before(now))
	require.Less(f, res.Now.Sub(now), 30*time.Second, "the time is the store's own")
	require.Equal(f, map[ledger.Key]ledger.Value{other: {Version: n.Version(), Data: []byte("seen")}}, res.Values)
	f.lacks(k)
	require.Empty(f, f.rows(ledger.RowRange{}))

	// The same step, built anew on the time just learnt, is applied.
	s.At = res.Now
	require.True(f, f.apply(s).Applied)
	f.holds(k, "one")
	require.Len(f, f.rows(ledger.RowRange{}), 1)
	f.scope = freshScope()
}
