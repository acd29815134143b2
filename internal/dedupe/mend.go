package dedupe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// places are where an action stands in the indexes of unsettled ones.
func places(r *Record) []ledger.Entry {
	switch r.State {
	case InFlight:
		return []ledger.Entry{leaseEntry(r)}
	case Held:
		return heldEntries(r)
	default:
		return nil
	}
}

// standsAt says whether an action is to stand where an index has it.
func standsAt(r *Record, e ledger.Entry) bool {
	return slices.ContainsFunc(places(r), func(p ledger.Entry) bool {
		return p.Index == e.Index && p.Score.UnixMilli() == e.Score.UnixMilli() && p.Member == e.Member
	})
}

// mend takes away an entry at which an action is not to stand. No step leaves one
// behind; but if one is there, of whatever origin, it must not be looked at for ever,
// keep due checks from being seen, or its tenant from being deleted. An entry whose
// record is gone stays: it is all that is left of a doubt.
//
// The record must still be as it was read. A driver may take the member from wherever
// it stands, so the step puts the action where it is to be.
func (c *Claims) mend(ctx context.Context, scope ledger.Scope, e ledger.Entry, cur stored, now time.Time) error {
	s := ledger.Step{
		Nonce: ledger.NewNonce(), At: now,
		Expect:  []ledger.Expect{cur.expect()},
		Unindex: []ledger.Entry{e}, Index: places(cur.Record),
	}
	if _, err := c.store.Apply(ctx, scope, s); err != nil {
		return fmt.Errorf("mend index: %w", err)
	}
	return nil
}
