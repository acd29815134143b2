package usage

import (
	"strconv"
	"strings"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// CountRows counts rows as they are stored.
func CountRows(rows []ledger.Row) Tally {
	t := Tally{}
	for _, r := range rows {
		t.row(r)
	}
	return t
}

func (t Tally) row(stored ledger.Row) {
	row, err := audit.Decode(stored.Data)
	if err != nil {
		t.Add(DayOf(stored.At), Cell{}, one(Unreadable))
		return
	}
	if n := Count(row); n != (Counts{}) {
		t.Add(DayOf(row.At), cellOf(row), n)
	}
}

// dayOf is the day a stored row counts in: that of the time the row shows.
func dayOf(stored ledger.Row) Day {
	row, err := audit.Decode(stored.Data)
	if err != nil {
		return DayOf(stored.At)
	}
	return DayOf(row.At)
}

// Outcomes of rows: the state of the write after the event (dedupe.State).
const (
	succeeded = "succeeded"
	refused   = "refused"
)

// Count says where one row counts. Events that are not named count nowhere:
// they are steps on the way (checked), change nothing (late_answer) or tell of
// administration.
func Count(row audit.Row) Counts {
	switch row.Event {
	case audit.Claimed:
		return one(Claimed)
	case audit.Succeeded:
		return one(Writes)
	case audit.Refused:
		return one(Refusals)
	case audit.NotSent, audit.Released, audit.NotDone:
		return one(NotDone)
	case audit.Lapsed:
		return one(Lapsed)
	case audit.Held, audit.LeaseLost:
		return one(Held)
	case audit.Resolved:
		// Found not done, it is followed by a row that says so and counts there.
		return one(Resolved).when(row.Outcome == succeeded, Writes)
	case audit.Recovered:
		return one(Recovered).when(row.Outcome == succeeded, Writes).when(row.Outcome == refused, Refusals)
	case audit.Replayed:
		// The replay of a refusal prevents nothing: the vendor would refuse again.
		return one(Replays).when(row.Outcome == succeeded, DuplicatesPrevented)
	case audit.InFlight:
		return one(InFlight, DuplicatesPrevented)
	case audit.HeldRepeat:
		return one(HeldRepeats, DuplicatesPrevented)
	case audit.TwinRefused:
		return one(TwinRefused, DuplicatesPrevented)
	case audit.KeyReused:
		return one(KeyReused)
	case audit.Denied:
		return one(Denied)
	case audit.RateLimited:
		return Counts{RateLimited: 1 + suppressed(row.Subject)}
	default:
		return Counts{}
	}
}

func one(cs ...Column) Counts {
	var n Counts
	for _, c := range cs {
		n[c] = 1
	}
	return n
}

// when counts in one more column if a condition holds.
func (c Counts) when(holds bool, column Column) Counts {
	if holds {
		c[column] = 1
	}
	return c
}

// suppressed reads how many refusals of a flood a row stands for beside itself.
func suppressed(subject string) int64 {
	digits, ok := strings.CutPrefix(subject, "suppressed:")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
		return 0
	}
	return n
}

// nameless are the reasons of denials that come before it is known whether what
// the caller named exists. Its words are left out then: they may be anything,
// and a new one each time.
var nameless = map[string]struct{ connection, action bool }{
	"forbidden":          {connection: true, action: true},
	"unknown_connection": {connection: true, action: true},
	"unknown_action":     {action: true},
}

func cellOf(row audit.Row) Cell {
	c := Cell{Connection: row.Connection, Action: row.Action, KeyID: row.Actor.KeyID}
	if row.Event != audit.Denied {
		return c
	}
	hide := nameless[row.Reason]
	if hide.connection {
		c.Connection = ""
	}
	if hide.action {
		c.Action = ""
	}
	return c
}
