package dedupetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

func settleCases() []testCase {
	return []testCase{
		{"each outcome of a write in flight, with its row and indexes", func(f *fixture) {
			for state, want := range map[dedupe.State]struct {
				row  string
				held int
			}{
				dedupe.Succeeded: {"succeeded succeeded", 0},
				dedupe.Refused:   {"refused refused", 0},
				dedupe.Held:      {"held held", 1},
				dedupe.NotDone:   {"released not_done", 0},
			} {
				g := newFixture(f.T, f.Harness)
				h := g.acquire(derived("a"))
				rec := g.settle(h, state, "x")
				require.Equal(g, []string{"claimed in_flight", want.row}, g.rows())
				require.Equal(g, 0, g.entries(ledger.ByLease))
				require.Equal(g, want.held, g.entries(ledger.ByHold))
				require.Equal(g, rec, g.get(h).Record)
				_, err := g.claims.Request(g.Context(), g.scope, h.Record.ID)
				if state == dedupe.Held {
					require.NoError(g, err, "the request is kept while the write is held")
				} else {
					require.ErrorIs(g, err, dedupe.ErrNotFound, "the request is kept no longer than needed")
				}
			}
		}},
		{"not sent has its own row", func(f *fixture) {
			h := f.acquire(derived("a"))
			st := settlement(dedupe.NotDone, "")
			st.NotSent = true
			_, err := f.claims.Settle(f.Context(), h, st)
			require.NoError(f, err)
			require.Equal(f, []string{"claimed in_flight", "not_sent not_done"}, f.rows())
		}},
		{"a stale owner changes nothing", func(f *fixture) {
			h := f.acquire(derived("a"))
			stale := *h
			rec := *h.Record
			rec.Owner = dedupe.NewOwner()
			stale.Record = &rec
			require.NoError(f, f.claims.Renew(f.Context(), h)) // so that the stale one has to look
			_, err := f.claims.Settle(f.Context(), &stale, settlement(dedupe.Succeeded, "x"))
			require.ErrorIs(f, err, dedupe.ErrNotOwner)
			require.Equal(f, dedupe.InFlight, f.get(h).Record.State)
		}},
		{"the owner settles after its lease was renewed elsewhere in the call", func(f *fixture) {
			h := f.acquire(derived("a"))
			stale := *h
			require.NoError(f, f.claims.Renew(f.Context(), h))
			rec, err := f.claims.Settle(f.Context(), &stale, settlement(dedupe.Succeeded, "x"))
			require.NoError(f, err)
			require.Equal(f, dedupe.Succeeded, rec.State)
			require.Equal(f, 0, f.entries(ledger.ByLease), "no entry of an older lease stays behind")
		}},
		{"settled twice, the reply of the first lost, is one settle", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.Succeeded, dedupe.Refused, dedupe.Held, dedupe.NotDone} {
				g := newFixture(f.T, f.Harness)
				d := newDeaf(g.Store)
				claims := g.over(d)
				h := g.acquire(derived("a"))
				d.lose.Store(true)
				_, err := claims.Settle(g.Context(), h, settlement(state, "x"))
				require.ErrorIs(g, err, ledger.ErrUnavailable)
				rec, err := claims.Settle(g.Context(), h, settlement(state, "x"))
				require.NoError(g, err)
				require.Equal(g, state, rec.State)
				require.Len(g, g.rows(), 2)
			}
		}},
		{"a late answer settles its own held write", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.Succeeded, dedupe.Refused, dedupe.NotDone} {
				g := newFixture(f.T, f.Harness)
				h := g.lost(derived("a"))
				g.settle(h, state, "late")
				require.Equal(g, 0, g.entries(ledger.ByHold))
			}
		}},
		{"a late doubt keeps the write held and ends the fear of its owner", func(f *fixture) {
			h := f.lost(derived("a"))
			rec := f.settle(h, dedupe.Held, "")
			require.False(f, rec.OwnerLost)
			require.Equal(f, 1, f.entries(ledger.ByHold))
			require.Equal(f, []string{"claimed in_flight", "lease_lost held", "late_answer held"}, f.rows(), "one write in doubt, not two")
		}},
		{"after a resolution a late answer is recorded and changes nothing", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.Succeeded, dedupe.NotDone} {
				g := newFixture(f.T, f.Harness)
				h := g.lost(derived("a"))
				g.Advance(timeout + tick)
				_, err := g.resolve(h, state, `"by hand"`)
				require.NoError(g, err)
				before := g.get(h)
				_, err = g.claims.Settle(g.Context(), h, settlement(dedupe.Refused, ""))
				require.ErrorIs(g, err, dedupe.ErrLate)
				require.Equal(g, before.Record, g.get(h).Record)
				rows := g.rows()
				require.Equal(g, "late_answer "+state.String(), rows[len(rows)-1])
			}
		}},
		{"after a resolution as not done, a late success never reaches the next action", func(f *fixture) {
			h := f.lost(derived("a"))
			f.Advance(timeout + tick)
			_, err := f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			next := f.acquire(derived("a"))
			_, err = f.claims.Settle(f.Context(), h, settlement(dedupe.Succeeded, "late"))
			require.ErrorIs(f, err, dedupe.ErrLate)
			f.wants(dedupe.Busy, derived("a"))
			f.settle(next, dedupe.Succeeded, "fresh")
			require.Equal(f, "fresh", string(f.wants(dedupe.Replayed, derived("a")).Answer))
		}},
		{"after it lapsed a late answer changes nothing", func(f *fixture) {
			h := f.lost(derived("a"))
			f.Advance(window + tick)
			f.sweep()
			_, err := f.claims.Settle(f.Context(), h, settlement(dedupe.Succeeded, "late"))
			require.ErrorIs(f, err, dedupe.ErrLate)
			require.Equal(f, dedupe.Lapsed, f.get(h).Record.State)
		}},
		{"the answer of a success ends with its window, the record later", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Succeeded, "personal")
			f.Advance(window + time.Minute)
			found := f.get(h)
			require.Equal(f, dedupe.Succeeded, found.Record.State)
			require.Nil(f, found.Answer)
			f.Advance(history + tick)
			_, err := f.claims.Get(f.Context(), f.scope, h.Record.ID)
			require.ErrorIs(f, err, dedupe.ErrNotFound)
		}},
	}
}

