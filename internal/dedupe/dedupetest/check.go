package dedupetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// checkAfter is when the suite's writes are first looked after by themselves.
const checkAfter = time.Minute

func checkedBy(d time.Duration) option {
	return func(c *dedupe.Claim) {
		inner := c.Draft
		c.Draft = func(at time.Time, key string) (dedupe.Draft, error) {
			dr, err := inner(at, key)
			dr.CheckAfter = d
			return dr, err
		}
	}
}

// heldWrite is a write whose owner reported its doubt.
func (f *fixture) heldWrite(r request, opts ...option) *dedupe.Handle {
	f.Helper()
	h := f.acquire(r, opts...)
	f.settle(h, dedupe.Held, "")
	return h
}

func (f *fixture) startCheck(h *dedupe.Handle) *dedupe.CheckHandle {
	f.Helper()
	c, err := f.claims.StartCheck(f.Context(), f.scope, h.Record.ID, scribe)
	require.NoError(f, err)
	return c
}

func ending(state dedupe.State, answer string) dedupe.CheckEnding {
	e := dedupe.CheckEnding{State: state, By: "key_2", Scribe: scribe,
		Probes: []dedupe.Probe{{How: "lookup", Found: "one", Status: 200, Matches: 1, SHA256: "00"}}}
	if state == dedupe.Succeeded {
		e.Answer = []byte(answer)
	}
	return e
}

func resent(state dedupe.State, answer string) dedupe.CheckEnding {
	e := ending(state, answer)
	e.Resend, e.Probes[0].How = true, "resend"
	e.Outcome = &dedupe.Outcome{Phase: "answered", VendorStatus: 201}
	e.Attempt = &dedupe.Attempt{Phase: "answered", Status: 201}
	return e
}

func (f *fixture) endCheck(c *dedupe.CheckHandle, e dedupe.CheckEnding) *dedupe.Record {
	f.Helper()
	rec, err := f.claims.EndCheck(f.Context(), c, e)
	require.NoError(f, err)
	return rec
}

// now is the store's clock, asked.
func (f *fixture) now() time.Time {
	f.Helper()
	snap, err := f.Store.Read(f.Context(), f.scope)
	require.NoError(f, err)
	return snap.Now
}

func (f *fixture) due() int {
	f.Helper()
	f.now() // let the client's clock catch up
	due, err := f.claims.DueChecks(f.Context(), f.scope, 100)
	require.NoError(f, err)
	return len(due)
}

func (f *fixture) lastRows(n int) []string {
	rows := f.rows()
	return rows[max(len(rows)-n, 0):]
}

func checkCases() []testCase {
	return append(append(checkStartCases(), checkEndCases()...), checkPlanCases()...)
}

