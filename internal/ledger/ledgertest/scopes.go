package ledgertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// scopeCases: what is in one scope cannot be reached from another.
func scopeCases() []testCase {
	return []testCase{
		{"the same keys in two scopes never meet", func(f *fixture) {
			isolated(f, freshScope(), freshScope())
		}},
		{"scopes that differ in one bit never meet", func(f *fixture) {
			a := freshScope()
			first, last := a, a
			first[0] ^= 0x80
			last[15] ^= 1
			isolated(f, a, first)
			isolated(f, freshScope(), last)
		}},
		{"scopes at the ends of the range never meet", func(f *fixture) {
			var high ledger.Scope
			for i := range high {
				high[i] = 0xff
			}
			high[7], high[8] = freshScope()[0], freshScope()[0]
			next := high
			next[15] = 0xfe
			isolated(f, high, next)
		}},
		{"the platform's scope is a scope like any other", func(f *fixture) {
			isolated(f, ledger.Platform, freshScope())
		}},
	}
}

// isolated puts the same things under the same names into two scopes and sees
// that each changes alone.
func isolated(f *fixture, a, b ledger.Scope) {
	f.Helper()
	name := id("same")
	k, n := key(name), counter(name)
	now := f.now()
	entry := ledger.Entry{Index: ledger.ByName, Score: now, Member: name}
	step := func(data string) ledger.Step {
		return ledger.Step{
			Expect: []ledger.Expect{absent(k)},
			Put:    []ledger.Put{put(k, data)},
			Add:    []ledger.Add{{Key: n, Delta: int64(len(data))}},
			Index:  []ledger.Entry{entry},
			Rows:   rows(name + data),
		}
	}
	stands := func(scope ledger.Scope, data string) {
		f.Helper()
		f.scope = scope
		f.holds(k, data)
		require.Equal(f, int64(len(data)), f.countOf(n))
		require.Contains(f, f.entries(ledger.EntryRange{Index: ledger.ByName}), name)
		own := []string{}
		for _, r := range f.rowData(ledger.RowRange{From: now, Newest: true}) {
			if len(r) > len(name) && r[:len(name)] == name {
				own = append(own, r[len(name):])
			}
		}
		require.Equal(f, []string{data}, own)
	}

	f.scope = a
	f.must(step("of a"))
	f.scope = b
	f.lacks(k)
	f.must(step("of scope b"))
	stands(a, "of a")
	stands(b, "of scope b")

	f.scope = a
	f.must(ledger.Step{Delete: []ledger.Key{k, n}, Unindex: []ledger.Entry{entry}})
	f.lacks(k)
	require.NotContains(f, f.entries(ledger.EntryRange{Index: ledger.ByName}), name)
	require.NoError(f, f.Store.Trim(f.Context(), a, ledger.ByName, now.Add(time.Hour)))
	stands(b, "of scope b")
}
