package trail

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

const (
	// batch is how many rows are asked of the store at once.
	batch = 500
	// Segments are listed a few at first, which is often enough, and then more at
	// once.
	listFirst = 2
	listMost  = 256
)

// walk reads a log from a place on, in either direction.
type walk struct {
	log    *Log
	scope  ledger.Scope
	filter audit.Filter
	terms  []string
	newest bool
	limit  int // of rows from the store at once

	after   string          // where it is: what is behind this in the direction is to come
	segment []archive.Entry // the next ones
	listed  int             // how many were listed at once
	hotDone bool            // newest first: what is not sealed has been read
}

// stretch is the next part of a log: rows, or a segment that was not opened
// because none of its rows is selected, or that cannot be.
type stretch struct {
	rows    []ledger.Row // in the direction of reading
	entry   *archive.Entry
	skipped bool
	damaged bool
	end     bool // nothing follows
}

// next reads the next stretch and moves behind it.
func (w *walk) next(ctx context.Context) (stretch, error) {
	for {
		if len(w.segment) > 0 {
			e := w.segment[0]
			w.segment = w.segment[1:]
			return w.sealed(ctx, e)
		}
		h, err := w.log.head(ctx, w.scope)
		if err != nil {
			return stretch{}, err
		}
		if w.inArchive(h) {
			more, err := w.list(ctx)
			if err != nil || more {
				return stretch{}, err // an empty stretch; the segments come next
			}
			if w.newest {
				return stretch{end: true}, nil
			}
			w.after = h.Cursor
		}
		s, ok, err := w.hot(ctx, h)
		if err != nil || ok {
			return s, err
		}
	}
}

// inArchive says whether the next row is a sealed one.
func (w *walk) inArchive(h archive.Head) bool {
	if w.newest {
		return h.Number > 0 && (w.hotDone || w.after != "" && w.after <= h.Cursor)
	}
	return w.after < h.Cursor
}

func (w *walk) list(ctx context.Context) (more bool, err error) {
	w.listed = min(max(4*w.listed, listFirst), listMost)
	r := archive.Range{After: w.after, Newest: w.newest, Limit: w.listed}
	r.From, r.To = w.filter.Stored()
	found, err := w.log.entries(ctx, w.scope, r)
	if w.newest && len(found) > 1 && w.after != "" && w.after <= behind(found[1]) {
		found = found[1:] // all rows of the first are in front of the place
	}
	w.segment = found
	return len(found) > 0, err
}

// hot reads rows of the store that are not sealed. It is not ok if some were
// sealed meanwhile: then they may be gone from the store, and are read from the
// archive.
func (w *walk) hot(ctx context.Context, h archive.Head) (s stretch, ok bool, err error) {
	if w.newest && w.hotDone {
		return stretch{end: true}, true, nil
	}
	r := ledger.RowRange{After: w.after, Newest: w.newest, Limit: w.limit}
	r.From, r.To = w.filter.Stored()
	found, err := w.log.rows(ctx, w.scope, r)
	if err != nil {
		return s, false, err
	}
	if now, err := w.log.head(ctx, w.scope); err != nil || now.Cursor != h.Cursor {
		return s, false, err
	}
	last := len(found) < r.Limit
	if i := slices.IndexFunc(found, func(r ledger.Row) bool { return r.Cursor <= h.Cursor }); w.newest && i >= 0 {
		found, last = found[:i], true
	}
	if len(found) > 0 {
		w.after = found[len(found)-1].Cursor
	}
	w.hotDone = w.newest && last
	return stretch{rows: found, end: last && (!w.newest || h.Number == 0)}, true, nil
}

// sealed reads a segment, unless its terms say that there is nothing in it.
func (w *walk) sealed(ctx context.Context, e archive.Entry) (stretch, error) {
	may, err := w.log.archive.MayHold(ctx, e, w.terms)
	if err != nil {
		return stretch{}, err
	}
	if !may {
		return w.leave(ctx, stretch{entry: &e, skipped: true})
	}
	rows, err := w.log.archive.Rows(ctx, e)
	if err != nil {
		return w.unread(ctx, e, err)
	}
	s := stretch{entry: &e, rows: make([]ledger.Row, 0, len(rows))}
	for _, r := range rows {
		if w.after == "" || w.newest && r.Cursor < w.after || !w.newest && r.Cursor > w.after {
			s.rows = append(s.rows, r.Row)
		}
	}
	if w.newest {
		slices.Reverse(s.rows)
	}
	return w.leave(ctx, s)
}

// unread goes on behind a segment that cannot be read.
func (w *walk) unread(ctx context.Context, e archive.Entry, cause error) (stretch, error) {
	if ctx.Err() != nil {
		return stretch{}, ctx.Err()
	}
	s := stretch{entry: &e, damaged: !w.log.gone(ctx, w.scope, e), skipped: true}
	if s.damaged && !errors.Is(cause, archive.ErrDamaged) {
		return stretch{}, fmt.Errorf("read audit archive: %w: %w", ledger.ErrUnavailable, cause)
	}
	return w.leave(ctx, s)
}

// leave moves behind the segment of a stretch. Newest first that is behind the
// one before it: where a segment begins only its rows say.
func (w *walk) leave(ctx context.Context, s stretch) (stretch, error) {
	if !w.newest {
		w.after = s.entry.Cursor
		return s, nil
	}
	before := w.segment
	if len(before) == 0 {
		found, err := w.log.entries(ctx, w.scope, archive.Range{After: s.entry.Cursor, Newest: true, Limit: 2})
		if err != nil {
			return stretch{}, err
		}
		before = slices.DeleteFunc(found, func(e archive.Entry) bool { return e.Number >= s.entry.Number })
	}
	if len(before) == 0 {
		s.end = true
		return s, nil
	}
	w.after = behind(before[0])
	return s, nil
}

// behind is a place behind the last row of a segment and before the next one.
// Cursors are printable ASCII and sort as bytes do.
func behind(e archive.Entry) string { return e.Cursor + "~" }
