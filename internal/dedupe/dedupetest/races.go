package dedupetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// together runs n functions at once and waits for all of them.
func together(n int, each func(i int)) {
	var ready, wg sync.WaitGroup
	ready.Add(n)
	for i := range n {
		wg.Go(func() {
			ready.Done()
			ready.Wait()
			each(i)
		})
	}
	wg.Wait()
}

func contentionCases() []testCase {
	return []testCase{
		{"64 at once for one identity: exactly one acquires", func(f *fixture) {
			clients := []*dedupe.Claims{f.claims}
			if f.Peer != nil {
				clients = append(clients, f.over(f.Peer(f.T)))
			}
			for round := range 5 {
				r := derived(strings.Repeat("x", round+1))
				verdicts := make([]dedupe.Verdict, 64)
				errs := make([]error, 64)
				together(64, func(i int) {
					var got dedupe.Claimed
					got, errs[i] = clients[i%len(clients)].Claim(f.Context(), f.newClaim(r))
					verdicts[i] = got.Verdict
				})
				count := map[dedupe.Verdict]int{}
				for i := range verdicts {
					require.NoError(f, errs[i])
					count[verdicts[i]]++
				}
				require.Equal(f, map[dedupe.Verdict]int{dedupe.Acquired: 1, dedupe.Busy: 63}, count)
			}
			require.Equal(f, 5*64, len(f.rows()), "every caller left its row")
		}},
		{"64 keys for one body at once: exactly one acquires", func(f *fixture) {
			verdicts := make([]dedupe.Verdict, 64)
			together(64, func(i int) {
				got, err := f.claims.Claim(f.Context(), f.newClaim(supplied(rand.Text(), "same")))
				if err == nil {
					verdicts[i] = got.Verdict
				}
			})
			count := map[dedupe.Verdict]int{}
			for _, v := range verdicts {
				count[v]++
			}
			require.Equal(f, map[dedupe.Verdict]int{dedupe.Acquired: 1, dedupe.Twin: 63}, count)
		}},
		{"64 replays at once are all counted", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, "x")
			counts := make([]int64, 64)
			together(64, func(i int) {
				if got, err := f.claims.Claim(f.Context(), f.newClaim(derived("a"))); err == nil {
					counts[i] = got.Replays
				}
			})
			seen := map[int64]bool{}
			for _, n := range counts {
				seen[n] = true
			}
			require.Len(f, seen, 64)
			require.False(f, seen[0])
			require.True(f, seen[64])
		}},
		{"two operators at once: one resolves, the other is told", func(f *fixture) {
			for range 10 {
				g := newFixture(f.T, f.Harness)
				h := g.acquire(derived("a"))
				g.settle(h, dedupe.Held, "")
				errs := make([]error, 2)
				together(2, func(i int) {
					_, errs[i] = g.resolve(h, []dedupe.State{dedupe.Succeeded, dedupe.NotDone}[i], "1")
				})
				if errs[0] != nil {
					errs[0], errs[1] = errs[1], errs[0]
				}
				require.NoError(g, errs[0])
				require.ErrorIs(g, errs[1], dedupe.ErrNotHeld)
			}
		}},
		{"a resolution against a late answer: one of the two orders", func(f *fixture) {
			for range 10 {
				g := newFixture(f.T, f.Harness)
				h := g.lost(derived("a"))
				g.Advance(timeout + tick)
				var settled, resolved error
				id := h.Record.ID // the handle is the owner's alone
				together(2, func(i int) {
					if i == 0 {
						_, settled = g.claims.Settle(g.Context(), h, settlement(dedupe.Succeeded, "late"))
					} else {
						_, resolved = g.resolveID(id, dedupe.NotDone, "")
					}
				})
				switch {
				case settled == nil:
					require.ErrorIs(g, resolved, dedupe.ErrNotHeld)
					require.Equal(g, "late", string(g.wants(dedupe.Replayed, derived("a")).Answer))
				default:
					require.ErrorIs(g, settled, dedupe.ErrLate)
					require.NoError(g, resolved)
					g.acquire(derived("a"))
				}
			}
		}},
		{"two sweeps at once move each action once", func(f *fixture) {
			for i := range 20 {
				f.acquire(derived(strings.Repeat("y", i)))
			}
			f.Advance(lease + tick)
			_, err := f.Store.Read(f.Context(), f.scope)
			require.NoError(f, err)
			errs := make([]error, 2)
			together(2, func(i int) { _, errs[i] = f.claims.Sweep(f.Context(), f.scope, scribe) })
			require.NoError(f, errors.Join(errs...))
			require.Equal(f, 40, len(f.rows()), "twenty claims, twenty losses")
		}},
	}
}

