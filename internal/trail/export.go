package trail

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// Format is how an export is written.
type Format int

// Formats of an export.
const (
	// NDJSON of the whole log is its segments as they were sealed, one after
	// another, and then a line for each row that is not sealed yet: it proves
	// itself whole (see archive). Of a part it is a line for each row.
	NDJSON Format = iota
	// CSV is for spreadsheets: a record for each row.
	CSV
)

// Export says what is to be written, oldest first.
type Export struct {
	Filter audit.Filter
	Format Format
	// Cursor is "" or where an export of the same filter and format was broken off:
	// the cursor of the last row, with a [CheckpointMark] behind it for each
	// checkpoint that was there behind the row (two if the last segment of a deleted
	// tenant's log has no rows). Then the two together are, byte for byte,
	// what one would have been, as long as the row was a sealed one.
	Cursor string
	// Sealed leaves out what is not sealed yet.
	Sealed bool
}

// CheckpointMark behind a cursor says that a checkpoint behind the row has been
// received as well.
const CheckpointMark = "~"

// maxMarks is how many checkpoints can stand behind a row: its segment's and that
// of an empty one at the end.
const maxMarks = 2

const (
	// segmentsAtOnce is how many segments are listed at once. One is in memory.
	segmentsAtOnce = 16
	// flushAt is how many bytes of lines are gathered before they are written.
	flushAt = 32 << 10
)

// Export writes a scope's rows to out as fast as out takes them. It holds one
// segment and a few rows in memory, however many there are. Rows that come while
// it runs may be left out. Nothing has been written if the error is ErrCursor.
func (l *Log) Export(ctx context.Context, scope ledger.Scope, e Export, out io.Writer) error {
	after := strings.TrimRight(e.Cursor, CheckpointMark)
	marks := len(e.Cursor) - len(after)
	x := &exporter{log: l, scope: scope, Export: e, out: out, after: after, lines: e.Format == NDJSON, whole: e.Format == NDJSON && e.Filter.All()}
	x.terms = e.Filter.Terms()
	x.from.From, x.from.To = e.Filter.Stored()
	if e.Cursor != "" {
		if err := x.checkCursor(ctx); err != nil || marks > maxMarks {
			return cmp.Or(err, ErrCursor)
		}
	} else if e.Format == CSV {
		x.buf = appendRecord(x.buf, columns()...)
	}
	if x.whole && after != "" {
		if err := x.close(ctx, marks); err != nil {
			return err
		}
	}
	if !e.Filter.Nothing() {
		if err := x.run(ctx); err != nil {
			// What stands in front of the damage can be had: it would be left out
			// each time that somebody goes on behind the last row they have.
			if x.found {
				_ = x.flush()
			}
			return err
		}
	}
	return x.flush()
}

// exporter is one export on its way.
type exporter struct {
	Export
	log   *Log
	scope ledger.Scope
	out   io.Writer
	terms []string
	from  ledger.RowRange // its bounds in time

	after string // the last row that is done with
	done  uint64 // and the last segment; 0 before the first
	lines bool   // rather than records
	whole bool   // the log itself, provable
	buf   []byte
	found bool // a row is selected
}

// checkCursor lets the store say whether the cursor can be one of its own.
func (x *exporter) checkCursor(ctx context.Context) error {
	if x.after == "" || len(x.after) > ledgerCursor || !printable(x.after) {
		return ErrCursor
	}
	_, err := x.log.rows(ctx, x.scope, ledger.RowRange{After: x.after, Limit: 1})
	return err
}

