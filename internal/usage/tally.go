package usage

import (
	"time"
)

// Day is a day in UTC, counted from 1970-01-01.
type Day int32

const (
	dayForm    = "2006-01-02"
	dayLength  = 24 * time.Hour
	daySeconds = int64(dayLength / time.Second)
)

// DayOf is the day an instant is in.
func DayOf(t time.Time) Day {
	s := t.Unix()
	d := s / daySeconds
	if s%daySeconds < 0 {
		d--
	}
	return Day(d)
}

// Start is the first instant of the day.
func (d Day) Start() time.Time { return time.Unix(int64(d)*daySeconds, 0).UTC() }

// String is the day as RFC 3339 writes a full-date.
func (d Day) String() string { return d.Start().Format(dayForm) }

// ParseDay reads what String writes.
func ParseDay(s string) (Day, bool) {
	t, err := time.Parse(dayForm, s)
	if err != nil || t.Format(dayForm) != s {
		return 0, false
	}
	return DayOf(t), true
}

// Cell is what figures are kept by within a day. Members are "" where the row
// has none: a write that was held by the sweep has no key, a denied call that
// named nothing that exists has no connection.
type Cell struct {
	Connection string // name
	Action     string
	KeyID      string // of the API key that caused the row
}

// other gathers what a day has beyond MaxCells. Its members are no names that
// anything could have.
var other = Cell{Connection: OtherName, Action: OtherName, KeyID: OtherName}

// OtherName stands for the names of cells that a day has no room for.
const OtherName = "(other)"

// MaxCells bounds the cells of one day, and so the value that holds them, to
// some 150 KB. A tenant that uses more combinations of connection, action and
// key in one day still has exact totals.
const MaxCells = 2000

// Cells are the figures of one day.
type Cells map[Cell]Counts

// Add adds figures to a cell, or to the one for all others if it would be one
// too many.
func (c Cells) Add(cell Cell, n Counts) {
	if _, there := c[cell]; !there && len(c) >= MaxCells {
		cell = other
	}
	sum := c[cell]
	sum.Add(n)
	c[cell] = sum
}

// Tally is figures by day.
type Tally map[Day]Cells

// Add adds figures to a day's cell.
func (t Tally) Add(d Day, cell Cell, n Counts) {
	cells := t[d]
	if cells == nil {
		cells = Cells{}
		t[d] = cells
	}
	cells.Add(cell, n)
}

// Merge adds everything of another tally.
func (t Tally) Merge(o Tally) {
	for d, cells := range o {
		for cell, n := range cells {
			t.Add(d, cell, n)
		}
	}
}

// Total is the sum of everything.
func (t Tally) Total() Counts {
	var sum Counts
	for _, cells := range t {
		for _, n := range cells {
			sum.Add(n)
		}
	}
	return sum
}
