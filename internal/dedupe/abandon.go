package dedupe

import (
	"context"
	"fmt"

	"holdfast.dev/gateway/internal/ledger"
)

// Abandon names a claim whose step got no answer. Nothing was sent under it.
type Abandon struct {
	Scope  ledger.Scope
	ID     ActionID
	Owner  Owner
	Nonce  ledger.Nonce
	Scribe Scribe
}

// Abandon undoes an unconfirmed claim: if its step was applied, the action ends
// as not sent and the identity is free; if it was not, it never will be, because
// the same step that finds the action absent also voids the nonce. It ends only
// the action of its own owner token. It must be repeated until it returns nil.
func (c *Claims) Abandon(ctx context.Context, a Abandon) error {
	key := actionKey(ledger.Action, a.ID)
	for range maxDecisions {
		res, err := c.store.Apply(ctx, a.Scope, ledger.Step{
			Nonce: ledger.NewNonce(), At: milli(c.store.Now()),
			Expect: []ledger.Expect{{Key: key}},
			Void:   []ledger.Nonce{a.Nonce},
			Fetch:  []ledger.Fetch{{Key: key}},
		})
		if err != nil {
			return fmt.Errorf("abandon claim: %w", err)
		}
		if res.Applied {
			return nil
		}
		cur, ok, err := recordIn(res.Snapshot, a.ID)
		if err != nil {
			return err
		}
		if !ok {
			continue // refused for its clock; the estimate is fresh now
		}
		if cur.Owner != a.Owner {
			return ErrNotOwner
		}
		h := &Handle{Scope: a.Scope, Record: cur.Record, version: cur.version}
		_, err = c.Settle(ctx, h, Settlement{
			State: NotDone, NotSent: true,
			Outcome: Outcome{Phase: "not_sent", Reason: "claim_unconfirmed"},
			Scribe:  a.Scribe,
		})
		return err
	}
	return errContended
}