// ledgerCursor is more bytes than a store's cursor has.
const ledgerCursor = 128

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// close writes what the log has behind the row that the cursor names and before
// the next row, less as many checkpoints as were received: that of the row's
// segment, if it is the last one there, and a segment without rows.
func (x *exporter) close(ctx context.Context, received int) error {
	h, err := x.log.head(ctx, x.scope)
	if err != nil {
		return err
	}
	found, err := x.log.entries(ctx, x.scope, archive.Range{After: x.after + CheckpointMark, Newest: true, Limit: maxMarks + 1})
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(e archive.Entry) bool { return e.Cursor != x.after })
	slices.Reverse(found)
	for i, e := range found {
		x.done = e.Number
		switch {
		case i < received:
		case i == 0:
			x.buf = append(x.buf, e.Checkpoint(x.scope, h.Tenant).Line()...)
		default:
			if err := x.segment(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

func (x *exporter) run(ctx context.Context) error {
	h, err := x.log.head(ctx, x.scope)
	if err != nil {
		return err
	}
	for {
		if err := x.sealed(ctx); err != nil {
			return err
		}
		now, err := x.log.head(ctx, x.scope)
		if err != nil {
			return err
		}
		if now.Number == h.Number {
			break
		}
		h = now // more was sealed meanwhile
	}
	if x.Sealed {
		return nil
	}
	return x.tail(ctx, h)
}

// sealed writes what the archive has.
func (x *exporter) sealed(ctx context.Context) error {
	for {
		r := archive.Range{From: x.from.From, To: x.from.To, Behind: x.done, Limit: segmentsAtOnce}
		if x.done == 0 {
			r.After = x.after // which an empty segment has in common with the one before it
		}
		found, err := x.log.entries(ctx, x.scope, r)
		if err != nil || len(found) == 0 {
			return err
		}
		for _, e := range found {
			if err := x.segment(ctx, e); err != nil {
				return err
			}
			x.after, x.done = e.Cursor, e.Number
		}
	}
}

func (x *exporter) segment(ctx context.Context, e archive.Entry) error {
	may, err := x.log.archive.MayHold(ctx, e, x.terms)
	if err != nil || !may {
		return err
	}
	if x.whole {
		text, err := x.log.archive.Text(ctx, e)
		if err != nil {
			return x.unread(ctx, e, err)
		}
		if err := x.flush(); err != nil {
			return err
		}
		return x.write(behindRow(text, x.after))
	}
	rows, err := x.log.archive.Rows(ctx, e)
	if err != nil {
		return x.unread(ctx, e, err)
	}
	for _, r := range rows {
		if r.Cursor > x.after {
			if err := x.row(r); err != nil {
				return err
			}
		}
	}
	return nil
}

// unread says what to do about a segment that cannot be read: an export that left
// it out would be taken for the whole.
func (x *exporter) unread(ctx context.Context, e archive.Entry, cause error) error {
	if ctx.Err() == nil && x.log.gone(ctx, x.scope, e) {
		return nil
	}
	return fmt.Errorf("export segment %d: %w", e.Number, cause)
}

// behindRow is what stands in a segment behind the row at a cursor: all of it if
// that row is in an earlier one.
func behindRow(text []byte, cursor string) []byte {
	if cursor == "" {
		return text
	}
	mark := []byte(`"cursor":"` + cursor + `"`)
	for rest := text; len(rest) > 0; {
		line, next, _ := bytes.Cut(rest, []byte("\n"))
		// The row's own members come behind the first place where a cursor may stand.
		if i := bytes.Index(line, []byte(`"cursor":"`)); bytes.HasPrefix(line, []byte(`{"type":"row",`)) && i >= 0 && bytes.HasPrefix(line[i:], mark) {
			return next
		}
		rest = next
	}
	return text
}

// tail writes what is not sealed: from the last sealed row on, because rows are
// numbered from there.
func (x *exporter) tail(ctx context.Context, h archive.Head) error {
	place, seq := h.Cursor, h.Seq
	began := x.log.store.Now().Add(ledger.Drift)
	for {
		found, err := x.log.rows(ctx, x.scope, ledger.RowRange{After: place, To: x.from.To, Limit: batch})
		if err != nil {
			return err
		}
		now, err := x.log.head(ctx, x.scope)
		if err != nil {
			return err
		}
		if now.Cursor > place && now.Number != h.Number {
			// They may be gone from the store, so the archive has to say.
			h = now
			if place, seq, err = x.moved(ctx, place, seq); err != nil {
				return err
			}
			continue
		}
		for _, r := range found {
			seq++
			place = r.Cursor
			if r.Cursor > x.after {
				if err := x.row(archive.Row{Row: r, Seq: seq}); err != nil {
					return err
				}
			}
		}
		if len(found) < batch || found[len(found)-1].At.After(began) {
			return nil
		}
	}
}

// moved writes rows of the tail that were sealed while it was read.
func (x *exporter) moved(ctx context.Context, place string, seq uint64) (string, uint64, error) {
	for {
		found, err := x.log.entries(ctx, x.scope, archive.Range{After: place, Limit: segmentsAtOnce})
		if err != nil || len(found) == 0 {
			return place, seq, err
		}
		for _, e := range found {
			rows, err := x.log.archive.Rows(ctx, e)
			if err != nil {
				return place, seq, fmt.Errorf("export segment %d: %w", e.Number, err)
			}
			for _, r := range rows {
				if r.Cursor > place && r.Cursor > x.after {
					if err := x.row(r); err != nil {
						return place, seq, err
					}
				}
			}
			place, seq = e.Cursor, e.Last
		}
	}
}

// row writes one row if it is selected.
func (x *exporter) row(r archive.Row) error {
	e, ok := x.Filter.Pick(r.Row)
	if !ok {
		return nil
	}
	x.found = true
	if x.lines {
		x.buf = append(x.buf, r.OpenLine()...)
	} else {
		x.buf = appendRecord(x.buf, record(r, e)...)
	}
	if len(x.buf) < flushAt {
		return nil
	}
	return x.flush()
}

func (x *exporter) flush() error {
	err := x.write(x.buf)
	x.buf = x.buf[:0]
	return err
}

func (x *exporter) write(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if _, err := x.out.Write(p); err != nil {
		return fmt.Errorf("write export: %w", err)
	}
	return nil
}
