package usage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// ErrGap means rows would never be counted: those to be folded do not follow
// the ones that were.
var ErrGap = errors.New("usage: rows before these have not been counted")

// Batch is rows in their order, directly behind the cursor After ("" for the
// scope's first rows).
type Batch struct {
	After string
	Rows  []ledger.Row
}

// markKey is where a scope keeps the cursor of the last row that was folded.
func markKey() ledger.Key { return ledger.Key{Kind: ledger.Usage} }

func dayKey(d Day) ledger.Key { return ledger.Key{Kind: ledger.Usage, ID: d.String()} }

// Fetch names the values that Fold needs to see for a batch.
func Fetch(b Batch) []ledger.Fetch {
	days := map[Day]bool{}
	for _, r := range b.Rows {
		days[dayOf(r)] = true
	}
	fetch := []ledger.Fetch{{Key: markKey()}}
	for _, d := range slices.Sorted(maps.Keys(days)) {
		fetch = append(fetch, ledger.Fetch{Key: dayKey(d)})
	}
	return fetch
}

// Fold adds to a step what makes a batch counted: the values of its days, the
// mark, and an Expect for each, so that of two who fold the same rows one is
// applied. Rows that were folded before are passed over. Days are kept until
// keep after their end.
//
// Seen must hold what Fetch names. The error is ErrGap, or wraps ErrUnreadable.
func Fold(step *ledger.Step, seen ledger.Snapshot, b Batch, keep time.Duration) error {
	mark, _ := seen.Get(markKey())
	folded := string(mark.Data)
	if folded < b.After {
		return ErrGap
	}
	fresh := b.Rows
	for len(fresh) > 0 && fresh[0].Cursor <= folded {
		fresh = fresh[1:]
	}
	if len(fresh) == 0 {
		return nil
	}
	tally := CountRows(fresh)
	for _, d := range slices.Sorted(maps.Keys(tally)) {
		v, there := seen.Get(dayKey(d))
		cells := Cells{}
		if there {
			var err error
			if cells, err = decodeDay(v.Data); err != nil {
				return fmt.Errorf("read figures of %s: %w", d, err)
			}
		}
		// In one order, so that which cells a full day has no room for does not
		// change when the step is decided again.
		for _, cell := range slices.SortedFunc(maps.Keys(tally[d]), compareCells) {
			cells.Add(cell, tally[d][cell])
		}
		step.Expect = append(step.Expect, ledger.Expect{Key: dayKey(d), Version: v.Version})
		step.Put = append(step.Put, ledger.Put{Key: dayKey(d), Data: encodeDay(cells), Expires: (d + 1).Start().Add(keep)})
	}
	step.Expect = append(step.Expect, ledger.Expect{Key: markKey(), Version: mark.Version})
	step.Put = append(step.Put, ledger.Put{Key: markKey(), Data: []byte(fresh[len(fresh)-1].Cursor)})
	return nil
}

// Folded is the cursor of the last row that is counted in the values of days,
// "" if none is. Rows behind it must not be trimmed.
func Folded(seen ledger.Snapshot) string {
	mark, _ := seen.Get(markKey())
	return string(mark.Data)
}
