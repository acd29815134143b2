package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// sweepBatch is how many due actions are read at once, and about how many one
// sweep of one index moves. A sweep that moved this many may have left some.
const sweepBatch = 256

// Swept is how many actions a sweep moved.
type Swept struct{ Held, Lapsed int }

func (s Swept) total() int { return s.Held + s.Lapsed }

// More says whether the sweep may have left due actions for the next one.
func (s Swept) More() bool { return s.total() >= sweepBatch }

// Sweep does what the clock asks of one scope: a write whose lease has lapsed
// is held, a held write past its hold has lapsed. Every gateway sweeps; of two
// that meet at one action, one moves it and the other finds it moved. The rows
// are the scribe's, as nobody asked for these transitions.
func (c *Claims) Sweep(ctx context.Context, scope ledger.Scope, scribe Scribe) (Swept, error) {
	var moved Swept
	for _, index := range []ledger.Index{ledger.ByLease, ledger.ByHold} {
		n, err := c.sweepIndex(ctx, scope, index, scribe)
		moved.Held += n.Held
		moved.Lapsed += n.Lapsed
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// sweepIndex reads on behind what it could not move, so that damaged records
// keep nothing else from being noticed.
func (c *Claims) sweepIndex(ctx context.Context, scope ledger.Scope, index ledger.Index, scribe Scribe) (moved Swept, err error) {
	// A little ahead, because Now is an estimate: what is looked at too early is
	// read, found not due on the store's own clock, and left.
	span := ledger.EntryRange{Index: index, To: c.store.Now().Add(ledger.Drift), Limit: sweepBatch}
	for moved.total() < sweepBatch {
		due, err := c.store.Entries(ctx, scope, span)
		if err != nil {
			return moved, fmt.Errorf("sweep: %w", err)
		}
		for _, e := range due {
			done, err := c.sweepOne(ctx, scope, e, scribe)
			if err != nil && !errors.Is(err, ErrUnreadable) && !errors.Is(err, ledger.ErrCorrupt) {
				return moved, err
			}
			switch {
			case err != nil:
			case done == Held:
				moved.Held++
			case done == Lapsed:
				moved.Lapsed++
			}
		}
		if len(due) < span.Limit {
			return moved, nil
		}
		span.After = &due[len(due)-1]
	}
	return moved, nil
}

// sweepOne moves one action if it is due, and returns the state it moved it to,
// 0 for none. An unreadable record stays where it is: it is never sent, and
// never mended by guessing.
func (c *Claims) sweepOne(ctx context.Context, scope ledger.Scope, e ledger.Entry, scribe Scribe) (State, error) {
	if len(e.Member) != len(ActionID{}) {
		return 0, ErrUnreadable
	}
	cur, twins, now, err := c.read(ctx, scope, ActionID([]byte(e.Member)))
	if errors.Is(err, ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	switch {
	case !standsAt(cur.Record, e):
		return 0, c.mend(ctx, scope, e, cur, now)
	case cur.leaseOver(now):
		return Held, c.holdNow(ctx, scope, cur, now, scribe)
	case cur.State == Held && cur.over(now):
		return Lapsed, c.lapseNow(ctx, scope, cur, twins, now, scribe)
	default:
		return 0, nil
	}
}

func (c *Claims) lapseNow(ctx context.Context, scope ledger.Scope, cur stored, twins twinList, now time.Time, scribe Scribe) error {
	s := c.touch(cur, now)
	rec := c.lapse(s, cur, now)
	c.rebind(s, rec)
	twins.leave(s, rec.Fingerprint, rec.ID)
	s.Rows = [][]byte{scribe(Transition{Event: EventLapsed, At: now, Record: rec})}
	if _, err := c.store.Apply(ctx, scope, *s); err != nil {
		return fmt.Errorf("lapse action: %w", err)
	}
	return nil
}

// Trim forgets the listing of actions whose records have long expired.
func (c *Claims) Trim(ctx context.Context, scope ledger.Scope) error {
	before := c.store.Now().Add(-c.history - maxHold)
	if err := c.store.Trim(ctx, scope, ledger.ByCreated, before); err != nil {
		return fmt.Errorf("trim listing: %w", err)
	}
	if err := c.store.Trim(ctx, scope, ledger.ByAlias, c.store.Now()); err != nil {
		return fmt.Errorf("trim aliases: %w", err)
	}
	return nil
}

// maxHold is the longest a write can stay unsettled: the longest window.
const maxHold = 720 * time.Hour
