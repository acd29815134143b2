package dedupe

import (
	"context"
	"errors"
	"fmt"

	"holdfast.dev/gateway/internal/ledger"
)

// resealBatch is how many index entries are read at once.
const resealBatch = 256

// Reseal passes what is kept sealed of every unsettled write of a scope, its
// request and perhaps an answer that could not be judged (ledger.Request,
// ledger.Raw), to reseal, and stores what it returns if that is other bytes. Nothing else of a
// write changes, so there is no row. It returns how many it replaced. A write
// that is settled meanwhile needs it no more; one that an error of reseal names
// stays as it is, and the error is returned when all have been seen.
func (c *Claims) Reseal(ctx context.Context, scope ledger.Scope, reseal func(kind ledger.Kind, id ActionID, sealed []byte) ([]byte, error)) (int, error) {
	replaced := 0
	var failed error
	// In the order of a write's life, so that one that moves is seen.
	for _, index := range []ledger.Index{ledger.ByLease, ledger.ByHold} {
		var after *ledger.Entry
		for {
			found, err := c.store.Entries(ctx, scope, ledger.EntryRange{Index: index, After: after, Limit: resealBatch})
			if err != nil {
				return replaced, fmt.Errorf("list unsettled writes: %w", err)
			}
			for i := range found {
				after = &found[i]
				for _, kind := range []ledger.Kind{ledger.Request, ledger.Raw} {
					done, err := c.resealOne(ctx, scope, kind, after.Member, reseal)
					switch {
					case errors.Is(err, ledger.ErrUnavailable):
						return replaced, err
					case err != nil:
						failed = errors.Join(failed, err)
					case done:
						replaced++
					}
				}
			}
			if len(found) < resealBatch {
				break
			}
		}
	}
	return replaced, failed
}

func (c *Claims) resealOne(ctx context.Context, scope ledger.Scope, kind ledger.Kind, member string, reseal func(ledger.Kind, ActionID, []byte) ([]byte, error)) (bool, error) {
	if len(member) != len(ActionID{}) {
		return false, ErrUnreadable
	}
	id := ActionID([]byte(member))
	key := actionKey(kind, id)
	snap, err := c.store.Read(ctx, scope, ledger.Fetch{Key: key})
	if err != nil {
		return false, fmt.Errorf("read what is sealed: %w", err)
	}
	for range maxDecisions {
		v, ok := snap.Get(key)
		if !ok {
			return false, nil // settled, or there was none
		}
		fresh, err := reseal(kind, id, v.Data)
		if err != nil {
			return false, fmt.Errorf("reseal %s: %w", id, err)
		}
		if string(fresh) == string(v.Data) {
			return false, nil
		}
		// The settle deletes it whatever its version, and this step needs
		// it to be there: whichever comes second finds what it must.
		res, err := c.store.Apply(ctx, scope, ledger.Step{
			Nonce: ledger.NewNonce(), At: snap.Now,
			Expect: []ledger.Expect{{Key: key, Version: v.Version}},
			Put:    []ledger.Put{{Key: key, Data: fresh}},
			Fetch:  []ledger.Fetch{{Key: key}},
		})
		if err != nil {
			return false, fmt.Errorf("reseal: %w", err)
		}
		if res.Applied {
			return true, nil
		}
		snap = res.Snapshot
	}
	return false, errContended
}
