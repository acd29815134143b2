package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Errors of Query that the asker can mend.
var (
	// ErrCursor: a cursor that this query did not return.
	ErrCursor = errors.New("cursor is not one of this query")
	// ErrLimit: a page size outside 1..MaxPage.
	ErrLimit = fmt.Errorf("limit must be 1 to %d", MaxPage)
)

const (
	// MaxPage is the most rows one Query returns.
	MaxPage = 1000
	// scanLimit bounds how many rows one Query reads. A filter that few rows
	// pass gives a short page, or an empty one, with a cursor to go on from.
	scanLimit = 4000
	// batch is how many rows are asked of the store at once.
	batch = 500
)

// Page says which part of the selection is wanted. Cursor is "" or the Next of
// the page before, of the same filter and order.
type Page struct {
	Limit  int // 1..MaxPage
	Newest bool
	Cursor string
}

// Entry is one row as it was found. Unreadable rows are not left out, whatever
// the filter, except by time: a log that hides its damage proves nothing.
type Entry struct {
	Row
	Cursor     string // place of the row in its scope
	Stored     []byte // the row as it is stored, byte for byte
	Unreadable bool   // then Row holds nothing but At, the store's time of the row
}

// Log reads the rows of a store. It is safe for concurrent use.
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

// Query returns a page of a scope's rows and the cursor of the next page, "" on
// the last. A page may be short, even empty, and still have a next one: each
// call reads a bounded number of rows. Rows appended meanwhile neither move nor
// repeat what earlier pages showed.
func (l *Log) Query(ctx context.Context, scope ledger.Scope, f Filter, p Page) (rows []Entry, next string, err error) {
	if p.Limit < 1 || p.Limit > MaxPage {
		return nil, "", ErrLimit
	}
	after, err := parseCursor(p.Cursor, f, p.Newest)
	if err != nil {
		return nil, "", err
	}
	if f.none() {
		return nil, "", nil
	}
	for scanned := 0; scanned < scanLimit; {
		span := f.span(after, p)
		found, err := l.store.Rows(ctx, scope, span)
		if err != nil {
			return nil, "", fmt.Errorf("read audit rows: %w", err)
		}
		for _, stored := range found {
			e, ok := f.Pick(stored)
			if ok && len(rows) == p.Limit {
				// Another row exists, so the page has a next one.
				return rows, formatCursor(rows[len(rows)-1].Cursor, f, p.Newest), nil
			}
			if ok {
				rows = append(rows, e)
			}
			after = stored.Cursor
			scanned++
		}
		if len(found) < span.Limit {
			return rows, "", nil
		}
	}
	return rows, formatCursor(after, f, p.Newest), nil
}

// span is what to ask of the store.
func (f Filter) span(after string, p Page) ledger.RowRange {
	r := ledger.RowRange{After: after, Newest: p.Newest, Limit: batch}
	if f.all() {
		r.Limit = min(p.Limit+1, batch)
	}
	r.From, r.To = f.stored()
	return r
}
