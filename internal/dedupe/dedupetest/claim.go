package dedupetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

func claimCases() []testCase {
	return []testCase{
		{"absent is acquired, with its row", func(f *fixture) {
			h := f.acquire(derived("a"))
			require.Equal(f, []string{"claimed in_flight"}, f.rows())
			require.Equal(f, h.Record.Created.Add(lease), h.Record.LeaseEnd)
			require.Equal(f, h.Record.Created.Add(window), h.Record.WindowEnd)
			require.Equal(f, h.Record.Created.Add(lease+timeout), h.Record.Deadline)
			require.Equal(f, h.Record, f.get(h).Record, "what the owner holds is what is stored")
			require.Equal(f, 1, f.entries(ledger.ByLease))
		}},
		{"own token is acquired again, and only one row is written", func(f *fixture) {
			cl := f.newClaim(derived("a"))
			first, err := f.claims.Claim(f.Context(), cl)
			require.NoError(f, err)
			again, err := f.claims.Claim(f.Context(), cl)
			require.NoError(f, err)
			require.Equal(f, dedupe.Acquired, again.Verdict)
			require.Equal(f, first.Record.ID, again.Record.ID)
			require.Equal(f, []string{"claimed in_flight"}, f.rows())
			f.settle(again.Handle, dedupe.Succeeded, "x")
		}},
		{"in flight answers in_flight", func(f *fixture) {
			h := f.acquire(derived("a"))
			got := f.wants(dedupe.Busy, derived("a"))
			require.Equal(f, h.Record.ID, got.Record.ID)
			require.Equal(f, []string{"claimed in_flight", "in_flight in_flight"}, f.rows())
		}},
		{"in flight stays in flight while its lease is renewed, window or not", func(f *fixture) {
			h := f.acquire(derived("a"), withWindow(time.Minute))
			for range 4 {
				f.Advance(lease - time.Second)
				require.NoError(f, f.claims.Renew(f.Context(), h))
			}
			f.wants(dedupe.Busy, derived("a"))
		}},
		{"in flight with its lease over is held, with both rows", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.Advance(lease + tick)
			got := f.wants(dedupe.OnHold, derived("a"))
			require.Equal(f, h.Record.ID, got.Record.ID)
			require.True(f, got.Record.OwnerLost)
			require.Equal(f, []string{"claimed in_flight", "lease_lost held", "held_repeat held"}, f.rows())
			require.Equal(f, 0, f.entries(ledger.ByLease))
			require.Equal(f, 1, f.entries(ledger.ByHold))
		}},
		{"a lease ends at its last instant, not before", func(f *fixture) {
			h := f.acquire(derived("a"))
			snap, err := f.Store.Read(f.Context(), f.scope)
			require.NoError(f, err)
			f.Advance(h.Record.LeaseEnd.Sub(snap.Now) - 10*time.Second)
			f.wants(dedupe.Busy, derived("a"))
			f.Advance(10*time.Second + tick)
			f.wants(dedupe.OnHold, derived("a"))
		}},
		{"held answers held", func(f *fixture) {
			f.done(derived("a"), dedupe.Held, "")
			f.wants(dedupe.OnHold, derived("a"))
			require.Equal(f, []string{"claimed in_flight", "held held", "held_repeat held"}, f.rows())
		}},
		{"succeeded is replayed and counted", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, `{"id":1}`)
			for n := int64(1); n <= 3; n++ {
				got := f.wants(dedupe.Replayed, derived("a"))
				require.Equal(f, `{"id":1}`, string(got.Answer))
				require.Equal(f, n, got.Replays)
			}
			require.Equal(f, []string{"claimed in_flight", "succeeded succeeded",
				"replayed succeeded", "replayed succeeded", "replayed succeeded"}, f.rows())
		}},
		{"refused is replayed", func(f *fixture) {
			f.done(derived("a"), dedupe.Refused, "")
			got := f.wants(dedupe.Replayed, derived("a"))
			require.Equal(f, dedupe.Refused, got.Record.State)
		}},
		{"refused runs again with retry_refused, as a new action that names the old", func(f *fixture) {
			old := f.done(derived("a"), dedupe.Refused, "")
			h := f.acquire(derived("a"), retryRefused)
			require.NotEqual(f, old.ID, h.Record.ID)
			require.Equal(f, old.ID, h.Record.Previous.ID)
			require.Equal(f, dedupe.Refused, h.Record.Previous.State)
		}},
		{"retry_refused does not run anything but a refusal again", func(f *fixture) {
			f.done(derived("s"), dedupe.Succeeded, "x")
			f.wants(dedupe.Replayed, derived("s"), retryRefused)
			f.done(derived("h"), dedupe.Held, "")
			f.wants(dedupe.OnHold, derived("h"), retryRefused)
			f.acquire(derived("i"))
			f.wants(dedupe.Busy, derived("i"), retryRefused)
		}},
		{"succeeded is replayed to the last instant of its window, then claimed anew", func(f *fixture) {
			rec := f.done(derived("a"), dedupe.Succeeded, "x")
			snap, err := f.Store.Read(f.Context(), f.scope)
			require.NoError(f, err)
			f.Advance(rec.WindowEnd.Sub(snap.Now) - 10*time.Second)
			f.wants(dedupe.Replayed, derived("a"))
			f.Advance(10*time.Second + tick)
			h := f.acquire(derived("a"))
			require.Nil(f, h.Record.Previous, "an ended window is nothing to warn of")
		}},
		{"a replay does not extend the window", func(f *fixture) {
			f.done(derived("a"), dedupe.Succeeded, "x")
			for range 3 {
				f.Advance(window/4 + tick)
				f.wants(dedupe.Replayed, derived("a"))
			}
			f.Advance(window/4 + tick)
			f.acquire(derived("a"))
		}},
		{"a held write outlives a short window, until hold_until", func(f *fixture) {
			rec := f.done(derived("a"), dedupe.Held, "", withWindow(time.Minute))
			require.Equal(f, rec.Created.Add(dedupe.HoldAtLeast), rec.HoldUntil)
			f.Advance(dedupe.HoldAtLeast - time.Minute)
			f.wants(dedupe.OnHold, derived("a"))
		}},
		{"held past hold_until is claimed anew, and the old one lapses in the same step", func(f *fixture) {
			old := f.done(derived("a"), dedupe.Held, "")
			f.Advance(window + tick)
			h := f.acquire(derived("a"))
			require.Equal(f, old.ID, h.Record.Previous.ID)
			require.Equal(f, dedupe.Lapsed, h.Record.Previous.State)
			require.Equal(f, []string{"claimed in_flight", "held held", "lapsed lapsed", "claimed in_flight"}, f.rows())
			require.Equal(f, 0, f.entries(ledger.ByHold))
		}},
		{"released is claimed anew, at once", func(f *fixture) {
			f.done(derived("a"), dedupe.NotDone, "")
			h := f.acquire(derived("a"))
			require.Nil(f, h.Record.Previous)
		}},
		{"key_reused in every state, before anything else is told", func(f *fixture) {
			for state, prepare := range map[string]func(r request){
				"in flight": func(r request) { f.acquire(r) },
				"held":      func(r request) { f.done(r, dedupe.Held, "") },
				"succeeded": func(r request) { f.done(r, dedupe.Succeeded, "x") },
				"refused":   func(r request) { f.done(r, dedupe.Refused, "") },
			} {
				prepare(supplied(state, "one "+state))
				f.wants(dedupe.KeyReused, supplied(state, "two "+state))
				f.wants(dedupe.KeyReused, supplied(state, "two "+state), retryRefused, allowDuplicate)
			}
		}},
		{"a key is free again once its write is over", func(f *fixture) {
			f.done(supplied("k", "one"), dedupe.NotDone, "")
			f.acquire(supplied("k", "two"))
		}},
		{"may not acquire: nothing is written for a new write", func(f *fixture) {
			f.wants(dedupe.WouldAcquire, derived("a"), mayNotAcquire)
			require.Empty(f, f.rows())
			f.acquire(derived("a"))
		}},
		{"may not acquire: what exists answers all the same", func(f *fixture) {
			f.done(derived("s"), dedupe.Succeeded, "x")
			f.wants(dedupe.Replayed, derived("s"), mayNotAcquire)
			f.done(derived("h"), dedupe.Held, "")
			f.wants(dedupe.OnHold, derived("h"), mayNotAcquire)
			f.acquire(derived("i"))
			f.wants(dedupe.Busy, derived("i"), mayNotAcquire)
			f.done(derived("r"), dedupe.Refused, "")
			f.wants(dedupe.Replayed, derived("r"), mayNotAcquire)
			f.wants(dedupe.WouldAcquire, derived("r"), mayNotAcquire, retryRefused)
		}},
		{"a failed guard stops an acquisition and nothing else", func(f *fixture) {
			f.done(derived("s"), dedupe.Succeeded, "x")
			gone := func(c *dedupe.Claim) {
				c.Guard = []ledger.Expect{{Key: ledger.Key{Kind: ledger.Connection, ID: "billing"}, Version: ledger.NewNonce().Version()}}
			}
			_, err := f.claims.Claim(f.Context(), f.newClaim(derived("a"), gone))
			require.ErrorIs(f, err, dedupe.ErrGuard)
			require.Equal(f, 2, len(f.rows()))
			f.wants(dedupe.Replayed, derived("s"), gone)
		}},
		{"without its basis nothing is told and nothing written, whatever the verdict", func(f *fixture) {
			gone := func(c *dedupe.Claim) {
				c.Basis = []ledger.Expect{{Key: ledger.Key{Kind: ledger.Connection, ID: "billing"}, Version: ledger.NewNonce().Version()}}
			}
			f.done(derived("s"), dedupe.Succeeded, "x")
			f.done(derived("r"), dedupe.Refused, "")
			f.done(derived("h"), dedupe.Held, "")
			f.acquire(supplied("k", "i"))
			f.Advance(tick)
			before := f.rows()
			for name, r := range map[string]request{
				"acquired": derived("new"), "replayed": derived("s"), "refusal": derived("r"), "held": derived("h"),
				"in flight": supplied("k", "i"), "key reused": supplied("k", "other"), "twin": derived("i"),
			} {
				for _, how := range []option{func(*dedupe.Claim) {}, mayNotAcquire, dryRun} {
					got, err := f.claims.Claim(f.Context(), f.newClaim(r, gone, how))
					require.ErrorIs(f, err, dedupe.ErrGuard, name)
					require.Empty(f, got.Verdict, name)
				}
			}
			require.Equal(f, before, f.rows())
			require.Equal(f, int64(1), f.wants(dedupe.Replayed, derived("s")).Replays)
		}},
		{"the basis holds in the very step of the verdict", func(f *fixture) {
			basis := ledger.Key{Kind: ledger.Connection, ID: "billing"}
			put := func() ledger.Version {
				s := ledger.Step{Nonce: ledger.NewNonce(), At: f.Store.Now(), Put: []ledger.Put{{Key: basis, Data: []byte("x")}}}
				res, err := f.Store.Apply(f.Context(), f.scope, s)
				require.NoError(f, err)
				require.True(f, res.Applied)
				return s.Nonce.Version()
			}
			version := put()
			on := func(c *dedupe.Claim) { c.Basis = []ledger.Expect{{Key: basis, Version: version}} }
			h := f.acquire(derived("a"), on)
			f.wants(dedupe.Busy, derived("a"), on)
			f.settle(h, dedupe.Succeeded, "x")
			f.wants(dedupe.Replayed, derived("a"), on)
			f.wants(dedupe.Replayed, derived("a"), on, dryRun)
			put()
			_, err := f.claims.Claim(f.Context(), f.newClaim(derived("a"), on))
			require.ErrorIs(f, err, dedupe.ErrGuard)
			_, err = f.claims.Claim(f.Context(), f.newClaim(derived("b"), on))
			require.ErrorIs(f, err, dedupe.ErrGuard)
		}},
	}
}

