package dedupe

import (
	"context"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Resolution is what a person found out about a held write.
type Resolution struct {
	// State is Succeeded or NotDone.
	State  State
	Answer []byte // of a success
	// Settle is how long after it was last sent a write may still turn up at the
	// vendor: NotDone is not believed before. 0: nothing is known of that.
	Settle time.Duration
	Note   string
	By     string // id of the API key
	Scribe Scribe
}

// Resolve settles a held write by a person's word. ErrNotHeld if it is not held
// (any more); *StillPossibleError while its lost owner might yet send, or the
// vendor may yet do what was sent;
// *CheckRunningError while a check holds it. Of two
// resolutions at once one is applied and the other gets ErrNotHeld.
func (c *Claims) Resolve(ctx context.Context, scope ledger.Scope, id ActionID, r Resolution) (*Record, error) {
	for range maxDecisions {
		cur, twins, now, err := c.read(ctx, scope, id)
		if err != nil {
			return nil, err
		}
		if again, err := c.needHeld(ctx, scope, cur, now, r.Scribe); again || err != nil {
			if err != nil {
				return cur.Record, err
			}
			continue
		}
		if cur.checking(now) {
			return cur.Record, &CheckRunningError{Until: cur.CheckEnd, Now: now}
		}
		if cur.stillPossible(now) {
			return cur.Record, &StillPossibleError{Until: cur.Deadline, Now: now}
		}
		// A look that was made too early shows nothing of a write that stands in the
		// vendor's queue, and the next one would be a second.
		if until := cur.LastSent().Add(r.Settle); r.State == NotDone && r.Settle > 0 && now.Before(until) {
			return cur.Record, &StillPossibleError{Until: until, Now: now, AtVendor: true}
		}
		rec := cur.clone()
		rec.Resolved, rec.Evidence = true, ByOperator
		s := c.move(cur, rec, r.State, r.Answer, twins, now)
		rec.note(Change{At: now, Event: EventResolved, By: r.By, Detail: r.Note})
		s.Put[0].Data = encodeRecord(rec)
		s.Before = cur.HoldUntil
		s.Rows = [][]byte{r.Scribe(Transition{Event: EventResolved, At: now, Record: rec})}
		if r.State == NotDone {
			s.Rows = append(s.Rows, r.Scribe(Transition{Event: EventNotDone, At: now, Record: rec}))
		}
		res, err := c.store.Apply(ctx, scope, *s)
		if err != nil {
			return nil, fmt.Errorf("resolve action: %w", err)
		}
		if res.Applied {
			return rec, nil
		}
	}
	return nil, errContended
}

// needHeld insists that a write is held and stays so. True means that it was in
// flight under a lease that had lapsed, which nobody had noticed: it is held
// now, and has to be read again.
func (c *Claims) needHeld(ctx context.Context, scope ledger.Scope, cur stored, now time.Time, scribe Scribe) (again bool, err error) {
	switch {
	case cur.leaseOver(now):
		return true, c.holdNow(ctx, scope, cur, now, scribe)
	case cur.State != Held || cur.over(now):
		return false, ErrNotHeld
	default:
		return false, nil
	}
}

// read returns an action, the list of its unsettled twins, and the store time.
func (c *Claims) read(ctx context.Context, scope ledger.Scope, id ActionID) (stored, twinList, time.Time, error) {
	snap, err := c.store.Read(ctx, scope, ledger.Fetch{Key: actionKey(ledger.Action, id)})
	if err != nil {
		return stored{}, twinList{}, time.Time{}, fmt.Errorf("read action: %w", err)
	}
	cur, ok, err := recordIn(snap, id)
	if err != nil {
		return stored{}, twinList{}, time.Time{}, err
	}
	if !ok {
		return stored{}, twinList{}, time.Time{}, ErrNotFound
	}
	// The list may be read at a later instant: the step that changes it expects
	// the version read here.
	snap, err = c.store.Read(ctx, scope, ledger.Fetch{Key: twinsKey(cur.Fingerprint)})
	if err != nil {
		return stored{}, twinList{}, time.Time{}, fmt.Errorf("read twins: %w", err)
	}
	twins, err := twinsIn(snap, cur.Fingerprint)
	return cur, twins, snap.Now, err
}

// holdNow turns one write whose lease has lapsed into a held one. It is no
// error if somebody else did so first.
func (c *Claims) holdNow(ctx context.Context, scope ledger.Scope, cur stored, now time.Time, scribe Scribe) error {
	s := c.touch(cur, now)
	rec := holdLost(s, cur, now)
	s.Rows = [][]byte{scribe(Transition{Event: EventLeaseLost, At: now, Record: rec})}
	if _, err := c.store.Apply(ctx, scope, *s); err != nil {
		return fmt.Errorf("hold action: %w", err)
	}
	return nil
}
