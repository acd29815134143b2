package usage

import (
	"context"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Counter folds rows where nobody does so by sealing them: without it a report
// would count every row there is. Any number may work over one store, and beside
// whoever seals.
type Counter struct {
	Store ledger.Store
	Keep  time.Duration // as in Fold
}

const (
	// countRows is how many rows are folded at once, and countAge how old the
	// oldest of fewer must be: a value is not written anew for each row.
	countRows = 1000
	countAge  = time.Minute
)

// Count folds the rows of a scope that are due, at most so many in one call; true
// means that there may be more.
func (c Counter) Count(ctx context.Context, scope ledger.Scope) (more bool, err error) {
	seen, err := c.Store.Read(ctx, scope, Fetch(Batch{})...)
	if err != nil {
		return false, fmt.Errorf("read how far rows are counted: %w", err)
	}
	b := Batch{After: Folded(seen)}
	if b.Rows, err = c.Store.Rows(ctx, scope, ledger.RowRange{After: b.After, Limit: countRows}); err != nil {
		return false, fmt.Errorf("read rows to count: %w", err)
	}
	more = len(b.Rows) == countRows
	if len(b.Rows) == 0 || !more && seen.Now.Sub(b.Rows[0].At) < countAge {
		return false, nil
	}
	if seen, err = c.Store.Read(ctx, scope, Fetch(b)...); err != nil {
		return false, fmt.Errorf("read figures: %w", err)
	}
	step := ledger.Step{Nonce: ledger.NewNonce(), At: seen.Now}
	if err := Fold(&step, seen, b, c.Keep); err != nil {
		return false, err
	}
	if len(step.Put) == 0 {
		return more, nil // another one was faster
	}
	// Refused, another one was faster, or the clock ran on: there is a next time.
	if _, err := c.Store.Apply(ctx, scope, step); err != nil {
		return false, fmt.Errorf("fold rows: %w", err)
	}
	return more, nil
}