func answerCases() []testCase {
	big := bytes.Repeat([]byte(`{"n":12345678901234567,"list":[]},`), 1<<20/34)
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	answers := map[string][]byte{
		"empty list":  []byte(`[]`),
		"17 digits":   []byte(`{"id":12345678901234567}`),
		"whitespace":  []byte("{ \"a\" :\t1.10 }\n"),
		"empty":       {},
		"one byte":    {0},
		"binary":      {0, 1, 0xff, 0xfe, '\r', '\n', 0},
		"511 bytes":   bytes.Repeat([]byte("a"), 511),
		"512 bytes":   bytes.Repeat([]byte("a"), 512),
		"1 MiB":       big,
		"1 MiB noise": noise,
	}
	var cases []testCase
	for name, answer := range answers {
		cases = append(cases, testCase{"come back byte for byte: " + name, func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, string(answer))
			for range 2 {
				got := f.wants(dedupe.Replayed, derived("a"))
				require.True(f, bytes.Equal(answer, got.Answer))
			}
			f.Store = f.Reopen(f.T)
			f.claims = f.over(f.Store)
			require.True(f, bytes.Equal(answer, f.wants(dedupe.Replayed, derived("a")).Answer))
		}})
	}
	// A clock that ran ahead of a window, and was put back, must not have freed what the
	// window still covers: the answer is gone then, and the repeat is refused.
	cases = append(cases, testCase{"end long before what binds their identity", func(f *fixture) {
		identity, id := derived("a").identity(), f.done(derived("a"), dedupe.Succeeded, "x").ID
		f.Advance(window + 12*time.Hour)
		f.storeNow()
		binding, answer := ledger.Key{Kind: ledger.Binding, ID: string(identity[:])}, ledger.Key{Kind: ledger.Answer, ID: string(id[:])}
		snap, err := f.Store.Read(f.Context(), f.scope, ledger.Fetch{Key: binding, Follow: []ledger.Kind{ledger.Action}}, ledger.Fetch{Key: answer})
		require.NoError(f, err)
		require.Contains(f, snap.Values, binding)
		require.Contains(f, snap.Values, ledger.Key{Kind: ledger.Action, ID: string(id[:])})
		require.NotContains(f, snap.Values, answer)
	}})
	return append(cases, testCase{"every state is found again after a restart", func(f *fixture) {
		f.done(derived("s"), dedupe.Succeeded, "x")
		f.done(derived("r"), dedupe.Refused, "")
		f.done(derived("h"), dedupe.Held, "")
		inFlight := f.acquire(derived("i"))
		f.acquire(supplied("k1", "t"))
		f.wants(dedupe.Twin, supplied("k2", "t"))
		f.Store = f.Reopen(f.T)
		f.claims = f.over(f.Store)
		f.wants(dedupe.Replayed, derived("s"))
		f.wants(dedupe.Replayed, derived("r"))
		f.wants(dedupe.OnHold, derived("h"))
		f.wants(dedupe.Busy, derived("i"))
		f.wants(dedupe.Twin, supplied("k2", "t"))
		f.settle(inFlight, dedupe.Succeeded, "after")
		require.Equal(f, "after", string(f.wants(dedupe.Replayed, derived("i")).Answer))
	}})
}

