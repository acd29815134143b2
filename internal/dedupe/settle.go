package dedupe

import (
	"context"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
)

// Settlement is what the owner learned.
type Settlement struct {
	// State is Succeeded, Refused, Held (no trustworthy answer) or NotDone (the
	// write did not happen and the identity is free again).
	State State
	// NotSent refines NotDone: no byte of the request left.
	NotSent bool
	Outcome Outcome
	Attempt *Attempt
	Answer  []byte // of a success
	// Raw is the vendor's answer of a Held whose judging failed, sealed: it is
	// kept until the write is settled, so that it can be judged again.
	Raw    []byte
	Scribe Scribe
}

func (s *Settlement) event() Event {
	switch s.State {
	case Succeeded:
		return EventSucceeded
	case Refused:
		return EventRefused
	case Held:
		return EventHeld
	default:
		if s.NotSent {
			return EventNotSent
		}
		return EventReleased
	}
}

// Renew extends the owner's lease by one lease from now. ErrLeaseLost means the
// lease had lapsed first: the call goes on, and its answer settles the held
// record.
func (c *Claims) Renew(ctx context.Context, h *Handle) error {
	cur := stored{Record: h.Record, version: h.version}
	now := milli(c.store.Now())
	for range maxDecisions {
		if cur.State != InFlight || cur.Owner != h.Record.Owner || cur.leaseOver(now) {
			return ErrLeaseLost
		}
		rec := cur.clone()
		rec.LeaseEnd = later(rec.LeaseEnd, milli(now.Add(c.lease)))
		s := ledger.Step{
			Nonce: ledger.NewNonce(), At: now, Before: cur.LeaseEnd,
			Expect:  []ledger.Expect{cur.expect()},
			Put:     []ledger.Put{{Key: cur.key(), Data: encodeRecord(rec)}},
			Unindex: []ledger.Entry{leaseEntry(cur.Record)},
			Index:   []ledger.Entry{leaseEntry(rec)},
			Fetch:   []ledger.Fetch{{Key: cur.key()}},
		}
		res, err := c.store.Apply(ctx, h.Scope, s)
		if err != nil {
			return fmt.Errorf("renew lease: %w", err)
		}
		if res.Applied {
			h.Record, h.version = rec, s.Nonce.Version()
			return nil
		}
		next, ok, err := recordIn(res.Snapshot, h.Record.ID)
		if err != nil {
			return err
		}
		if !ok {
			return ErrLeaseLost
		}
		cur, now = next, res.Now
	}
	return errContended
}

// Settle records what the owner learned and returns the record as it then
// stands, with its answer. A repeat of a settle that was applied, and whose
// reply was lost, returns the same. After an operator's resolution it records
// the late answer, changes nothing and returns ErrLate with the record.
func (c *Claims) Settle(ctx context.Context, h *Handle, st Settlement) (*Record, error) {
	cur := stored{Record: h.Record, version: h.version}
	twins := h.twins
	now := milli(c.store.Now())
	for range maxDecisions {
		s, rec, err := c.settleStep(cur, h.Record.Owner, &st, twins, now)
		if s == nil {
			return rec, err
		}
		res, applyErr := c.store.Apply(ctx, h.Scope, *s)
		if applyErr != nil {
			return nil, fmt.Errorf("settle action: %w", applyErr)
		}
		if res.Applied {
			h.Record, h.version = rec, s.Nonce.Version()
			if err == nil && (rec.State == Succeeded || rec.State == Refused) {
				// The step put the binding, too (rebind).
				c.recent.put(recentKey{h.Scope, rec.Identity}, settledView{
					binding: h.version, bound: stored{Record: rec, version: h.version}, answer: st.Answer,
				})
			}
			return rec, err
		}
		next, ok, decodeErr := recordIn(res.Snapshot, h.Record.ID)
		if decodeErr != nil {
			return nil, decodeErr
		}
		if !ok {
			return nil, ErrNotFound
		}
		if twins, err = twinsIn(res.Snapshot, cur.Fingerprint); err != nil {
			return nil, err
		}
		cur, now = next, res.Now
	}
	return nil, errContended
}

// settleStep is the rule of a settle. A nil step means there is nothing to
// write; an error beside a step is returned once the step is applied.
func (c *Claims) settleStep(cur stored, owner Owner, st *Settlement, twins twinList, now time.Time) (*ledger.Step, *Record, error) {
	if cur.Owner != owner {
		return nil, cur.Record, ErrNotOwner
	}
	switch {
	case cur.State == InFlight:
	case cur.State == Held && st.State == Held:
		if !cur.OwnerLost {
			return nil, cur.Record, nil // the same settle, applied before
		}
	case cur.State == Held && st.State == NotDone && !cur.OwnerLost:
		return nil, cur.Record, ErrLate
	case cur.State == Held && cur.Resent && st.State != Succeeded:
		// The first request came to nothing; of the second nobody knows yet.
		return c.late(cur, st, now), cur.Record, ErrLate
	case cur.State == Held:
	case cur.Evidence == ByVendor || (cur.State == NotDone && !cur.Resolved):
		return nil, cur.Record, nil // the same settle, applied before
	default:
		return c.late(cur, st, now), cur.Record, ErrLate
	}
	rec := cur.clone()
	rec.Outcome = st.Outcome
	if st.Attempt != nil {
		rec.attempted(*st.Attempt)
	}
	rec.OwnerLost = false // whatever it learned, the owner is here and sends no more
	if st.State == Succeeded || st.State == Refused {
		rec.Evidence = ByVendor
	}
	s := c.move(cur, rec, st.State, st.Answer, twins, now)
	if st.State == Held && st.Raw != nil {
		s.Put = append(s.Put, ledger.Put{Key: actionKey(ledger.Raw, rec.ID), Data: st.Raw})
	}
	event := st.event()
	if cur.State == Held && st.State == Held {
		event = EventLateAnswer // held twice would count as two writes in doubt
	}
	rec.note(Change{At: now, Event: event, Detail: st.Outcome.Reason})
	s.Put[0].Data = encodeRecord(rec)
	s.Rows = [][]byte{st.Scribe(Transition{Event: event, At: now, Record: rec})}
	return s, rec, nil
}