func renewCases() []testCase {
	return []testCase{
		{"extends a lease that is alive", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.Advance(lease - time.Second)
			require.NoError(f, f.claims.Renew(f.Context(), h))
			f.Advance(lease - time.Second)
			require.Equal(f, 0, f.sweep())
			f.wants(dedupe.Busy, derived("a"))
			require.Equal(f, 1, f.entries(ledger.ByLease))
		}},
		{"does not revive a lease that is over", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.Advance(lease + tick)
			_, err := f.Store.Read(f.Context(), f.scope)
			require.NoError(f, err)
			require.ErrorIs(f, f.claims.Renew(f.Context(), h), dedupe.ErrLeaseLost)
		}},
		{"does not revive a write that was held", func(f *fixture) {
			h := f.lost(derived("a"))
			require.ErrorIs(f, f.claims.Renew(f.Context(), h), dedupe.ErrLeaseLost)
			require.Equal(f, dedupe.Held, f.get(h).Record.State)
		}},
		{"goes on after a reply was lost", func(f *fixture) {
			d := newDeaf(f.Store)
			claims := f.over(d)
			h := f.acquire(derived("a"))
			d.lose.Store(true)
			require.ErrorIs(f, claims.Renew(f.Context(), h), ledger.ErrUnavailable)
			require.NoError(f, claims.Renew(f.Context(), h))
			require.Equal(f, 1, f.entries(ledger.ByLease))
		}},
	}
}