func isolationCases() []testCase {
	return []testCase{
		{"two tenants with the same identities never meet", func(f *fixture) {
			other := newFixture(f.T, f.Harness)
			require.NotEqual(f, f.scope, other.scope)
			f.done(supplied("k", "a"), dedupe.Succeeded, "mine")
			h := other.acquire(supplied("k", "a"))
			other.settle(h, dedupe.Succeeded, "theirs")
			require.Equal(f, "mine", string(f.wants(dedupe.Replayed, supplied("k", "a")).Answer))
			require.Equal(f, "theirs", string(other.wants(dedupe.Replayed, supplied("k", "a")).Answer))
			_, err := f.claims.Get(f.Context(), f.scope, h.Record.ID)
			require.ErrorIs(f, err, dedupe.ErrNotFound)
			_, err = f.claims.Resolve(f.Context(), f.scope, h.Record.ID, dedupe.Resolution{State: dedupe.NotDone, Scribe: scribe})
			require.ErrorIs(f, err, dedupe.ErrNotFound)
			require.Len(f, f.rows(), 3)
			require.Len(f, other.rows(), 3)
		}},
		{"twins do not reach across tenants", func(f *fixture) {
			other := newFixture(f.T, f.Harness)
			f.acquire(supplied("k1", "a"))
			other.acquire(supplied("k2", "a"))
		}},
	}
}

func failureCases() []testCase {
	return []testCase{
		{"an undecodable record is never sent again", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Succeeded, "x")
			f.Corrupt(f.T, f.scope, ledger.Key{Kind: ledger.Action, ID: string(h.Record.ID[:])})
			for range 2 {
				got, err := f.claims.Claim(f.Context(), f.newClaim(derived("a")))
				require.Error(f, err)
				require.True(f, errors.Is(err, dedupe.ErrUnreadable) || errors.Is(err, ledger.ErrCorrupt))
				require.Empty(f, got.Verdict)
			}
		}},
		{"an undecodable answer is never sent again", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Succeeded, "x")
			f.Corrupt(f.T, f.scope, ledger.Key{Kind: ledger.Answer, ID: string(h.Record.ID[:])})
			_, err := f.claims.Claim(f.Context(), f.newClaim(derived("a")))
			require.True(f, errors.Is(err, dedupe.ErrUnreadable) || errors.Is(err, ledger.ErrCorrupt))
		}},
		{"a record of a format this release does not know is never sent again", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Succeeded, "x")
			key := ledger.Key{Kind: ledger.Action, ID: string(h.Record.ID[:])}
			res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
				Nonce: ledger.NewNonce(), At: f.Store.Now(), Put: []ledger.Put{{Key: key, Data: []byte{99, 1, 2, 3}}},
			})
			require.NoError(f, err)
			require.True(f, res.Applied)
			_, err = f.claims.Claim(f.Context(), f.newClaim(derived("a")))
			require.ErrorIs(f, err, dedupe.ErrUnreadable)
			_, err = f.claims.Claim(f.Context(), f.newClaim(derived("a"), dryRun))
			require.ErrorIs(f, err, dedupe.ErrUnreadable)
		}},
		{"a listing shows what cannot be read beside the rest", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, "x")
			h := f.acquire(derived("b"))
			f.done(derived("c"), dedupe.Succeeded, "x")
			unsettled, err := f.claims.Unsettled(f.Context(), f.scope, "nobody's")
			require.NoError(f, err)
			require.False(f, unsettled)
			res, err := f.Store.Apply(f.Context(), f.scope, ledger.Step{
				Nonce: ledger.NewNonce(), At: f.Store.Now(),
				Put: []ledger.Put{{Key: ledger.Key{Kind: ledger.Action, ID: string(h.Record.ID[:])}, Data: []byte{99, 1, 2, 3}}},
			})
			require.NoError(f, err)
			require.True(f, res.Applied)
			for filter, want := range map[dedupe.Filter]int{{}: 3, {State: dedupe.Held}: 1, {KeyID: "somebody"}: 0} {
				page, _, err := f.claims.List(f.Context(), f.scope, filter, "", 10)
				require.NoError(f, err)
				require.Len(f, page, want, "%+v", filter)
				for _, found := range page {
					if found.Record == nil {
						require.Equal(f, h.Record.ID, found.Lost)
						require.WithinDuration(f, h.Record.Created, found.LostAt, 0)
					}
				}
			}
			_, err = f.claims.Unsettled(f.Context(), f.scope, "nobody's")
			require.ErrorIs(f, err, dedupe.ErrUnreadable, "it may be one of that connection's")
		}},
		{"an undecodable binding is never sent again", func(f *fixture) {
			r := derived("a")
			id := r.identity()
			f.done(r, dedupe.Succeeded, "x")
			f.Corrupt(f.T, f.scope, ledger.Key{Kind: ledger.Binding, ID: string(id[:])})
			_, err := f.claims.Claim(f.Context(), f.newClaim(r))
			require.True(f, errors.Is(err, dedupe.ErrUnreadable) || errors.Is(err, ledger.ErrCorrupt))
		}},
		{"a cancelled claim acquires nothing, once abandoned", func(f *fixture) {
			ctx, cancel := context.WithCancel(f.Context())
			cancel()
			_, err := f.claims.Claim(ctx, f.newClaim(derived("a")))
			var uncertain *dedupe.UncertainError
			require.ErrorAs(f, err, &uncertain)
			require.NoError(f, f.claims.Abandon(f.Context(), uncertain.Abandon))
			f.acquire(derived("a"))
		}},
		{"a closed store acquires nothing", func(f *fixture) {
			require.NoError(f, f.Store.Close())
			_, err := f.claims.Claim(f.Context(), f.newClaim(derived("a")))
			require.ErrorIs(f, err, ledger.ErrUnavailable)
		}},
	}
}