func dryRunCases() []testCase {
	return []testCase{
		{"tells every verdict and writes nothing", func(f *fixture) {
			f.done(derived("s"), dedupe.Succeeded, "x")
			f.done(derived("r"), dedupe.Refused, "")
			f.done(derived("h"), dedupe.Held, "")
			f.acquire(supplied("k", "i"))
			before := f.rows()
			got := f.claim(derived("new"), dryRun)
			require.Equal(f, dedupe.WouldAcquire, got.Verdict)
			require.Nil(f, got.Handle)
			f.wants(dedupe.Replayed, derived("s"), dryRun)
			f.wants(dedupe.Replayed, derived("r"), dryRun)
			f.wants(dedupe.WouldAcquire, derived("r"), dryRun, retryRefused)
			f.wants(dedupe.OnHold, derived("h"), dryRun)
			f.wants(dedupe.Busy, supplied("k", "i"), dryRun)
			f.wants(dedupe.KeyReused, supplied("k", "other"), dryRun)
			f.wants(dedupe.Twin, derived("i"), dryRun)
			f.wants(dedupe.WouldAcquire, derived("new"), dryRun, mayNotAcquire)
			require.Equal(f, before, f.rows())
			require.Equal(f, int64(1), f.wants(dedupe.Replayed, derived("s")).Replays, "a dry run is no replay")
			f.acquire(derived("new"))
		}},
	}
}

