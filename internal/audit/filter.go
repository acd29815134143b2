package audit

import (
	"maps"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Filter selects rows; empty members select all. Since is inclusive, Until is
// not; both are compared with the time the row shows.
type Filter struct {
	Event      Event
	Connection string
	Action     string
	ActionID   string
	KeyID      string
	Identity   string // the short id, 16 hex digits
	Outcome    string
	Meta       map[string]string // each label must be there with this very value
	Since      time.Time
	Until      time.Time
}

// EachTerm calls f with what can be looked up of a row as Decode returned it: a
// term "name=value" for each member that a [Filter] can name. A row that a filter
// selects has every term of the filter's. A term is good until f returns: of many
// rows most terms are the same ones again.
//
// Two different labels can give one term if their names hold "=". Who skips rows
// by their terms then reads a few for nothing, and misses none.
func EachTerm(r Row, f func(term []byte)) {
	eachTerm(f, string(r.Event), r.Connection, r.Action, r.ActionID, r.Actor.KeyID, r.Identity, r.Outcome, r.Meta)
}

// Terms returns the terms that a row must have to be selected, none if the
// filter selects by time at most.
func (f Filter) Terms() []string {
	var all []string
	eachTerm(func(term []byte) { all = append(all, string(term)) },
		string(f.Event), f.Connection, f.Action, f.ActionID, f.KeyID, f.Identity, f.Outcome, f.Meta)
	return all
}

func eachTerm(f func(term []byte), event, connection, action, actionID, keyID, identity, outcome string, meta map[string]string) {
	term := make([]byte, 0, 128) // as a rule
	for _, member := range [...]struct{ name, value string }{
		{"event=", event}, {"connection=", connection}, {"action=", action}, {"action_id=", actionID},
		{"key_id=", keyID}, {"identity=", identity}, {"outcome=", outcome},
	} {
		if member.value != "" {
			term = append(append(term[:0], member.name...), member.value...)
			f(term)
		}
	}
	if len(meta) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		term = append(append(append(term[:0], "meta."...), name...), '=')
		f(append(term, meta[name]...)) // an empty value is a value
	}
}

// All says whether the filter selects every row.
func (f Filter) All() bool { return f.TimeOnly() && f.Since.IsZero() && f.Until.IsZero() }

// TimeOnly says whether the filter selects by time at most.
func (f Filter) TimeOnly() bool {
	return f.Event == "" && f.Connection == "" && f.Action == "" && f.ActionID == "" && f.KeyID == "" &&
		f.Identity == "" && f.Outcome == "" && len(f.Meta) == 0
}

// Nothing says whether no time is late and early enough.
func (f Filter) Nothing() bool {
	return !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until)
}

func (f Filter) during(t time.Time) bool {
	return (f.Since.IsZero() || !t.Before(f.Since)) && (f.Until.IsZero() || t.Before(f.Until))
}

// Stored bounds the time at which the store appended a row that the filter
// selects. It dates a row when it appends it, the row shows the time its writer
// believed it was, and the two may be ledger.Drift apart.
func (f Filter) Stored() (from, to time.Time) {
	if !f.Since.IsZero() {
		from = f.Since.Add(-ledger.Drift)
	}
	if !f.Until.IsZero() {
		to = f.Until.Add(ledger.Drift)
	}
	return from, to
}

// selects says whether the filter selects a row.
func (f Filter) selects(r *Row) bool {
	return f.during(r.At) &&
		(f.Event == "" || f.Event == r.Event) &&
		(f.Connection == "" || f.Connection == r.Connection) &&
		(f.Action == "" || f.Action == r.Action) &&
		(f.ActionID == "" || f.ActionID == r.ActionID) &&
		(f.KeyID == "" || f.KeyID == r.Actor.KeyID) &&
		(f.Identity == "" || f.Identity == r.Identity) &&
		(f.Outcome == "" || f.Outcome == r.Outcome) &&
		f.labelled(r.Meta)
}

func (f Filter) labelled(meta map[string]string) bool {
	for name, value := range f.Meta {
		if has, ok := meta[name]; !ok || has != value {
			return false
		}
	}
	return true
}

// Pick reads a stored row and says whether the filter selects it. One that is
// not readable is selected by the time the store gave it.
func (f *Filter) Pick(stored ledger.Row) (Entry, bool) {
	e := Entry{Cursor: stored.Cursor, Stored: stored.Data}
	row, err := Decode(stored.Data)
	if err != nil {
		e.Unreadable = true
		e.At = stored.At
		return e, f.during(stored.At)
	}
	e.Row = row
	return e, f.selects(&row)
}
