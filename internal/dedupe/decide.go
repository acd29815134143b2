package dedupe

import (
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// bindSlack keeps a value that may no longer matter a little past the moment it
// stops mattering, so that no rule depends on which of two expiries runs first.
const bindSlack = time.Hour

// decide is the claim order. It is a pure function of the claim and the view.
func (c *Claims) decide(cl *Claim, v view) (decision, error) {
	b := v.bound
	switch {
	case !v.basisHolds && !(b != nil && b.Owner == cl.Owner): // before anything is told
		return decision{}, ErrGuard
	case b == nil || b.over(v.now): // rule 1
	case b.Fingerprint != cl.Fingerprint: // rule 2: before anything else is told
		return c.keyReused(cl, v), nil
	case b.State.Unsettled(): // rules 3 and 4
		if !(cl.AllowDuplicate && b.Identity != cl.Identity) {
			return c.unsettled(cl, v), nil
		}
	case b.State == Refused && cl.RetryRefused: // rule 4
	default:
		return c.replay(cl, v)
	}
	if twin := otherTwin(cl, v); twin != nil && !cl.AllowDuplicate { // rule 5
		return c.twin(cl, v, *twin), nil
	}
	if !cl.MayAcquire { // rule 7
		return decision{claimed: Claimed{Verdict: WouldAcquire, Now: v.now}}, nil
	}
	if !v.guardHolds {
		return decision{}, ErrGuard
	}
	return c.acquire(cl, v) // rule 8
}

// otherTwin returns an unsettled action of the same fingerprint that this
// identity is not the owner of.
func otherTwin(cl *Claim, v view) *stored {
	for i := range v.liveTwins {
		if t := &v.liveTwins[i]; t.Identity != cl.Identity && t.Fingerprint == cl.Fingerprint {
			return t
		}
	}
	return nil
}

// step begins the step of a decision: what it saw must still hold.
func (cl *Claim) step(v view) *ledger.Step {
	s := &ledger.Step{
		Nonce:  ledger.NewNonce(),
		At:     v.now,
		Expect: []ledger.Expect{{Key: bindingKey(cl.Identity), Version: v.binding}},
		Fetch:  cl.fetch(),
	}
	if v.bound != nil {
		s.Expect = append(s.Expect, v.bound.expect())
	}
	s.Expect = append(s.Expect, cl.Basis...)
	return s
}

func (cl *Claim) row(ev Event, at time.Time, rec *Record) []byte {
	return cl.Scribe(Transition{Event: ev, At: at, Record: rec})
}

func (c *Claims) keyReused(cl *Claim, v view) decision {
	s := cl.step(v)
	s.Rows = [][]byte{cl.row(EventKeyReused, v.now, v.bound.Record)}
	return decision{claimed: Claimed{Verdict: KeyReused, Now: v.now, Record: v.bound.Record}, step: s}
}

// unsettled answers a repeat of a write that is in flight or held. A lapsed
// lease is noticed here as well as by the sweep.
func (c *Claims) unsettled(cl *Claim, v view) decision {
	s := cl.step(v)
	rec := v.bound.Record
	if rec.leaseOver(v.now) {
		rec = holdLost(s, *v.bound, v.now)
		s.Rows = append(s.Rows, cl.row(EventLeaseLost, v.now, rec))
	}
	claimed := Claimed{Now: v.now, Record: rec}
	switch {
	case rec.Identity != cl.Identity:
		claimed.Verdict = Twin
		s.Rows = append(s.Rows, cl.row(EventTwinRefused, v.now, rec))
	case rec.State == Held:
		claimed.Verdict = OnHold
		if v.now.Before(rec.HoldUntil) {
			s.Before = rec.HoldUntil
		} // else nobody had noticed until its hold was over too: told once, then over
		s.Rows = append(s.Rows, cl.row(EventHeldRepeat, v.now, rec))
	case rec.Owner == cl.Owner:
		// The claim's own step, decided twice: the first one was applied.
		claimed.Verdict = Acquired
		claimed.Handle = &Handle{Scope: cl.Scope, Record: rec, version: v.bound.version, twins: v.twins}
		return decision{claimed: claimed}
	default:
		claimed.Verdict = Busy
		s.Before = rec.LeaseEnd
		s.Rows = append(s.Rows, cl.row(EventInFlight, v.now, rec))
	}
	return decision{claimed: claimed, step: s}
}

// replay answers from what is stored. The counter is an addition, not a new
// version of the record, so a thousand replays at once do not wait in line.
func (c *Claims) replay(cl *Claim, v view) (decision, error) {
	rec := v.bound.Record
	if rec.State == Succeeded && v.answer == nil {
		return decision{}, ErrUnreadable
	}
	s := cl.step(v)
	s.Before = rec.WindowEnd
	s.Add = []ledger.Add{{Key: actionKey(ledger.Replays, rec.ID), Delta: 1, Expires: c.historyEnd(rec)}}
	s.Rows = [][]byte{cl.row(EventReplayed, v.now, rec)}
	return decision{claimed: Claimed{Verdict: Replayed, Now: v.now, Record: rec, Answer: v.answer}, step: s}, nil
}

// twin binds this identity to the unsettled action that does the same thing,
// so that its repeats get that action's outcome.
func (c *Claims) twin(cl *Claim, v view, t stored) decision {
	s := cl.step(v)
	s.Expect = append(s.Expect,
		ledger.Expect{Key: twinsKey(cl.Fingerprint), Version: v.twins.version}, t.expect())
	c.endHold(cl, s, v)
	s.Put = append(s.Put, ledger.Put{Key: bindingKey(cl.Identity), Data: t.ID[:], Expires: twinsEnd(t.Record)})
	if b := v.bound; b != nil && b.Identity != cl.Identity {
		s.Unindex = append(s.Unindex, aliasEntry(cl.Identity, b.Record)) // an older one is trimmed
	}
	s.Index = append(s.Index, aliasEntry(cl.Identity, t.Record))
	s.Rows = append(s.Rows, cl.row(EventTwinRefused, v.now, t.Record))
	return decision{claimed: Claimed{Verdict: Twin, Now: v.now, Record: t.Record}, step: s}
}

// twinsEnd is when another identity is no longer bound to this action.
func twinsEnd(r *Record) time.Time { return r.HoldUntil.Add(bindSlack) }

func (c *Claims) acquire(cl *Claim, v view) (decision, error) {
	s := cl.step(v)
	at := v.now
	draft, err := cl.Draft(at, inheritedKey(v, cl))
	if err != nil {
		return decision{}, err
	}
	rec := c.newRecord(cl, draft, at)
	if v.bound != nil {
		c.supersede(cl, s, v, rec)
	}
	rec.note(Change{At: at, Event: EventClaimed, By: cl.KeyID})

	twins := make([]ActionID, 0, len(v.liveTwins)+1)
	for _, t := range v.liveTwins {
		twins = append(twins, t.ID)
	}
	twins = append(twins, rec.ID)

	s.Expect = append(s.Expect, ledger.Expect{Key: twinsKey(cl.Fingerprint), Version: v.twins.version})
	s.Expect = append(s.Expect, cl.Guard...)
	s.Put = append(s.Put,
		ledger.Put{Key: bindingKey(cl.Identity), Data: rec.ID[:]},
		ledger.Put{Key: actionKey(ledger.Action, rec.ID), Data: encodeRecord(rec)},
		ledger.Put{Key: actionKey(ledger.Request, rec.ID), Data: draft.Request},
		ledger.Put{Key: twinsKey(cl.Fingerprint), Data: joinIDs(twins)},
	)
	if cl.Tally != nil {
		s.Add = append(s.Add, cl.Tally(at))
	}
	s.Index = append(s.Index, createdEntry(rec), leaseEntry(rec))
	s.Rows = append(s.Rows, cl.row(EventClaimed, at, rec))
	version := s.Nonce.Version()
	return decision{
		claimed: Claimed{Verdict: Acquired, Now: at, Record: rec,
			Handle: &Handle{Scope: cl.Scope, Record: rec, version: version, twins: twinList{version: version, ids: twins}}},
		step:     s,
		acquires: true,
	}, nil
}

func (c *Claims) newRecord(cl *Claim, d Draft, at time.Time) *Record {
	rec := &Record{
		ID: cl.ID, Identity: cl.Identity, Fingerprint: cl.Fingerprint, Source: cl.Source,
		State: InFlight, Owner: cl.Owner,
		ConnectionID: d.ConnectionID, Connection: d.Connection, Action: d.Action,
		Connector: d.Connector, ConnectorSum: d.ConnectorSum,
		KeyID: cl.KeyID, RequestID: cl.RequestID,
		Created:   at,
		LeaseEnd:  milli(at.Add(c.lease)),
		WindowEnd: milli(at.Add(d.Window)),
		Deadline:  milli(at.Add(c.lease + d.Timeout)),
		Marker:    d.Marker, VendorKey: d.VendorKey,
	}
	rec.HoldUntil = later(rec.WindowEnd, milli(at.Add(HoldAtLeast)))
	if d.CheckAfter > 0 {
		rec.NextCheck = milli(at.Add(d.CheckAfter))
	}
	if d.VendorKey != "" && d.VendorKeyLife > 0 {
		rec.VendorKeyEnd = milli(at.Add(d.VendorKeyLife))
	}
	return rec
}

// supersede names the action the identity was bound to before, where that says
// something: a refusal run again, a write that lapsed or was found not done.
func (c *Claims) supersede(cl *Claim, s *ledger.Step, v view, rec *Record) {
	old := *v.bound
	if old.Identity != cl.Identity {
		return // it was bound to a twin
	}
	if lapsed := c.endHold(cl, s, v); lapsed != nil {
		rec.Previous = &Previous{ID: lapsed.ID, State: lapsed.State, At: lapsed.Settled}
		return
	}
	if old.State != Succeeded {
		rec.Previous = &Previous{ID: old.ID, State: old.State, At: old.Settled}
	}
	if old.State == NotDone && rec.VendorKey == old.VendorKey {
		rec.VendorKeyEnd = old.VendorKeyEnd // the vendor's memory began with the first use
	}
}

// endHold lapses the identity's own held write whose hold is over, where the
// sweep has not come by yet, and returns it; nil if there is none. It is part of
// every step that binds the identity to another action: a write that is still
// held would take the binding back when it ends.
func (c *Claims) endHold(cl *Claim, s *ledger.Step, v view) *Record {
	if v.bound == nil || v.bound.Identity != cl.Identity || v.bound.State != Held {
		return nil
	}
	lapsed := c.lapse(s, *v.bound, v.now)
	s.Rows = append(s.Rows, cl.row(EventLapsed, v.now, lapsed))
	return lapsed
}

// inheritedKey returns the vendor key of a write that was sent, held, and then
// found not done, while its vendor is documented to remember the key: should
// that finding be wrong, the vendor itself will refuse the second effect. Writes
// that were released in between hand it on.
func inheritedKey(v view, cl *Claim) string {
	old := v.bound
	if old == nil || old.Identity != cl.Identity || !old.keepsKey() || !v.now.Before(old.VendorKeyEnd) {
		return ""
	}
	return old.VendorKey
}

// historyEnd is when an ended record may be forgotten: not before its window's
// end, and not before the bindings of its twins.
func (c *Claims) historyEnd(r *Record) time.Time {
	end := r.Settled
	if end.IsZero() {
		end = r.Created
	}
	return later(later(r.WindowEnd, twinsEnd(r)), end.Add(c.history))
}

// holdLost turns a write whose lease has lapsed into a held one.
func holdLost(s *ledger.Step, old stored, now time.Time) *Record {
	rec := old.clone()
	rec.State, rec.OwnerLost, rec.Settled = Held, true, now
	rec.Outcome = Outcome{Phase: "sent_no_answer", Reason: "owner_lost"}
	if !rec.NextCheck.IsZero() {
		rec.NextCheck = later(rec.NextCheck, rec.Deadline) // no check starts before it
	}
	rec.note(Change{At: now, Event: EventLeaseLost})
	s.Put = append(s.Put, ledger.Put{Key: old.key(), Data: encodeRecord(rec)})
	s.Unindex = append(s.Unindex, leaseEntry(old.Record))
	s.Index = append(s.Index, heldEntries(rec)...)
	return rec
}

// lapse ends a held write whose hold is over.
func (c *Claims) lapse(s *ledger.Step, old stored, now time.Time) *Record {
	rec := old.clone()
	rec.State, rec.Settled = Lapsed, now
	rec.NextCheck, rec.CheckEnd = time.Time{}, time.Time{}
	rec.note(Change{At: now, Event: EventLapsed})
	s.Put = append(s.Put, ledger.Put{Key: old.key(), Data: encodeRecord(rec), Expires: c.historyEnd(rec)})
	s.Delete = append(s.Delete, actionKey(ledger.Request, rec.ID), actionKey(ledger.Raw, rec.ID))
	s.Unindex = append(s.Unindex, heldEntries(old.Record)...)
	return rec
}
