package pebblestore_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// BenchmarkClaim makes steps of the size of a claim, on the disk, each synced:
// two conditions, three values (one of 600 bytes), two index entries and a row.
// All callers share one scope, or have one each.
func BenchmarkClaim(b *testing.B) {
	for _, scopes := range []string{"one scope", "own scopes"} {
		for _, callers := range []int{1, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d callers", scopes, callers), func(b *testing.B) {
				benchmarkClaim(b, callers, scopes == "one scope")
			})
		}
	}
}

func benchmarkClaim(b *testing.B, callers int, shared bool) {
	s, err := pebblestore.Open(b.TempDir(), pebblestore.Options{})
	require.NoError(b, err)
	work := make(chan int, callers)
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for c := range callers {
		sc := ledger.ScopeOf(fmt.Sprint(c))
		if shared {
			sc = scope
		}
		wg.Go(func() {
			for i := range work {
				res, err := s.Apply(context.Background(), sc, claimLike(s, i))
				if err != nil || !res.Applied {
					b.Errorf("not applied: %v", err)
				}
			}
		})
	}
	for i := range b.N {
		work <- i
	}
	close(work)
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "steps/s")
	require.NoError(b, s.Close())
}

func claimLike(s *pebblestore.Store, i int) ledger.Step {
	n := ledger.NewNonce()
	action := string(n[:])
	binding := ledger.Key{Kind: ledger.Binding, ID: fmt.Sprintf("%032d", i)}
	record := ledger.Key{Kind: ledger.Action, ID: action}
	twins := ledger.Key{Kind: ledger.Twins, ID: binding.ID}
	now := s.Now()
	return ledger.Step{
		Nonce:  n,
		At:     now,
		Expect: []ledger.Expect{{Key: binding}, {Key: twins}},
		Put: []ledger.Put{
			{Key: binding, Data: []byte(action)},
			{Key: record, Data: []byte(strings.Repeat("r", 600))},
			{Key: twins, Data: []byte(action)},
		},
		Index: []ledger.Entry{
			{Index: ledger.ByCreated, Score: now, Member: action},
			{Index: ledger.ByLease, Score: now, Member: action},
		},
		Rows: [][]byte{[]byte(strings.Repeat("a", 300))},
	}
}
