package trail

import (
	"context"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// ErrLimit: a page size outside 1..MaxPage.
var ErrLimit = fmt.Errorf("limit must be 1 to %d", MaxPage)

// MaxPage is the most rows one Query returns.
const MaxPage = 1000

// One query reads a bounded part of a log. A filter that few rows pass gives a
// short page, or an empty one, with a cursor to go on from.
const (
	maxRows    = 10_000          // read from the store
	maxOpened  = 32              // segments that are opened
	maxSkipped = 8192            // and that are not
	patience   = 2 * time.Second // after it a query begins nothing more
)

// Page says which part of the selection is wanted. Cursor is "" or the next of
// the page before, of the same filter and order.
type Page struct {
	Limit  int // 1..MaxPage
	Newest bool
	Cursor string
}

// Query returns a page of a scope's rows and the cursor of the next page, "" on
// the last. A page may be short, even empty, and still have a next one: each
// call reads a bounded part of the log. Rows appended, sealed or trimmed
// meanwhile neither move nor repeat what earlier pages showed. A segment that
// cannot be read shows as one unreadable entry; one whose terms say that nothing
// in it is selected is not looked at, not even for rows that cannot be read.
func (l *Log) Query(ctx context.Context, scope ledger.Scope, f audit.Filter, p Page) (rows []audit.Entry, next string, err error) {
	if p.Limit < 1 || p.Limit > MaxPage {
		return nil, "", ErrLimit
	}
	after, err := parseCursor(p.Cursor, f, p.Newest)
	if err != nil {
		return nil, "", err
	}
	if f.Nothing() {
		return nil, "", nil
	}
	w := walk{log: l, scope: scope, filter: f, terms: f.Terms(), newest: p.Newest, after: after, limit: batch}
	if f.TimeOnly() {
		w.limit = min(p.Limit+1, batch)
	}
	q := query{filter: f, limit: p.Limit, until: time.Now().Add(patience)}
	for !q.spent() {
		s, err := w.next(ctx)
		if err != nil {
			return nil, "", err
		}
		if q.take(s, w.after) {
			// Another row exists, so the page has a next one.
			return q.rows, formatCursor(q.rows[len(q.rows)-1].Cursor, f, p.Newest), nil
		}
		if s.end {
			return q.rows, "", nil
		}
	}
	return q.rows, formatCursor(w.after, f, p.Newest), nil
}

// query fills a page.
type query struct {
	filter audit.Filter
	limit  int
	rows   []audit.Entry

	read, opened, skipped int
	until                 time.Time
}

// take adds what is selected of a stretch, behind which the place is after. Full means that more is selected than
// the page takes.
func (q *query) take(s stretch, after string) (full bool) {
	switch {
	case s.entry == nil:
		q.read += len(s.rows)
	case s.skipped:
		q.skipped++
	default:
		q.opened++
	}
	if s.damaged {
		lost := audit.Entry{Row: audit.Row{At: s.entry.From}, Cursor: after, Unreadable: true}
		return q.add(lost)
	}
	for _, stored := range s.rows {
		if e, ok := q.filter.Pick(stored); ok && q.add(e) {
			return true
		}
	}
	return false
}

func (q *query) add(e audit.Entry) (full bool) {
	if len(q.rows) == q.limit {
		return true
	}
	q.rows = append(q.rows, e)
	return false
}

func (q *query) spent() bool {
	return q.read >= maxRows || q.opened >= maxOpened || q.skipped >= maxSkipped ||
		q.read+q.opened+q.skipped > 0 && time.Now().After(q.until)
}