func listCases() []testCase {
	return []testCase{
		{"newest first, by pages, and by filter", func(f *fixture) {
			var ids []dedupe.ActionID
			for i := range 7 {
				h := f.acquire(derived(time.Duration(i).String()))
				if i%2 == 0 {
					f.settle(h, dedupe.Succeeded, "x")
				}
				ids = append([]dedupe.ActionID{h.Record.ID}, ids...)
				f.Advance(tick)
				_, err := f.Store.Read(f.Context(), f.scope) // the next id is of a later time
				require.NoError(f, err)
			}
			var got []dedupe.ActionID
			cursor := ""
			for {
				page, next, err := f.claims.List(f.Context(), f.scope, dedupe.Filter{}, cursor, 3)
				require.NoError(f, err)
				for _, p := range page {
					got = append(got, p.Record.ID)
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			require.Equal(f, ids, got)
			page, next, err := f.claims.List(f.Context(), f.scope, dedupe.Filter{State: dedupe.InFlight}, "", 10)
			require.NoError(f, err)
			require.Len(f, page, 3)
			require.Empty(f, next)
			page, _, err = f.claims.List(f.Context(), f.scope, dedupe.Filter{Connection: "other"}, "", 10)
			require.NoError(f, err)
			require.Empty(f, page)
			_, _, err = f.claims.List(f.Context(), f.scope, dedupe.Filter{}, "nonsense", 10)
			require.ErrorIs(f, err, dedupe.ErrCursor)
		}},
		{"a list reads no answers", func(f *fixture) {
			// Answers of a megabyte each would make one page of a list hundreds of them.
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Succeeded, "x")
			reads := &reading{Store: f.Store}
			page, _, err := f.over(reads).List(f.Context(), f.scope, dedupe.Filter{}, "", 10)
			require.NoError(f, err)
			require.Len(f, page, 1)
			require.Equal(f, h.Record.ID, page[0].Record.ID)
			require.NotContains(f, reads.kinds, ledger.Answer)
			require.Contains(f, reads.kinds, ledger.Action)
		}},
		{"a connection with an unsettled write is known", func(f *fixture) {
			unsettled := func() bool {
				got, err := f.claims.Unsettled(f.Context(), f.scope, "conn_1")
				require.NoError(f, err)
				return got
			}
			require.False(f, unsettled())
			h := f.acquire(derived("a"))
			require.True(f, unsettled())
			f.settle(h, dedupe.Held, "")
			require.True(f, unsettled())
			other, err := f.claims.Unsettled(f.Context(), f.scope, "conn_2")
			require.NoError(f, err)
			require.False(f, other)
			_, err = f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			require.False(f, unsettled())
		}},
	}
}

// reading is a store that notes which kinds of values are read.
type reading struct {
	ledger.Store
	kinds []ledger.Kind
}

func (r *reading) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	for _, f := range fetch {
		r.kinds = append(append(r.kinds, f.Key.Kind), f.Follow...)
	}
	return r.Store.Read(ctx, scope, fetch...)
}