// late records an answer that changes nothing.
func (c *Claims) late(cur stored, st *Settlement, now time.Time) *ledger.Step {
	s := c.touch(cur, now)
	s.Rows = [][]byte{st.Scribe(Transition{Event: EventLateAnswer, At: now, Record: cur.Record})}
	return s
}

// answerAtLeast keeps the answer of a write that was settled at the very end of
// its window, or after it, long enough to be looked at.
const answerAtLeast = time.Hour

// touch begins a step on an action that must still be as it was read.
func (c *Claims) touch(cur stored, now time.Time) *ledger.Step {
	return &ledger.Step{
		Nonce: ledger.NewNonce(), At: now,
		Expect: []ledger.Expect{cur.expect()},
		Fetch:  []ledger.Fetch{{Key: cur.key()}, {Key: twinsKey(cur.Fingerprint)}},
	}
}

// move builds the part of a transition that every new state shares: the record
// (first put, encoded by the caller once it is complete), its indexes, what is
// kept and for how long, and the list of unsettled twins.
func (c *Claims) move(cur stored, rec *Record, to State, answer []byte, twins twinList, now time.Time) *ledger.Step {
	s := c.touch(cur, now)
	rec.State, rec.Settled = to, now
	record := ledger.Put{Key: cur.key()}
	switch cur.State {
	case InFlight:
		s.Unindex = append(s.Unindex, leaseEntry(cur.Record))
	case Held:
		s.Unindex = append(s.Unindex, heldEntries(cur.Record)...)
		s.Delete = append(s.Delete, actionKey(ledger.Raw, rec.ID)) // put again, below, if it is still needed
	default: // settled states stand in no index of unsettled ones
	}
	if to == Held {
		s.Index = append(s.Index, heldEntries(rec)...)
		s.Put = append(s.Put, record)
		return s
	}
	rec.NextCheck, rec.CheckEnd = time.Time{}, time.Time{}
	record.Expires = c.historyEnd(rec)
	s.Put = append(s.Put, record)
	s.Delete = append(s.Delete, actionKey(ledger.Request, rec.ID))
	c.rebind(s, rec)
	if to == Succeeded {
		s.Put = append(s.Put, ledger.Put{
			Key: actionKey(ledger.Answer, rec.ID), Data: encodeAnswer(answer), Expires: later(rec.WindowEnd, now.Add(answerAtLeast)),
		})
	}
	twins.leave(s, rec.Fingerprint, rec.ID)
	return s
}

// rebind gives the binding of an ended action its own end. The binding is not
// read first: while an action is in flight or held its identity is bound to it,
// and the step expects exactly that state.
func (c *Claims) rebind(s *ledger.Step, rec *Record) {
	key := bindingKey(rec.Identity)
	if rec.State == NotDone && !rec.keepsKey() {
		s.Delete = append(s.Delete, key)
		return
	}
	s.Put = append(s.Put, ledger.Put{Key: key, Data: rec.ID[:], Expires: c.historyEnd(rec)})
}

// twinList is the list of unsettled actions of one fingerprint, as last seen.
type twinList struct {
	version ledger.Version
	ids     []ActionID
}

func twinsIn(snap ledger.Snapshot, f identity.Fingerprint) (twinList, error) {
	v, ok := snap.Get(twinsKey(f))
	if !ok {
		return twinList{}, nil
	}
	ids, err := splitIDs(v.Data)
	return twinList{version: v.Version, ids: ids}, err
}

// leave takes an action off the list. An owner that was alone when it claimed
// deletes the list it wrote; if others have joined since, the step is stale and
// is decided again on the present list.
func (t twinList) leave(s *ledger.Step, f identity.Fingerprint, id ActionID) {
	rest := make([]ActionID, 0, len(t.ids))
	for _, other := range t.ids {
		if other != id {
			rest = append(rest, other)
		}
	}
	s.Expect = append(s.Expect, ledger.Expect{Key: twinsKey(f), Version: t.version})
	switch {
	case len(t.ids) == 0:
	case len(rest) == 0:
		s.Delete = append(s.Delete, twinsKey(f))
	default:
		s.Put = append(s.Put, ledger.Put{Key: twinsKey(f), Data: joinIDs(rest)})
	}
}
