package trail

import (
	"context"
	"errors"
	"fmt"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// Archive reads what is sealed; archive's Reader does.
type Archive interface {
	Head(ctx context.Context, scope ledger.Scope) (h archive.Head, ok bool, err error)
	Entries(ctx context.Context, scope ledger.Scope, r archive.Range) ([]archive.Entry, error)
	MayHold(ctx context.Context, e archive.Entry, terms []string) (bool, error)
	Rows(ctx context.Context, e archive.Entry) ([]archive.Row, error)
	Text(ctx context.Context, e archive.Entry) ([]byte, error)
}

// Log reads the logs of a store and its archive, and takes rows as the store's
// own log does. It is safe for concurrent use.
type Log struct {
	*audit.Log
	store   ledger.Store
	archive Archive
}

// New returns the logs of a store. The archive is nil where nothing is sealed
// away.
func New(store ledger.Store, a Archive) *Log {
	return &Log{Log: audit.NewLog(store), store: store, archive: a}
}

// head is how far a scope is sealed, the zero Head if nothing is.
func (l *Log) head(ctx context.Context, scope ledger.Scope) (archive.Head, error) {
	if l.archive == nil {
		return archive.Head{}, nil
	}
	h, _, err := l.archive.Head(ctx, scope)
	if err != nil {
		return archive.Head{}, fmt.Errorf("read audit rows: %w", err)
	}
	return h, nil
}

// entries lists segments; none where nothing is sealed away.
func (l *Log) entries(ctx context.Context, scope ledger.Scope, r archive.Range) ([]archive.Entry, error) {
	if l.archive == nil {
		return nil, nil
	}
	found, err := l.archive.Entries(ctx, scope, r)
	if err != nil {
		return nil, fmt.Errorf("list audit segments: %w", err)
	}
	return found, nil
}

// rows reads from the store. A cursor that came from outside and that the store
// cannot read is the asker's mistake.
func (l *Log) rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) ([]ledger.Row, error) {
	found, err := l.store.Rows(ctx, scope, r)
	switch {
	case err == nil:
		return found, nil
	case r.After != "" && ctx.Err() == nil && !errors.Is(err, ledger.ErrUnavailable) &&
		!errors.Is(err, ledger.ErrCorrupt) && !errors.Is(err, ledger.ErrNotReady):
		return nil, ErrCursor
	default:
		return nil, fmt.Errorf("read audit rows: %w", err)
	}
}

// gone says whether a segment that could not be read has been let go meanwhile,
// its time being over.
func (l *Log) gone(ctx context.Context, scope ledger.Scope, e archive.Entry) bool {
	h, err := l.head(ctx, scope)
	return err == nil && h.Kept.Number > e.Number
}
