package audit

import (
	"context"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Entry is one row as it was found. Unreadable rows are not left out, whatever
// the filter, except by time: a log that hides its damage proves nothing.
type Entry struct {
	Row
	Cursor     string // place of the row in its scope
	Stored     []byte // the row as it is stored, byte for byte
	Unreadable bool   // then Row holds nothing but At, the store's time of the row
}

// Log takes rows for a store. It is safe for concurrent use.
type Log struct{ store ledger.Store }

// NewLog returns the log of a store.
func NewLog(store ledger.Store) *Log { return &Log{store: store} }

// Append writes rows that tell of no change, such as a refusal before a claim,
// in a step of their own, dated by the store. After [ledger.ErrUnavailable] they
// may have been written or not. A closed scope takes none: ErrClosed.
func (l *Log) Append(ctx context.Context, scope ledger.Scope, rows ...Row) error {
	at := l.store.Now().Truncate(time.Millisecond)
	closed := ClosedKey()
	for range maxDecisions {
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: at,
			Expect: []ledger.Expect{{Key: closed}}, Fetch: []ledger.Fetch{{Key: closed}},
		}
		Append(&step, rows...)
		res, err := apply(ctx, l.store, scope, step)
		if err != nil {
			return fmt.Errorf("append audit rows: %w", err)
		}
		if res.Applied {
			return nil
		}
		if _, isClosed := res.Get(closed); isClosed {
			return ErrClosed
		}
		at = res.Now
	}
	return fmt.Errorf("append audit rows: store time keeps moving: %w", ledger.ErrUnavailable)
}
