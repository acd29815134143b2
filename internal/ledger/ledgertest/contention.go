package ledgertest

import (
	"fmt"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// contentionCases: many want the same thing at once, and one gets it.
func contentionCases() []testCase {
	return []testCase{
		{"64 callers claim one absent key and one wins", func(f *fixture) {
			f.now()
			oneWinner(f, []ledger.Store{f.Store})
		}},
		{"clients of the same data claim one absent key and one wins", func(f *fixture) {
			if f.Peer == nil {
				f.Skip("this driver has one client only")
			}
			f.now()
			oneWinner(f, []ledger.Store{f.Store, f.Peer(f.T), f.Peer(f.T)})
		}},
		{"a client sees what another wrote", func(f *fixture) {
			if f.Peer == nil {
				f.Skip("this driver has one client only")
			}
			peer := *f
			peer.Store = f.Peer(f.T)
			s := f.step(ledger.Step{Put: []ledger.Put{put(key("a"), "one")}, Rows: rows("row")})
			first := f.apply(s)
			require.True(f, first.Applied)
			peer.holds(key("a"), "one")
			require.Len(f, peer.rows(ledger.RowRange{}), 1)
			again := peer.apply(s)
			require.True(f, again.Applied, "a repeat through another client is a repeat")
			require.True(f, first.Now.Equal(again.Now))
			require.Len(f, f.rows(ledger.RowRange{}), 1)

			late := f.step(ledger.Step{Put: []ledger.Put{put(key("b"), "late")}})
			peer.must(ledger.Step{Void: []ledger.Nonce{late.Nonce}})
			require.True(f, f.apply(late).Voided)
		}},
		{"a chain of compare-and-set loses no step", chain},
		{"what callers see at the same time has an order", func(f *fixture) {
			f.now()
			clients := []ledger.Store{f.Store}
			if f.Peer != nil {
				clients = append(clients, f.Peer(f.T))
			}
			Linearizable(f.T, clients, 8, 60)
		}},
		{"one step sent by many is applied once", func(f *fixture) {
			f.now()
			s := f.step(ledger.Step{
				Expect: []ledger.Expect{absent(key("a"))}, Put: []ledger.Put{put(key("a"), "one")},
				Add: []ledger.Add{{Key: counter("n"), Delta: 1}}, Rows: rows("row"),
			})
			results := make([]ledger.Result, 32)
			var wg sync.WaitGroup
			for i := range results {
				wg.Go(func() { results[i], _ = f.Store.Apply(f.Context(), f.scope, s) })
			}
			wg.Wait()
			for _, res := range results {
				require.True(f, res.Applied)
				require.True(f, results[0].Now.Equal(res.Now))
				require.Equal(f, []int64{1}, res.Counters)
			}
			require.Len(f, f.rows(ledger.RowRange{}), 1)
			require.Equal(f, int64(1), f.countOf(counter("n")))
		}},
		{"a step and its void sent together leave one story", stepAgainstVoid},
		{"a read never sees half a step", wholeSteps},
	}
}

func oneWinner(f *fixture, clients []ledger.Store) {
	f.Helper()
	for _, c := range clients {
		_, err := c.Read(f.Context(), f.scope)
		require.NoError(f, err)
	}
	const callers = 64
	k := key("contended")
	results := make([]ledger.Result, callers)
	errs := make([]error, callers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			<-start
			c := clients[i%len(clients)]
			results[i], errs[i] = c.Apply(f.Context(), f.scope, ledger.Step{
				Nonce:  ledger.NewNonce(),
				At:     c.Now(),
				Expect: []ledger.Expect{absent(k)},
				Put:    []ledger.Put{put(k, fmt.Sprint(i))},
				Rows:   rows(fmt.Sprint(i)),
				Fetch:  fetch(k),
			})
		})
	}
	close(start)
	wg.Wait()

	winner := -1
	for i, res := range results {
		require.NoError(f, errs[i])
		if res.Applied {
			require.Equal(f, -1, winner, "exactly one winner")
			winner = i
		}
	}
	require.NotEqual(f, -1, winner)
	for i, res := range results {
		if i != winner {
			require.Equal(f, fmt.Sprint(winner), string(res.Values[k].Data), "a loser is shown the winner")
		}
	}
	f.holds(k, fmt.Sprint(winner))
	require.Equal(f, []string{fmt.Sprint(winner)}, f.rowData(ledger.RowRange{}))
}

func chain(f *fixture) {
	k := key("chain")
	f.must(ledger.Step{Put: []ledger.Put{put(k, "")}})
	const callers, each = 8, 4
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for done := 0; done < each; {
				snap, err := f.Store.Read(f.Context(), f.scope, ledger.Fetch{Key: k})
				if err != nil {
					return
				}
				v := snap.Values[k]
				res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
					Nonce: ledger.NewNonce(), At: snap.Now,
					Expect: []ledger.Expect{{Key: k, Version: v.Version}},
					Put:    []ledger.Put{put(k, string(v.Data)+"x")},
					Rows:   rows("x"),
				})
				if err != nil {
					return
				}
				if res.Applied {
					done++
				}
			}
		})
	}
	wg.Wait()
	v, _ := f.get(k)
	require.Len(f, v.Data, callers*each)
	require.Len(f, f.rows(ledger.RowRange{}), callers*each)
}

func stepAgainstVoid(f *fixture) {
	for range 32 {
		k := key(id("a"))
		s := f.step(ledger.Step{Put: []ledger.Put{put(k, "one")}, Rows: rows(k.ID)})
		v := f.step(ledger.Step{Void: []ledger.Nonce{s.Nonce}})
		var res, voidRes ledger.Result
		var err, voidErr error
		var wg sync.WaitGroup
		wg.Go(func() { res, err = f.Store.Apply(f.Context(), f.scope, s) })
		wg.Go(func() { voidRes, voidErr = f.Store.Apply(f.Context(), f.scope, v) })
		wg.Wait()
		require.NoError(f, err)
		require.NoError(f, voidErr)
		require.True(f, voidRes.Applied)
		require.NotEqual(f, res.Applied, res.Voided)
		_, exists := f.get(k)
		require.Equal(f, res.Applied, exists)
		last := f.rowData(ledger.RowRange{Newest: true, Limit: 1})
		require.Equal(f, res.Applied, len(last) == 1 && last[0] == k.ID)
	}
}

// wholeSteps keeps two values and a counter in lockstep and looks at them all
// the while.
func wholeSteps(f *fixture) {
	a, b := key("a"), key("b")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	f.must(ledger.Step{Put: []ledger.Put{put(a, "0"), put(b, "0")}, Add: []ledger.Add{{Key: counter("n")}}})
	wg.Go(func() {
		defer close(stop)
		for i := 1; i <= 50; i++ {
			_, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
				Nonce: ledger.NewNonce(), At: f.Store.Now(),
				Put: []ledger.Put{put(a, fmt.Sprint(i)), put(b, fmt.Sprint(i))},
				Add: []ledger.Add{{Key: counter("n"), Delta: 1}},
			})
			if err != nil {
				return
			}
		}
	})
	defer wg.Wait()
	last := time.Time{}
	for {
		snap := f.read(fetch(a, b, counter("n"))...)
		require.Equal(f, snap.Values[a].Data, snap.Values[b].Data)
		require.Equal(f, snap.Values[a].Version, snap.Values[b].Version)
		require.Equal(f, string(snap.Values[a].Data), string(snap.Values[counter("n")].Data))
		require.False(f, snap.Now.Before(last), "time does not go back")
		last = snap.Now
		select {
		case <-stop:
			return
		default:
		}
	}
}