func twinCases() []testCase {
	return []testCase{
		{"a held write that is over when its repeat meets a twin does not take the identity back", func(f *fixture) {
			old := f.acquire(derived("a"))
			f.Advance(lease + tick)
			f.sweep()
			f.Advance(window - lease - 10*time.Second)
			other := f.acquire(supplied("k", "a"), allowDuplicate)
			f.Advance(20 * time.Second)
			f.wants(dedupe.Twin, derived("a"))
			f.settle(other, dedupe.Succeeded, "done")
			f.sweep()
			require.Equal(f, dedupe.Lapsed, f.get(old).Record.State)
			got := f.wants(dedupe.Replayed, derived("a"))
			require.Equal(f, "done", string(got.Answer), "the twin's outcome, and nothing is sent again")
		}},
		{"an identity is bound to one write of another and then to the next, and stands once", func(f *fixture) {
			for range 3 {
				h := f.acquire(supplied("k1", "a"))
				f.Advance(time.Second)
				f.wants(dedupe.Twin, supplied("k2", "a"))
				require.Equal(f, 1, f.entries(ledger.ByAlias))
				f.settle(h, dedupe.NotDone, "")
			}
		}},
		{"a lapse that nobody notices until the hold is over is told once", func(f *fixture) {
			lost := f.acquire(derived("a"))
			f.Advance(2 * window)
			f.wants(dedupe.OnHold, derived("a"))
			got := f.wants(dedupe.Acquired, derived("a"))
			require.Equal(f, lost.Record.ID, got.Record.Previous.ID)
			require.Equal(f, dedupe.Lapsed, got.Record.Previous.State)
		}},
		{"of a write in flight is refused, and stays refused", func(f *fixture) {
			h := f.acquire(supplied("k1", "a"))
			for range 3 {
				got := f.wants(dedupe.Twin, supplied("k2", "a"))
				require.Equal(f, h.Record.ID, got.Record.ID)
			}
			require.Equal(f, []string{"claimed in_flight", "twin_refused in_flight", "twin_refused in_flight", "twin_refused in_flight"}, f.rows())
		}},
		{"of a held write is refused", func(f *fixture) {
			f.done(derived("a"), dedupe.Held, "")
			f.wants(dedupe.Twin, supplied("k", "a"))
			f.wants(dedupe.Twin, supplied("k", "a"))
		}},
		{"derived and supplied are twins both ways", func(f *fixture) {
			f.acquire(supplied("k", "a"))
			f.wants(dedupe.Twin, derived("a"))
			f.acquire(derived("b"))
			f.wants(dedupe.Twin, supplied("k2", "b"))
		}},
		{"gets the other's outcome once it settles", func(f *fixture) {
			h := f.acquire(supplied("k1", "a"))
			f.wants(dedupe.Twin, supplied("k2", "a"))
			f.settle(h, dedupe.Succeeded, "answer")
			got := f.wants(dedupe.Replayed, supplied("k2", "a"))
			require.Equal(f, "answer", string(got.Answer))
			require.Equal(f, h.Record.ID, got.Record.ID)
		}},
		{"gets the other's refusal, and may run it again", func(f *fixture) {
			h := f.acquire(supplied("k1", "a"))
			f.wants(dedupe.Twin, supplied("k2", "a"))
			f.settle(h, dedupe.Refused, "")
			require.Equal(f, dedupe.Refused, f.wants(dedupe.Replayed, supplied("k2", "a")).Record.State)
			f.acquire(supplied("k2", "a"), retryRefused)
		}},
		{"runs once the other ended without an effect", func(f *fixture) {
			h := f.acquire(supplied("k1", "a"))
			f.wants(dedupe.Twin, supplied("k2", "a"))
			f.settle(h, dedupe.NotDone, "")
			f.acquire(supplied("k2", "a"))
		}},
		{"whose other one loses its owner becomes doubtful with it", func(f *fixture) {
			f.acquire(supplied("k1", "a"))
			f.wants(dedupe.Twin, supplied("k2", "a"))
			f.Advance(lease + tick)
			got := f.wants(dedupe.Twin, supplied("k2", "a"))
			require.Equal(f, dedupe.Held, got.Record.State)
			f.wants(dedupe.OnHold, supplied("k1", "a"))
		}},
		{"is none once the other has settled", func(f *fixture) {
			f.done(supplied("k1", "a"), dedupe.Succeeded, "x")
			f.acquire(supplied("k2", "a"))
		}},
		{"is none once the other has lapsed", func(f *fixture) {
			f.done(supplied("k1", "a"), dedupe.Held, "")
			f.wants(dedupe.Twin, supplied("k2", "a"))
			f.Advance(window + tick)
			f.acquire(supplied("k2", "a"))
		}},
		{"allow_duplicate passes the guard, bound before or not", func(f *fixture) {
			f.acquire(supplied("k1", "a"))
			f.wants(dedupe.Twin, supplied("k2", "a"))
			f.acquire(supplied("k2", "a"), allowDuplicate)
			f.acquire(supplied("k3", "a"), allowDuplicate)
			f.wants(dedupe.Twin, supplied("k4", "a"))
		}},
		{"allow_duplicate passes nothing else", func(f *fixture) {
			f.acquire(supplied("k1", "a"))
			f.wants(dedupe.Busy, supplied("k1", "a"), allowDuplicate)
			f.wants(dedupe.KeyReused, supplied("k1", "b"), allowDuplicate)
			f.done(supplied("k5", "h"), dedupe.Held, "")
			f.wants(dedupe.OnHold, supplied("k5", "h"), allowDuplicate)
			f.done(supplied("k6", "s"), dedupe.Succeeded, "x")
			f.wants(dedupe.Replayed, supplied("k6", "s"), allowDuplicate)
		}},
		{"several at once leave the list one by one", func(f *fixture) {
			h1 := f.acquire(supplied("k1", "a"))
			h2 := f.acquire(supplied("k2", "a"), allowDuplicate)
			h3 := f.acquire(supplied("k3", "a"), allowDuplicate)
			f.settle(h1, dedupe.Succeeded, "1")
			f.wants(dedupe.Twin, supplied("k4", "a"))
			f.settle(h3, dedupe.Succeeded, "3")
			f.wants(dedupe.Twin, supplied("k5", "a"))
			f.settle(h2, dedupe.Succeeded, "2")
			f.acquire(supplied("k6", "a"))
		}},
		{"other bodies are no twins", func(f *fixture) {
			f.acquire(supplied("k1", "a"))
			f.acquire(supplied("k2", "b"))
		}},
	}
}
