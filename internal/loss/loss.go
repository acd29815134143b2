// Package loss keeps two notes about a ledger's own trustworthiness, in the
// platform's scope: that something was lost, so that nothing may be claimed,
// and that an operator has accepted it, with the span of time in which writes
// may be unknown.
//
// It owns the notes and how an acceptance is made of the first. Who notices a
// loss (a driver), who keeps from claiming (readiness), who records the
// acceptance (audit) and who tells agents of the gap (api) are its neighbours.
package loss

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// GapLife is how long after its acceptance a gap is told of.
const GapLife = 24 * time.Hour

// NoticedKey and GapKey are where the notes stand, both in [ledger.Platform].
func NoticedKey() ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: "loss"} }

// GapKey is where an accepted gap stands until it is told of no more.
func GapKey() ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: "gap"} }

// Noticed is a loss that nobody has accepted yet. Times are the store's.
type Noticed struct {
	At   time.Time `json:"at"`
	From time.Time `json:"from,omitzero"` // until when nothing is known to be lost; zero: not known
	Why  string    `json:"why"`           // in plain words
}

// Error says what is wrong and what to do about it. It is not ready.
func (n Noticed) Error() error {
	since := "T is when the first write may be missing"
	if !n.From.IsZero() {
		since = "T is " + n.From.UTC().Format(time.RFC3339) + " unless you know better"
	}
	return fmt.Errorf("%w: %s (noticed at %s), so writes may be unknown here that were made; "+
		"nothing is claimed until `gateway store accept-loss --from T`, where %s",
		ledger.ErrNotReady, n.Why, n.At.UTC().Format(time.RFC3339), since)
}

// Join returns one note for two, the wider.
func (n Noticed) Join(m Noticed) Noticed {
	if n.From.IsZero() || !m.From.IsZero() && !m.From.Before(n.From) {
		return n
	}
	n.From = m.From
	return n
}

// Gap is a span of time in which writes may have been made that the ledger does
// not know.
type Gap struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// ErrFrom means that an acceptance does not begin before the present.
var ErrFrom = errors.New("the loss must begin before now")

// Accept makes a step accept a loss from a time to the step's own: nothing is
// noticed any more, and the gap is told of. A gap that is still told of becomes
// part of the new one. seen must hold what [Fetch] names. The caller adds the row.
func Accept(seen ledger.Snapshot, step *ledger.Step, from time.Time) (Gap, error) {
	gap := Gap{From: from.UTC(), To: step.At.UTC()}
	if !gap.From.Before(gap.To) {
		return Gap{}, ErrFrom
	}
	told, err := GapIn(seen)
	if err != nil {
		return Gap{}, err
	}
	if told != nil && told.From.Before(gap.From) {
		gap.From = told.From
	}
	for _, k := range []ledger.Key{NoticedKey(), GapKey()} {
		v, _ := seen.Get(k)
		step.Expect = append(step.Expect, ledger.Expect{Key: k, Version: v.Version})
	}
	data, err := json.Marshal(gap)
	if err != nil {
		return Gap{}, fmt.Errorf("encode gap: %w", err)
	}
	step.Delete = append(step.Delete, NoticedKey())
	step.Put = append(step.Put, ledger.Put{Key: GapKey(), Data: data, Expires: step.At.Add(GapLife)})
	return gap, nil
}

// Fetch names the notes.
func Fetch() []ledger.Fetch { return []ledger.Fetch{{Key: NoticedKey()}, {Key: GapKey()}} }

// Encode is the note as it is stored.
func (n Noticed) Encode() ([]byte, error) {
	data, err := json.Marshal(n)
	if err != nil {
		return nil, fmt.Errorf("encode loss: %w", err)
	}
	return data, nil
}

// NoticedIn returns the loss that a snapshot holds, nil for none. A note that
// cannot be read is a loss all the same.
func NoticedIn(snap ledger.Snapshot) *Noticed {
	v, ok := snap.Get(NoticedKey())
	if !ok {
		return nil
	}
	n := Noticed{}
	if err := json.Unmarshal(v.Data, &n); err != nil {
		return &Noticed{At: snap.Now, Why: "data was lost, and the note about it cannot be read"}
	}
	return &n
}

// GapIn returns the gap that a snapshot holds, nil for none.
func GapIn(snap ledger.Snapshot) (*Gap, error) {
	v, ok := snap.Get(GapKey())
	if !ok {
		return nil, nil
	}
	g := &Gap{}
	if err := json.Unmarshal(v.Data, g); err != nil {
		return nil, fmt.Errorf("read gap: %w", ledger.ErrCorrupt)
	}
	return g, nil
}