func resolveCases() []testCase {
	return []testCase{
		{"succeeded: replays from then on", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Held, "")
			rec, err := f.resolve(h, dedupe.Succeeded, `{"id":7}`)
			require.NoError(f, err)
			require.Equal(f, dedupe.ByOperator, rec.Evidence)
			require.Equal(f, `{"id":7}`, string(f.wants(dedupe.Replayed, derived("a")).Answer))
			require.Equal(f, []string{"claimed in_flight", "held held", "resolved succeeded", "replayed succeeded"}, f.rows())
		}},
		{"not done: the next one runs and names it", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Held, "")
			_, err := f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			next := f.acquire(derived("a"))
			require.Equal(f, h.Record.ID, next.Record.Previous.ID)
			require.Equal(f, dedupe.NotDone, next.Record.Previous.State)
			require.Equal(f, []string{"claimed in_flight", "held held", "resolved not_done", "not_done not_done", "claimed in_flight"}, f.rows())
		}},
		{"not done: the next one inherits a vendor key that is still remembered", func(f *fixture) {
			h := f.acquire(derived("a"), withVendorKey("v1", time.Hour))
			f.settle(h, dedupe.Held, "")
			_, err := f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			next := f.acquire(derived("a"), withVendorKey("v2", time.Hour))
			require.Equal(f, "v1", next.Record.VendorKey)
			require.Equal(f, h.Record.VendorKeyEnd, next.Record.VendorKeyEnd, "memory began with the first use")
		}},
		{"not done: the key is kept while the next ones do not get through", func(f *fixture) {
			h := f.acquire(derived("a"), withVendorKey("v1", time.Hour))
			f.settle(h, dedupe.Held, "")
			_, err := f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			for range 3 { // released: not sent, or answered "try later"
				f.done(derived("a"), dedupe.NotDone, "", withVendorKey("v2", time.Hour))
			}
			next := f.acquire(derived("a"), withVendorKey("v3", time.Hour))
			require.Equal(f, "v1", next.Record.VendorKey)
			require.Equal(f, h.Record.VendorKeyEnd, next.Record.VendorKeyEnd)
			f.settle(next, dedupe.NotDone, "")
			f.Advance(time.Hour + tick)
			require.Equal(f, "v4", f.acquire(derived("a"), withVendorKey("v4", time.Hour)).Record.VendorKey)
		}},
		{"not done: a vendor key that may be forgotten is not used again", func(f *fixture) {
			h := f.acquire(derived("a"), withVendorKey("v1", time.Hour))
			f.settle(h, dedupe.Held, "")
			_, err := f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			f.Advance(time.Hour + tick)
			require.Equal(f, "v2", f.acquire(derived("a"), withVendorKey("v2", time.Hour)).Record.VendorKey)
		}},
		{"a refusal run again has a new vendor key", func(f *fixture) {
			f.done(derived("a"), dedupe.Refused, "", withVendorKey("v1", time.Hour))
			require.Equal(f, "v2", f.acquire(derived("a"), withVendorKey("v2", time.Hour), retryRefused).Record.VendorKey)
		}},
		{"what is not held cannot be resolved", func(f *fixture) {
			for name, prepare := range map[string]func(g *fixture) *dedupe.Handle{
				"in flight": func(g *fixture) *dedupe.Handle { return g.acquire(derived("a")) },
				"succeeded": func(g *fixture) *dedupe.Handle {
					h := g.acquire(derived("a"))
					g.settle(h, dedupe.Succeeded, "x")
					return h
				},
				"refused": func(g *fixture) *dedupe.Handle {
					h := g.acquire(derived("a"))
					g.settle(h, dedupe.Refused, "")
					return h
				},
				"lapsed": func(g *fixture) *dedupe.Handle {
					h := g.acquire(derived("a"))
					g.settle(h, dedupe.Held, "")
					g.Advance(window + tick)
					return h
				},
			} {
				g := newFixture(f.T, f.Harness)
				h := prepare(g)
				before := g.rows()
				_, err := g.resolve(h, dedupe.NotDone, "")
				require.ErrorIs(g, err, dedupe.ErrNotHeld, name)
				require.Equal(g, before, g.rows(), name)
			}
		}},
		{"a lost owner might still send until the deadline", func(f *fixture) {
			h := f.lost(derived("a"))
			_, err := f.resolve(h, dedupe.NotDone, "")
			var possible *dedupe.StillPossibleError
			require.ErrorAs(f, err, &possible)
			require.Equal(f, h.Record.Deadline, possible.Until)
			f.Advance(timeout + tick)
			_, err = f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
		}},
		{"a lapse nobody has noticed is noticed first", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.Advance(lease + timeout + tick)
			_, err := f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			require.Equal(f, []string{"claimed in_flight", "lease_lost held", "resolved not_done", "not_done not_done"}, f.rows())
		}},
		{"an owner that reported its doubt may be resolved at once", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Held, "")
			_, err := f.resolve(h, dedupe.Succeeded, "null")
			require.NoError(f, err)
		}},
		{"an unknown action is not found", func(f *fixture) {
			_, err := f.claims.Resolve(f.Context(), f.scope, dedupe.NewActionID(time.Now()), dedupe.Resolution{State: dedupe.NotDone, Scribe: scribe})
			require.ErrorIs(f, err, dedupe.ErrNotFound)
		}},
	}
}

