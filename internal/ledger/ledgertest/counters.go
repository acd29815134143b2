package ledgertest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// counterCases: numbers that many add to and nobody waits for.
func counterCases() []testCase {
	n := counter("n")
	add := func(k ledger.Key, delta int64) []ledger.Add { return []ledger.Add{{Key: k, Delta: delta}} }
	return []testCase{
		{"a counter starts at zero and each add returns the sum", func(f *fixture) {
			require.Equal(f, []int64{5}, f.apply(ledger.Step{Add: add(n, 5)}).Counters)
			require.Equal(f, []int64{3}, f.apply(ledger.Step{Add: add(n, -2)}).Counters)
			require.Equal(f, []int64{-4}, f.apply(ledger.Step{Add: add(n, -7)}).Counters)
		}},
		{"counters are returned in the order of the adds", func(f *fixture) {
			res := f.apply(ledger.Step{Add: []ledger.Add{
				{Key: counter("x"), Delta: 1}, {Key: counter("y"), Delta: 2}, {Key: counter("x"), Delta: 10},
			}})
			require.Equal(f, []int64{1, 2, 11}, res.Counters)
		}},
		{"a counter keeps digits a double cannot", func(f *fixture) {
			const exact = 1<<53 + 1
			require.Equal(f, []int64{exact}, f.apply(ledger.Step{Add: add(n, exact)}).Counters)
			require.Equal(f, []int64{exact + 2}, f.apply(ledger.Step{Add: add(n, 2)}).Counters)
			low := counter("low")
			require.Equal(f, []int64{-exact}, f.apply(ledger.Step{Add: add(low, -exact)}).Counters)
		}},
		{"a counter reads as decimal digits and has no version", func(f *fixture) {
			f.must(ledger.Step{Add: add(n, 1<<53+1)})
			v, ok := f.get(n)
			require.True(f, ok)
			require.Equal(f, "9007199254740993", string(v.Data))
			require.Zero(f, v.Version)
			f.must(ledger.Step{Add: add(n, -1<<53-1)})
			f.holds(n, "0")
		}},
		{"a deleted counter starts at zero again", func(f *fixture) {
			f.must(ledger.Step{Add: add(n, 5)})
			f.must(ledger.Step{Delete: []ledger.Key{n}})
			f.lacks(n)
			require.Equal(f, []int64{1}, f.apply(ledger.Step{Add: add(n, 1)}).Counters)
		}},
		{"concurrent adds never conflict and each sees its own sum", func(f *fixture) {
			const callers, each = 16, 8
			var mu sync.Mutex
			var wg sync.WaitGroup
			sums := map[int64]int{}
			applied := 0
			f.now()
			for range callers {
				wg.Go(func() {
					for range each {
						res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
							Nonce: ledger.NewNonce(), At: f.Store.Now(), Add: add(n, 1),
						})
						mu.Lock()
						if err == nil && res.Applied && len(res.Counters) == 1 {
							applied++
							sums[res.Counters[0]]++
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Equal(f, callers*each, applied)
			require.Len(f, sums, callers*each, "each result is distinct")
			require.Equal(f, int64(callers*each), f.countOf(n))
		}},
	}
}
