package ledgertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// nonceCases: a step that arrives twice is one step.
func nonceCases() []testCase {
	k := key("a")
	return []testCase{
		{"a repeat returns the first result and changes nothing", func(f *fixture) {
			s := f.step(ledger.Step{
				Expect: []ledger.Expect{absent(k)},
				Put:    []ledger.Put{put(k, "one")},
				Add:    []ledger.Add{{Key: counter("n"), Delta: 3}, {Key: counter("m"), Delta: 4}},
				Rows:   rows("row"),
				Fetch:  fetch(k),
			})
			first := f.apply(s)
			require.True(f, first.Applied)
			f.advance(50 * time.Millisecond)
			for range 3 {
				again := f.apply(s)
				require.True(f, again.Applied)
				require.True(f, first.Now.Equal(again.Now), "the time of the first")
				require.Equal(f, []int64{3, 4}, again.Counters)
				require.Empty(f, again.Values)
			}
			require.Len(f, f.rows(ledger.RowRange{}), 1)
			require.Equal(f, int64(3), f.countOf(counter("n")))
		}},
		{"a repeat undoes nothing that came between", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}, Rows: rows("row")})
			require.True(f, f.apply(s).Applied)
			f.must(ledger.Step{Put: []ledger.Put{put(k, "two")}})
			require.True(f, f.apply(s).Applied)
			f.holds(k, "two")
		}},
		{"a repeat is known by its nonce alone", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			first := f.apply(s)
			require.True(f, first.Applied)
			other := ledger.Step{
				Nonce: s.Nonce, At: s.At, Expect: []ledger.Expect{absent(k)},
				Put: []ledger.Put{put(key("b"), "two")}, Rows: rows("row"),
			}
			again := f.apply(other)
			require.True(f, again.Applied)
			require.True(f, first.Now.Equal(again.Now))
			f.lacks(key("b"))
			require.Empty(f, f.rows(ledger.RowRange{}))
		}},
		{"a repeat is answered though its time bounds have passed", func(f *fixture) {
			s := f.step(ledger.Step{Before: f.now().Add(time.Second), Rows: rows("row")})
			first := f.apply(s)
			require.True(f, first.Applied)
			f.advance(ledger.NonceLife - time.Second)
			again := f.apply(s)
			require.True(f, again.Applied)
			require.True(f, first.Now.Equal(again.Now))
			require.Len(f, f.rows(ledger.RowRange{}), 1)
		}},
		{"a repeat of a refused step is judged anew", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			s := f.step(ledger.Step{
				Expect: []ledger.Expect{absent(k)}, Put: []ledger.Put{put(k, "two")}, Rows: rows("row"),
			})
			f.refused(s)
			f.refused(s)
			f.must(ledger.Step{Delete: []ledger.Key{k}})
			require.True(f, f.apply(s).Applied)
			f.holds(k, "two")
			require.Len(f, f.rows(ledger.RowRange{}), 1)
		}},
		{"the same nonce in two scopes is two steps", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			require.True(f, f.apply(s).Applied)
			f.scope = freshScope()
			require.True(f, f.apply(s).Applied)
			f.holds(k, "one")
		}},
	}
}

// voidCases: a step that must never happen does not, however late it arrives.
func voidCases() []testCase {
	k := key("a")
	late := func(f *fixture) ledger.Step {
		return f.step(ledger.Step{
			Put:  []ledger.Put{put(k, "late")},
			Add:  []ledger.Add{{Key: counter("n"), Delta: 1}},
			Rows: rows("late"),
		})
	}
	voided := func(f *fixture, s ledger.Step) {
		f.Helper()
		res := f.apply(s)
		require.True(f, res.Voided)
		require.False(f, res.Applied)
		require.Empty(f, res.Counters)
		f.lacks(k)
		require.Empty(f, f.rows(ledger.RowRange{}))
		require.Zero(f, f.countOf(counter("n")))
	}
	return []testCase{
		{"a step that arrives after it was voided changes nothing", func(f *fixture) {
			s := late(f)
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			voided(f, s)
			voided(f, s)
		}},
		{"several are voided by one step", func(f *fixture) {
			a, b := late(f), late(f)
			f.must(ledger.Step{Void: []ledger.Nonce{a.Nonce, b.Nonce}})
			voided(f, a)
			voided(f, b)
		}},
		{"a voided step stays voided while its time would still do", func(f *fixture) {
			s := late(f)
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			f.advance(ledger.VoidLife - time.Second)
			s.At = f.now()
			voided(f, s)
		}},
		{"a voided step is refused as voided though its time has passed", func(f *fixture) {
			s := late(f)
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			f.advance(ledger.NonceLife)
			voided(f, s)
		}},
		{"voiding what was applied does not undo it", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}, Rows: rows("row")})
			first := f.apply(s)
			require.True(f, first.Applied)
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			f.holds(k, "one")
			again := f.apply(s)
			require.True(f, again.Applied, "the first result, not the void")
			require.True(f, first.Now.Equal(again.Now))
			require.Len(f, f.rows(ledger.RowRange{}), 1)
		}},
		{"a refused step that is voided is never applied", func(f *fixture) {
			f.must(ledger.Step{Put: []ledger.Put{put(key("b"), "in the way")}})
			s := late(f)
			s.Expect = []ledger.Expect{absent(key("b"))}
			f.refused(s)
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}, Delete: []ledger.Key{key("b")}})
			voided(f, s)
		}},
		{"a refused step voids nothing", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			f.refused(ledger.Step{
				Expect: []ledger.Expect{at(k, ledger.NewNonce())}, Void: []ledger.Nonce{s.Nonce},
			})
			require.True(f, f.apply(s).Applied)
		}},
		{"a repeated void voids once", func(f *fixture) {
			s := late(f)
			v := f.step(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			require.True(f, f.apply(v).Applied)
			require.True(f, f.apply(v).Applied)
			voided(f, s)
		}},
		{"a void binds its own scope only", func(f *fixture) {
			s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}})
			home := f.scope
			f.scope = freshScope()
			f.must(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
			f.scope = home
			require.True(f, f.apply(s).Applied)
		}},
	}
}
