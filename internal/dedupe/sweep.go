package dedupe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// sweepBatch is how many due actions are read at once, and about how many one
// sweep of one index moves.
const sweepBatch = 256

// Sweep does what the clock asks of one scope: a write whose lease has lapsed
// is held, a held write past its hold has lapsed. Every gateway sweeps; of two
// that meet at one action, one moves it and the other finds it moved. It
// returns how many actions it moved.
func (c *Claims) Sweep(ctx context.Context, scope ledger.Scope) (int, error) {
	moved := 0
	for _, index := range []ledger.Index{ledger.ByLease, ledger.ByHold} {
		n, err := c.sweepIndex(ctx, scope, index)
		moved += n
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// sweepIndex reads on behind what it could not move, so that damaged records
// keep nothing else from being noticed.
func (c *Claims) sweepIndex(ctx context.Context, scope ledger.Scope, index ledger.Index) (moved int, err error) {
	// A little ahead, because Now is an estimate: what is looked at too early is
	// read, found not due on the store's own clock, and left.
	span := ledger.EntryRange{Index: index, To: c.store.Now().Add(ledger.Drift), Limit: sweepBatch}
	for moved < sweepBatch {
		due, err := c.store.Entries(ctx, scope, span)
		if err != nil {
			return moved, fmt.Errorf("sweep: %w", err)
		}
		for _, e := range due {
			done, err := c.sweepOne(ctx, scope, e)
			if err != nil && !errors.Is(err, ErrUnreadable) && !errors.Is(err, ledger.ErrCorrupt) {
				return moved, err
			}
			if done {
				moved++
			}
		}
		if len(due) < span.Limit {
			return moved, nil
		}
		span.After = &due[len(due)-1]
	}
	return moved, nil
}

// sweepOne moves one action if it is due. An unreadable record stays where it
// is: it is never sent, and never mended by guessing.
func (c *Claims) sweepOne(ctx context.Context, scope ledger.Scope, e ledger.Entry) (bool, error) {
	if len(e.Member) != len(ActionID{}) {
		return false, ErrUnreadable
	}
	cur, twins, now, err := c.read(ctx, scope, ActionID([]byte(e.Member)))
	if errors.Is(err, ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	switch {
	case cur.leaseOver(now):
		return true, c.holdNow(ctx, scope, cur, now, c.scribe)
	case cur.State == Held && cur.over(now):
		return true, c.lapseNow(ctx, scope, cur, twins, now)
	default:
		return false, nil
	}
}

func (c *Claims) lapseNow(ctx context.Context, scope ledger.Scope, cur stored, twins twinList, now time.Time) error {
	s := c.touch(cur, now)
	rec := c.lapse(s, cur, now)
	c.rebind(s, rec)
	twins.leave(s, rec.Fingerprint, rec.ID)
	s.Rows = [][]byte{c.scribe(Transition{Event: EventLapsed, At: now, Record: rec})}
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
	return nil
}

// maxHold is the longest a write can stay unsettled: the longest window.
const maxHold = 720 * time.Hour
