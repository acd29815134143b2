package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"holdfast.dev/gateway/internal/ledger"
)

// maxDecisions bounds how often one change is decided again. Each time round
// somebody else changed the same record; administration is rare, so reaching
// the bound means something is broken.
const maxDecisions = 16

// errNoRow is a mistake of the caller: a change that nobody could see.
var errNoRow = errors.New("change without an audit row")

// ErrClosed means the scope belonged to a tenant that was deleted.
var ErrClosed = errors.New("scope is closed")

// ClosedKey is where a scope is marked closed, for good: its tenant was deleted
// and [Change] refuses it. Whatever else is written to a scope outlives the
// tenant only because it had begun before.
//
// The slash keeps it apart from the names of tenants, which are ids of the same
// kind in the platform's scope.
func ClosedKey() ledger.Key { return ledger.Key{Kind: ledger.Tenant, ID: "/closed"} }

// Change reads what fetch names and lets decide fill a step from it, whose
// Nonce and At are set. It applies the step; if the store moved on in between,
// it shows decide the present state and a new step. decide must be pure: it may
// run several times. A step left empty changes nothing and is not an error.
//
// A step that changes something must carry a row ([Append]) and an Expect for
// each value it was decided on.
//
// Errors of decide are returned as they are; a closed scope gives ErrClosed. After [ledger.ErrUnavailable] the
// change may have been made or not; decide must therefore be written so that
// calling Change again is right either way.
func Change(
	ctx context.Context, store ledger.Store, scope ledger.Scope, fetch []ledger.Fetch,
	decide func(seen ledger.Snapshot, step *ledger.Step) error,
) (ledger.Step, error) {
	closed := ClosedKey()
	fetch = append(slices.Clip(fetch), ledger.Fetch{Key: closed})
	seen, err := store.Read(ctx, scope, fetch...)
	if err != nil {
		return ledger.Step{}, fmt.Errorf("read for change: %w", err)
	}
	for range maxDecisions {
		if _, isClosed := seen.Get(closed); isClosed {
			return ledger.Step{}, ErrClosed
		}
		step := ledger.Step{Nonce: ledger.NewNonce(), At: seen.Now, Fetch: fetch}
		if err := decide(seen, &step); err != nil {
			return ledger.Step{}, err
		}
		if empty(&step) {
			return step, nil
		}
		if len(step.Rows) == 0 {
			return ledger.Step{}, errNoRow
		}
		step.Expect = append(step.Expect, ledger.Expect{Key: closed})
		res, err := apply(ctx, store, scope, step)
		if err != nil {
			return ledger.Step{}, fmt.Errorf("apply change: %w", err)
		}
		if res.Applied {
			return step, nil
		}
		seen = res.Snapshot
	}
	return ledger.Step{}, fmt.Errorf("change kept losing races: %w", ledger.ErrUnavailable)
}

// apply repeats a step once, under its nonce, if the store did not answer: the
// repeat learns what became of the first and changes nothing twice.
func apply(ctx context.Context, store ledger.Store, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	res, err := store.Apply(ctx, scope, step)
	if errors.Is(err, ledger.ErrUnavailable) && ctx.Err() == nil {
		res, err = store.Apply(ctx, scope, step)
	}
	return res, err
}

func empty(s *ledger.Step) bool {
	return len(s.Delete) == 0 && len(s.Put) == 0 && len(s.Add) == 0 &&
		len(s.Unindex) == 0 && len(s.Index) == 0 && len(s.Rows) == 0
}
