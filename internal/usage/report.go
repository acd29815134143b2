package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Dimension is something figures can be shown by.
type Dimension string

// The dimensions of a report.
const (
	ByDay        Dimension = "day"
	ByConnection Dimension = "connection"
	ByAction     Dimension = "action"
	ByKey        Dimension = "key"
)

// Dimensions lists them all.
func Dimensions() []Dimension { return []Dimension{ByConnection, ByAction, ByKey, ByDay} }

const (
	// MaxDays bounds the days of one report.
	MaxDays = 400
	// MaxLines bounds the lines of one report.
	MaxLines = 10_000

	daysAtOnce = 32
	rowsAtOnce = 1000
)

// Errors of Report that the asker can mend.
var (
	ErrRange = fmt.Errorf("a report has 1 to %d days", MaxDays)
	ErrLines = fmt.Errorf("a report has at most %d lines", MaxLines)
)

// Query says which days, and by what. No dimension gives totals alone.
type Query struct {
	From, To Day // To is not included
	By       []Dimension
}

// Line is the figures of one combination of what was asked for. Members that
// were not asked for are zero.
type Line struct {
	Day Day
	Cell
	Counts
}

// Report is what a scope's rows add up to.
type Report struct {
	At    time.Time // the store's: every row before it is counted
	Total Counts
	Lines []Line // in the order of day, connection, action, key
}

// Reader adds up figures. It is safe for concurrent use.
type Reader struct{ store ledger.Store }

// NewReader returns the reader of a store.
func NewReader(store ledger.Store) *Reader { return &Reader{store: store} }

// Report adds up what a scope's rows of some days come to: the values of the
// days, and the rows that are not folded into them yet. The error is ErrRange,
// ErrLines, or the store's.
func (r *Reader) Report(ctx context.Context, scope ledger.Scope, q Query) (Report, error) {
	if q.From >= q.To || q.To-q.From > MaxDays {
		return Report{}, ErrRange
	}
	s := &sum{by: q.By, lines: map[key]Counts{}, marks: make([]string, 0, MaxDays/daysAtOnce+1)}
	var at time.Time
	for first := q.From; first < q.To; first += daysAtOnce {
		seen, err := r.days(ctx, scope, s, first, min(first+daysAtOnce, q.To))
		if err != nil {
			return Report{}, err
		}
		if len(s.lines) > MaxLines {
			return Report{}, ErrLines
		}
		at = seen.Now
	}
	if err := r.tail(ctx, scope, s, q); err != nil {
		return Report{}, err
	}
	return s.report(at)
}

// days adds the values of some days, with the mark of that very instant: rows
// behind it are not among them.
func (r *Reader) days(ctx context.Context, scope ledger.Scope, s *sum, first, end Day) (ledger.Snapshot, error) {
	fetch := []ledger.Fetch{{Key: markKey()}}
	for d := first; d < end; d++ {
		fetch = append(fetch, ledger.Fetch{Key: dayKey(d)})
	}
	seen, err := r.store.Read(ctx, scope, fetch...)
	if err != nil {
		return seen, fmt.Errorf("read usage: %w", err)
	}
	s.marks = append(s.marks, Folded(seen))
	for d := first; d < end; d++ {
		v, ok := seen.Get(dayKey(d))
		if !ok {
			continue
		}
		cells, err := decodeDay(v.Data)
		if err != nil {
			return seen, fmt.Errorf("read usage of %s: %w", d, err)
		}
		for cell, n := range cells {
			s.add(d, cell, n)
		}
	}
	return seen, nil
}

// tail adds the rows that were not folded. Rows may be folded while a report is
// made, so each row is held against the mark that its day was read with.
func (r *Reader) tail(ctx context.Context, scope ledger.Scope, s *sum, q Query) error {
	// A row shows the time its writer believed it was, which may be a drift away
	// from the store's, by which rows are found.
	span := ledger.RowRange{
		From: q.From.Start().Add(-ledger.Drift), To: q.To.Start().Add(ledger.Drift),
		After: slices.Min(s.marks), Limit: rowsAtOnce,
	}
	for {
		rows, err := r.store.Rows(ctx, scope, span)
		if err != nil {
			return fmt.Errorf("read rows not counted yet: %w", err)
		}
		for _, row := range rows {
			if d := dayOf(row); d >= q.From && d < q.To && row.Cursor > s.marks[(d-q.From)/daysAtOnce] {
				s.row(row)
			}
		}
		if len(rows) < rowsAtOnce {
			return nil
		}
		if len(s.lines) > MaxLines {
			return ErrLines
		}
		span.After = rows[len(rows)-1].Cursor
	}
}

// sum gathers lines.
type sum struct {
	by    []Dimension
	lines map[key]Counts
	total Counts
	marks []string // of each batch of days
}

type key struct {
	day  Day
	cell Cell
}

func (s *sum) row(row ledger.Row) {
	for d, cells := range CountRows([]ledger.Row{row}) {
		for cell, n := range cells {
			s.add(d, cell, n)
		}
	}
}

func (s *sum) add(d Day, cell Cell, n Counts) {
	s.total.Add(n)
	if len(s.by) == 0 {
		return
	}
	var k key
	for _, by := range s.by {
		switch by {
		case ByDay:
			k.day = d
		case ByConnection:
			k.cell.Connection = cell.Connection
		case ByAction:
			k.cell.Action = cell.Action
		case ByKey:
			k.cell.KeyID = cell.KeyID
		}
	}
	line := s.lines[k]
	line.Add(n)
	s.lines[k] = line
}

func (s *sum) report(at time.Time) (Report, error) {
	if len(s.lines) > MaxLines {
		return Report{}, ErrLines
	}
	r := Report{At: at, Total: s.total, Lines: make([]Line, 0, len(s.lines))}
	for k, n := range s.lines {
		r.Lines = append(r.Lines, Line{Day: k.day, Cell: k.cell, Counts: n})
	}
	slices.SortFunc(r.Lines, func(a, b Line) int {
		if a.Day != b.Day {
			return int(a.Day) - int(b.Day)
		}
		return compareCells(a.Cell, b.Cell)
	})
	return r, nil
}

// IsQueryError says whether an error is one the asker can mend.
func IsQueryError(err error) bool { return errors.Is(err, ErrRange) || errors.Is(err, ErrLines) }