func sweepCases() []testCase {
	return []testCase{
		{"holds what lost its owner, once, though nobody repeats it", func(f *fixture) {
			h := f.acquire(derived("a"))
			require.Equal(f, 0, f.sweep())
			f.Advance(lease + tick)
			require.Equal(f, 1, f.sweep())
			require.Equal(f, 0, f.sweep())
			rec := f.get(h).Record
			require.Equal(f, dedupe.Held, rec.State)
			require.True(f, rec.OwnerLost)
			require.Equal(f, []string{"claimed in_flight", "lease_lost held"}, f.rows())
		}},
		{"lapses what was held to its end", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Held, "")
			f.Advance(window - time.Minute)
			require.Equal(f, 0, f.sweep())
			f.Advance(time.Minute + tick)
			require.Equal(f, 1, f.sweep())
			require.Equal(f, dedupe.Lapsed, f.get(h).Record.State)
			next := f.acquire(derived("a"))
			require.Equal(f, h.Record.ID, next.Record.Previous.ID)
			require.Equal(f, dedupe.Lapsed, next.Record.Previous.State)
			require.Equal(f, []string{"claimed in_flight", "held held", "lapsed lapsed", "claimed in_flight"}, f.rows())
		}},
		{"never touches what is settled", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.settle(h, dedupe.Succeeded, "x")
			f.Advance(2 * window)
			require.Equal(f, 0, f.sweep())
			require.Equal(f, dedupe.Succeeded, f.get(h).Record.State)
		}},
		{"takes away entries at which nothing stands", func(f *fixture) {
			settled := f.acquire(derived("a"))
			f.settle(settled, dedupe.Succeeded, "x")
			f.Advance(time.Minute)
			past := f.storeNow().Add(-time.Second)
			f.index(
				entryAt(ledger.ByLease, past, settled), entryAt(ledger.ByHold, past, settled),
				ledger.Entry{Index: ledger.ByHold, Score: past, Member: "record is gone!!"},
			)
			require.Equal(f, 0, f.sweep())
			require.Zero(f, f.entries(ledger.ByLease))
			require.Equal(f, 1, f.entries(ledger.ByHold), "all that is left of a doubt")
			require.Equal(f, dedupe.Succeeded, f.get(settled).Record.State)
			require.Len(f, f.rows(), 2, "that is no change of a write")
		}},
		{"leaves a write where it is to stand, whatever else is there", func(f *fixture) {
			for i := range 3 { // of more than there are, too
				f.acquire(derived(time.Duration(i).String()))
			}
			h := f.acquire(derived("a"))
			past := f.storeNow().Add(-time.Second)
			f.index(entryAt(ledger.ByLease, past, h), entryAt(ledger.ByHold, past, h))
			require.Equal(f, 0, f.sweep())
			require.Equal(f, 4, f.entries(ledger.ByLease))
			require.Zero(f, f.entries(ledger.ByHold))
			f.Advance(lease + tick)
			require.Equal(f, 4, f.sweep())
			require.Equal(f, dedupe.Held, f.get(h).Record.State)

			past = f.storeNow().Add(-time.Second)
			f.index(entryAt(ledger.ByLease, past, h), entryAt(ledger.ByHold, past, h))
			require.Equal(f, 0, f.sweep())
			require.Zero(f, f.entries(ledger.ByLease))
			require.Equal(f, 4, f.entries(ledger.ByHold))
			f.Advance(window + time.Hour)
			require.Equal(f, 4, f.sweep())
			require.Equal(f, dedupe.Lapsed, f.get(h).Record.State)
			require.Zero(f, f.entries(ledger.ByHold))
		}},
		{"moves a whole backlog", func(f *fixture) {
			for i := range 300 {
				f.acquire(derived(time.Duration(i).String()))
			}
			f.Advance(lease + tick)
			require.Equal(f, 256, f.sweep())
			require.Equal(f, 44, f.sweep())
			require.Equal(f, 300, f.entries(ledger.ByHold))
		}},
	}
}