func checkStartCases() []testCase {
	return []testCase{
		{"only what is held can be checked", func(f *fixture) {
			for name, prepare := range map[string]func(g *fixture) *dedupe.Handle{
				"in flight": func(g *fixture) *dedupe.Handle { return g.acquire(derived("a")) },
				"succeeded": func(g *fixture) *dedupe.Handle {
					h := g.acquire(derived("a"))
					g.settle(h, dedupe.Succeeded, "x")
					return h
				},
				"past its hold": func(g *fixture) *dedupe.Handle {
					h := g.heldWrite(derived("a"))
					g.Advance(window + tick)
					return h
				},
			} {
				g := newFixture(f.T, f.Harness)
				h := prepare(g)
				before := g.rows()
				_, err := g.claims.StartCheck(g.Context(), g.scope, h.Record.ID, scribe)
				require.ErrorIs(g, err, dedupe.ErrNotHeld, name)
				require.Equal(g, before, g.rows(), name)
			}
			_, err := f.claims.StartCheck(f.Context(), f.scope, dedupe.NewActionID(time.Now()), scribe)
			require.ErrorIs(f, err, dedupe.ErrNotFound)
		}},
		{"a lost owner might still send until the deadline", func(f *fixture) {
			h := f.lost(derived("a"))
			_, err := f.claims.StartCheck(f.Context(), f.scope, h.Record.ID, scribe)
			var possible *dedupe.StillPossibleError
			require.ErrorAs(f, err, &possible)
			require.Equal(f, h.Record.Deadline, possible.Until)
			f.Advance(timeout + tick)
			f.startCheck(h)
		}},
		{"a lapse nobody has noticed is noticed first", func(f *fixture) {
			h := f.acquire(derived("a"))
			f.Advance(lease + timeout + tick)
			f.startCheck(h)
			require.Equal(f, []string{"claimed in_flight", "lease_lost held"}, f.rows())
		}},
		{"one at a time, and no resolve meanwhile", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			f.startCheck(h)
			var running *dedupe.CheckRunningError
			_, err := f.claims.StartCheck(f.Context(), f.scope, h.Record.ID, scribe)
			require.ErrorAs(f, err, &running)
			_, err = f.resolve(h, dedupe.NotDone, "")
			require.ErrorAs(f, err, &running)
			require.WithinDuration(f, f.now().Add(lease), running.Until, time.Second)
			f.wants(dedupe.OnHold, derived("a"))
		}},
		{"a check that died gives way when its lease lapses", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			dead := f.startCheck(h)
			f.Advance(lease - time.Second)
			require.NoError(f, f.claims.RenewCheck(f.Context(), dead))
			f.Advance(lease - time.Second)
			_, err := f.claims.StartCheck(f.Context(), f.scope, h.Record.ID, scribe)
			require.Error(f, err, "it was renewed")
			f.Advance(time.Second + tick)
			f.startCheck(h)
			require.ErrorIs(f, f.claims.RenewCheck(f.Context(), dead), dedupe.ErrLeaseLost)
			require.ErrorIs(f, f.claims.MarkResent(f.Context(), dead, "", scribe), dedupe.ErrLeaseLost)
		}},
		{"of fifty at once one starts", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			var started atomic.Int32
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					if _, err := f.claims.StartCheck(context.WithoutCancel(f.Context()), f.scope, h.Record.ID, scribe); err == nil {
						started.Add(1)
					}
				})
			}
			all.Wait()
			require.EqualValues(f, 1, started.Load())
		}},
		{"a resend is marked, with its row, before it is sent", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			c := f.startCheck(h)
			require.NoError(f, f.claims.MarkResent(f.Context(), c, "key_2", scribe))
			rec := f.get(h).Record
			require.True(f, rec.Resent)
			require.False(f, rec.SentUntil.Before(rec.CheckEnd), "nothing leaves after the lease")
			require.Equal(f, []string{"checked held"}, f.lastRows(1))
			require.Equal(f, 1, f.entries(ledger.ByHold))
		}},
	}
}

