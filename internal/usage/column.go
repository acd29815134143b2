package usage

// Column is one figure. Its number is stored, so it never changes and is never
// given to another; new ones are added at the end.
type Column int

// Figures of writes. A write is counted in Claimed once, when it begins, and
// once more when it ends, in exactly one of Writes, Refusals, NotDone and
// Lapsed; what is missing is in flight or held now.
const (
	Claimed  Column = 0 // writes begun
	Writes   Column = 1 // writes performed: the vendor, a check or a person says it was done
	Refusals Column = 2 // the vendor refused: definitely not done
	NotDone  Column = 3 // ended without an effect: nothing was sent, "not now", or found not done later
	Lapsed   Column = 4 // held until its time ran out; its outcome was never known
)

// Figures of doubt. They say how writes came to their end, and are no further
// ends.
const (
	Held      Column = 5 // writes whose outcome became unknown, each counted once
	Resolved  Column = 6 // held writes settled by a person's word
	Recovered Column = 7 // held writes settled by sending the same bytes again under the vendor's key
)

// Figures of requests that began no write. Every request of `do` that was
// identified counts once: in Claimed, or in one of these.
const (
	Replays     Column = 8  // answered from the store, free of charge
	InFlight    Column = 9  // met the same write while it ran
	HeldRepeats Column = 10 // met the same write while it was held
	TwinRefused Column = 11 // the same write under another key was unsettled
	KeyReused   Column = 12 // a key that belongs to another request
	Denied      Column = 13 // refused by the gateway: rights, form, a paused connection; any call, not only `do`
	RateLimited Column = 14 // refused by a limit of the gateway's, those of a flood that left no row of their own included
)

// DuplicatesPrevented counts requests that would have done a write again, or
// might have, had they been sent: repeats of a write that was done (part of
// Replays), that ran (InFlight), that was held (HeldRepeats), and the same write
// under another key (TwinRefused).
const DuplicatesPrevented Column = 15

// Unreadable counts rows that cannot be read, by the day the store had. They
// count nowhere else.
const Unreadable Column = 16

const columns = 17

// Columns lists all figures in the order in which they are shown.
func Columns() []Column {
	return []Column{
		Claimed, Writes, Refusals, NotDone, Lapsed, Held, Resolved, Recovered,
		Replays, DuplicatesPrevented, InFlight, HeldRepeats, TwinRefused, KeyReused, Denied, RateLimited, Unreadable,
	}
}

var columnNames = [columns]string{
	Claimed: "claimed", Writes: "writes", Refusals: "refusals", NotDone: "not_done", Lapsed: "lapsed",
	Held: "held", Resolved: "resolved", Recovered: "recovered",
	Replays: "replays", InFlight: "in_flight", HeldRepeats: "held_repeats", TwinRefused: "twin_refused",
	KeyReused: "key_reused", Denied: "denied", RateLimited: "rate_limited",
	DuplicatesPrevented: "duplicates_prevented", Unreadable: "unreadable",
}

// String is the figure's public name.
func (c Column) String() string {
	if c < 0 || c >= columns {
		return "column"
	}
	return columnNames[c]
}

// Counts holds one number for each Column.
type Counts [columns]int64

// Add adds other to c.
func (c *Counts) Add(other Counts) {
	for i, n := range other {
		c[i] += n
	}
}