func abandonCases() []testCase {
	abandon := func(f *fixture, err error) error {
		var uncertain *dedupe.UncertainError
		require.ErrorAs(f, err, &uncertain)
		require.ErrorIs(f, err, ledger.ErrUnavailable)
		return f.claims.Abandon(f.Context(), uncertain.Abandon)
	}
	return []testCase{
		{"of a claim whose reply was lost frees the identity, with both rows", func(f *fixture) {
			d := newDeaf(f.Store)
			d.lose.Store(true)
			_, err := f.over(d).Claim(f.Context(), f.newClaim(derived("a")))
			f.wants(dedupe.Busy, derived("a"))
			require.NoError(f, abandon(f, err))
			f.acquire(derived("a"))
			require.Equal(f, []string{"claimed in_flight", "in_flight in_flight", "not_sent not_done", "claimed in_flight"}, f.rows())
		}},
		{"of a claim that has not arrived keeps it from ever arriving", func(f *fixture) {
			d := newDeaf(f.Store)
			d.refuse.Store(true)
			_, err := f.over(d).Claim(f.Context(), f.newClaim(derived("a")))
			require.NoError(f, abandon(f, err))
			late := <-d.kept
			res, err := f.Store.Apply(f.Context(), f.scope, late)
			require.NoError(f, err)
			require.True(f, res.Voided)
			require.False(f, res.Applied)
			f.acquire(derived("a"))
			require.Equal(f, []string{"claimed in_flight"}, f.rows())
		}},
		{"repeated is the same as once", func(f *fixture) {
			d := newDeaf(f.Store)
			d.lose.Store(true)
			_, err := f.over(d).Claim(f.Context(), f.newClaim(derived("a")))
			require.NoError(f, abandon(f, err))
			require.NoError(f, abandon(f, err))
			h := f.acquire(derived("a"))
			require.NoError(f, abandon(f, err), "it ends only its own action")
			require.Equal(f, dedupe.InFlight, f.get(h).Record.State)
		}},
		{"of a claim the sweep has held meanwhile ends it all the same", func(f *fixture) {
			d := newDeaf(f.Store)
			d.lose.Store(true)
			_, err := f.over(d).Claim(f.Context(), f.newClaim(derived("a")))
			f.Advance(lease + tick)
			require.Equal(f, 1, f.sweep())
			require.NoError(f, abandon(f, err))
			f.acquire(derived("a"))
		}},
		{"of another owner's action changes nothing", func(f *fixture) {
			h := f.acquire(derived("a"))
			err := f.claims.Abandon(f.Context(), dedupe.Abandon{
				Scope: f.scope, ID: h.Record.ID, Owner: dedupe.NewOwner(), Nonce: ledger.NewNonce(), Scribe: scribe,
			})
			require.ErrorIs(f, err, dedupe.ErrNotOwner)
			require.Equal(f, h.Record, f.get(h).Record)
		}},
		{"never undoes a resolution", func(f *fixture) {
			d := newDeaf(f.Store)
			d.lose.Store(true)
			cl := f.newClaim(derived("a"))
			_, err := f.over(d).Claim(f.Context(), cl)
			f.Advance(lease + timeout + tick)
			f.sweep()
			_, rerr := f.claims.Resolve(f.Context(), f.scope, cl.ID, dedupe.Resolution{State: dedupe.Succeeded, Answer: []byte("1"), Scribe: scribe})
			require.NoError(f, rerr)
			require.ErrorIs(f, abandon(f, err), dedupe.ErrLate)
			require.Equal(f, "1", string(f.wants(dedupe.Replayed, derived("a")).Answer))
		}},
	}
}