func checkEndCases() []testCase {
	return []testCase{
		{"found: succeeded by check, replayed from then on", func(f *fixture) {
			h := f.heldWrite(derived("a"), checkedBy(checkAfter))
			rec := f.endCheck(f.startCheck(h), ending(dedupe.Succeeded, `{"id":7}`))
			require.Equal(f, dedupe.Succeeded, rec.State)
			require.Equal(f, dedupe.ByCheck, rec.Evidence)
			require.Equal(f, 1, rec.Checks)
			require.Equal(f, `{"id":7}`, string(f.wants(dedupe.Replayed, derived("a")).Answer))
			require.Equal(f, []string{"claimed in_flight", "held held", "checked succeeded", "succeeded succeeded", "replayed succeeded"}, f.rows())
			require.Zero(f, f.entries(ledger.ByHold)+f.entries(ledger.ByCheck))
			_, err := f.claims.Request(f.Context(), f.scope, h.Record.ID)
			require.ErrorIs(f, err, dedupe.ErrNotFound)
		}},
		{"absent: not done, the next one runs, names it and inherits the vendor key", func(f *fixture) {
			h := f.heldWrite(derived("a"), withVendorKey("v1", time.Hour))
			f.Advance(lease + timeout + tick)
			rec := f.endCheck(f.startCheck(h), ending(dedupe.NotDone, ""))
			require.Equal(f, dedupe.NotDone, rec.State)
			require.Equal(f, []string{"checked not_done", "not_done not_done"}, f.lastRows(2))
			next := f.acquire(derived("a"), withVendorKey("v2", time.Hour))
			require.Equal(f, h.Record.ID, next.Record.Previous.ID)
			require.Equal(f, "v1", next.Record.VendorKey)
		}},
		{"absent before the deadline proves nothing", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			for _, state := range []dedupe.State{dedupe.NotDone, dedupe.Refused} {
				require.Equal(f, dedupe.Held, f.endCheck(f.startCheck(h), ending(state, "")).State)
			}
			f.wants(dedupe.OnHold, derived("a"))
		}},
		{"absent while a resend may still leave proves nothing", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			f.Advance(lease + timeout + tick)
			c := f.startCheck(h)
			require.NoError(f, f.claims.MarkResent(f.Context(), c, "", scribe))
			require.Equal(f, dedupe.Held, f.endCheck(c, ending(dedupe.NotDone, "")).State)
			f.Advance(lease + tick)
			require.Equal(f, dedupe.NotDone, f.endCheck(f.startCheck(h), ending(dedupe.NotDone, "")).State)
		}},
		{"still unknown: held as before, with the evidence in its history", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			rec := f.endCheck(f.startCheck(h), ending(dedupe.Held, ""))
			require.Equal(f, dedupe.Held, rec.State)
			require.Equal(f, "lookup: one, status 200, matches 1, sha256 00", rec.History[len(rec.History)-1].Detail)
			require.Equal(f, "key_2", rec.History[len(rec.History)-1].By)
			require.Equal(f, []string{"checked held"}, f.lastRows(1))
			f.startCheck(h)
		}},
		{"a resend's answer settles; recovered if the owner was lost", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.Succeeded, dedupe.Refused} {
				for _, lost := range []bool{false, true} {
					g := newFixture(f.T, f.Harness)
					var h *dedupe.Handle
					want := state.String() + " " + state.String()
					if lost {
						h, want = g.lost(derived("a")), "recovered "+state.String()
					} else {
						h = g.heldWrite(derived("a"))
					}
					g.Advance(lease + timeout + tick)
					c := g.startCheck(h)
					require.NoError(g, g.claims.MarkResent(g.Context(), c, "", scribe))
					rec := g.endCheck(c, resent(state, "1"))
					require.Equal(g, state, rec.State)
					require.Equal(g, dedupe.ByCheck, rec.Evidence)
					require.Equal(g, 201, rec.Outcome.VendorStatus)
					require.Equal(g, []string{"checked held", "checked " + state.String(), want}, g.lastRows(3))
					g.wants(dedupe.Replayed, derived("a"))
				}
			}
		}},
		{"ended twice, the reply of the first lost, is one end", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.Succeeded, dedupe.NotDone, dedupe.Held} {
				g := newFixture(f.T, f.Harness)
				h := g.heldWrite(derived("a"))
				g.Advance(lease + timeout + tick)
				c := g.startCheck(h)
				d := newDeaf(g.Store)
				claims := g.over(d)
				d.lose.Store(true)
				_, err := claims.EndCheck(g.Context(), c, ending(state, "x"))
				require.ErrorIs(g, err, ledger.ErrUnavailable)
				rows := g.rows()
				rec, err := claims.EndCheck(g.Context(), c, ending(state, "x"))
				require.NoError(g, err)
				require.Equal(g, state, rec.State)
				require.Equal(g, rows, g.rows())
			}
		}},
		{"after a check settled it, the owner's answer is late", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.Succeeded, dedupe.NotDone} {
				g := newFixture(f.T, f.Harness)
				h := g.lost(derived("a"))
				g.Advance(timeout + tick)
				g.endCheck(g.startCheck(h), ending(state, "x"))
				before := g.get(h).Record
				_, err := g.claims.Settle(g.Context(), h, settlement(dedupe.Succeeded, "y"))
				require.ErrorIs(g, err, dedupe.ErrLate)
				require.Equal(g, before, g.get(h).Record)
				require.Equal(g, []string{"late_answer " + state.String()}, g.lastRows(1))
			}
		}},
		{"an owner that answers during a check settles its write", func(f *fixture) {
			h := f.lost(derived("a"), checkedBy(checkAfter))
			f.Advance(timeout + tick)
			c := f.startCheck(h)
			f.settle(h, dedupe.Succeeded, "owner")
			require.ErrorIs(f, f.claims.RenewCheck(f.Context(), c), dedupe.ErrLeaseLost)
			rec, err := f.claims.EndCheck(f.Context(), c, ending(dedupe.Succeeded, "check"))
			require.ErrorIs(f, err, dedupe.ErrNotHeld)
			require.Equal(f, dedupe.ByVendor, rec.Evidence)
			require.Equal(f, "owner", string(f.wants(dedupe.Replayed, derived("a")).Answer))
			require.Zero(f, f.entries(ledger.ByCheck))
		}},
		{"after a resend the first owner's failure proves nothing", func(f *fixture) {
			for _, state := range []dedupe.State{dedupe.Refused, dedupe.NotDone} {
				g := newFixture(f.T, f.Harness)
				h := g.lost(derived("a"))
				g.Advance(timeout + tick)
				require.NoError(g, g.claims.MarkResent(g.Context(), g.startCheck(h), "", scribe))
				_, err := g.claims.Settle(g.Context(), h, settlement(state, ""))
				require.ErrorIs(g, err, dedupe.ErrLate)
				require.Equal(g, dedupe.Held, g.get(h).Record.State)
				require.Equal(g, []string{"late_answer held"}, g.lastRows(1))
				g.settle(h, dedupe.Succeeded, "and yet")
			}
		}},
		{"a check that contradicts a resolution is recorded and changes nothing", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			c := f.startCheck(h)
			f.Advance(lease + timeout + tick)
			_, err := f.resolve(h, dedupe.NotDone, "")
			require.NoError(f, err)
			rec, err := f.claims.EndCheck(f.Context(), c, ending(dedupe.Succeeded, "x"))
			require.ErrorIs(f, err, dedupe.ErrLate)
			require.Equal(f, dedupe.NotDone, rec.State)
			require.Equal(f, []string{"checked not_done", "late_answer not_done"}, f.lastRows(2))
			f.acquire(derived("a"))
		}},
		{"a check that lost its lease to another settles only a success", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			f.Advance(lease + timeout + tick)
			first := f.startCheck(h)
			f.Advance(lease + tick)
			second := f.startCheck(h)
			_, err := f.claims.EndCheck(f.Context(), first, ending(dedupe.NotDone, ""))
			require.ErrorIs(f, err, dedupe.ErrLeaseLost)
			_, err = f.claims.EndCheck(f.Context(), first, ending(dedupe.Held, ""))
			require.ErrorIs(f, err, dedupe.ErrLeaseLost)
			require.NoError(f, f.claims.RenewCheck(f.Context(), second), "the second one goes on")
			require.Equal(f, dedupe.Succeeded, f.endCheck(first, ending(dedupe.Succeeded, "x")).State)
		}},
		{"past its hold a check settles nothing", func(f *fixture) {
			h := f.heldWrite(derived("a"))
			c := f.startCheck(h)
			f.Advance(window + tick)
			_, err := f.claims.EndCheck(f.Context(), c, ending(dedupe.Succeeded, "x"))
			require.ErrorIs(f, err, dedupe.ErrLate)
			f.sweep()
			require.Equal(f, dedupe.Lapsed, f.get(h).Record.State)
		}},
		{"an answer that could not be judged is kept until the write is settled", func(f *fixture) {
			h := f.acquire(derived("a"))
			st := settlement(dedupe.Held, "")
			st.Raw = []byte("sealed answer")
			_, err := f.claims.Settle(f.Context(), h, st)
			require.NoError(f, err)
			raw, err := f.claims.Raw(f.Context(), f.scope, h.Record.ID)
			require.NoError(f, err)
			require.Equal(f, "sealed answer", string(raw))
			f.endCheck(f.startCheck(h), ending(dedupe.Held, ""))
			_, err = f.claims.Raw(f.Context(), f.scope, h.Record.ID)
			require.NoError(f, err)
			f.endCheck(f.startCheck(h), ending(dedupe.Succeeded, "x"))
			_, err = f.claims.Raw(f.Context(), f.scope, h.Record.ID)
			require.ErrorIs(f, err, dedupe.ErrNotFound)
		}},
	}
}

func checkPlanCases() []testCase {
	return []testCase{
		{"planned by its action, due from then on, not while a check runs", func(f *fixture) {
			h := f.heldWrite(derived("a"), checkedBy(checkAfter))
			f.heldWrite(derived("never"))
			require.Equal(f, 1, f.entries(ledger.ByCheck))
			require.Zero(f, f.due())
			f.Advance(checkAfter + tick)
			require.Equal(f, 1, f.due())
			c := f.startCheck(h)
			require.Zero(f, f.due())
			f.Advance(lease + tick)
			require.Equal(f, 1, f.due(), "the checker died")
			e := ending(dedupe.Held, "")
			e.Next = f.now().Add(time.Hour)
			f.endCheck(c, e)
			require.Zero(f, f.due())
			f.Advance(time.Hour + tick)
			require.Equal(f, 1, f.due())
			f.endCheck(f.startCheck(h), ending(dedupe.Held, ""))
			f.Advance(time.Hour)
			require.Zero(f, f.due(), "no further one was planned")
			require.Zero(f, f.entries(ledger.ByCheck))
		}},
		{"of a lost owner not before the deadline", func(f *fixture) {
			h := f.lost(derived("a"), checkedBy(time.Second))
			require.Zero(f, f.due())
			require.Equal(f, h.Record.Deadline, f.get(h).Record.NextCheck)
			f.Advance(timeout + tick)
			require.Equal(f, 1, f.due())
		}},
		{"seen behind entries at which nothing stands", func(f *fixture) {
			settled := f.heldWrite(derived("settled"), checkedBy(checkAfter))
			f.settle(settled, dedupe.Succeeded, "x")
			moved := f.heldWrite(derived("moved"), checkedBy(time.Hour))
			f.heldWrite(derived("a"), checkedBy(checkAfter))
			f.Advance(checkAfter + tick)
			past := f.storeNow().Add(-checkAfter)
			f.index(entryAt(ledger.ByCheck, past, settled), entryAt(ledger.ByCheck, past.Add(time.Millisecond), moved))
			for range 2 {
				due, err := f.claims.DueChecks(f.Context(), f.scope, 1)
				require.NoError(f, err)
				require.Empty(f, due)
			}
			due, err := f.claims.DueChecks(f.Context(), f.scope, 1)
			require.NoError(f, err)
			require.Len(f, due, 1)
			require.Equal(f, 2, f.entries(ledger.ByCheck))
			f.Advance(time.Hour)
			require.Equal(f, 2, f.due())
		}},
		{"postponed, without a row", func(f *fixture) {
			h := f.heldWrite(derived("a"), checkedBy(checkAfter))
			f.Advance(checkAfter + tick)
			rows := f.rows()
			require.NoError(f, f.claims.Postpone(f.Context(), f.scope, h.Record.ID, f.now().Add(time.Minute)))
			require.Zero(f, f.due())
			require.Equal(f, 1, f.entries(ledger.ByCheck))
			require.Equal(f, rows, f.rows())
			f.settle(h, dedupe.Succeeded, "late")
			require.NoError(f, f.claims.Postpone(f.Context(), f.scope, h.Record.ID, f.Store.Now()))
			require.Zero(f, f.entries(ledger.ByCheck))
		}},
		{"gone with a resolution or a lapse", func(f *fixture) {
			h := f.heldWrite(derived("a"), checkedBy(checkAfter))
			_, err := f.resolve(h, dedupe.Succeeded, "1")
			require.NoError(f, err)
			require.Zero(f, f.entries(ledger.ByCheck))
			f.heldWrite(derived("b"), checkedBy(checkAfter))
			require.Equal(f, 1, f.entries(ledger.ByCheck))
			f.Advance(window + tick)
			f.sweep()
			require.Zero(f, f.entries(ledger.ByCheck))
		}},
	}
}
