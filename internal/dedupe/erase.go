package dedupe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// eraseBatch is how many writes one step of an erasure removes. A write is some
// ten keys, so a step is a few milliseconds of the store's time.
const eraseBatch = 100

// Erasure is one step of removing a scope's writes.
type Erasure struct {
	Scope ledger.Scope
	// Guard is what must hold: that the scope is closed and takes no new writes.
	Guard []ledger.Expect
	// Row encodes the audit row of a step that removes so many writes. Like a
	// Scribe it must be pure.
	Row func(at time.Time, writes int) []byte
}

// Erase removes some writes of a scope, the oldest first: records, answers,
// sealed requests, counters of replays, bindings, lists of twins and their places
// in every index. True means that there may be more. Each step is atomic and
// leaves nothing half removed, so an erasure goes on where it was cut short, in
// this process or another. A guard that does not hold is ErrGuard.
//
// It removes what it cannot read, too: an erasure must come to an end.
func (c *Claims) Erase(ctx context.Context, e Erasure) (more bool, err error) {
	for range maxDecisions {
		s, err := c.eraseStep(ctx, &e)
		if err != nil || s == nil {
			return false, err
		}
		res, err := c.store.Apply(ctx, e.Scope, *s)
		if err != nil {
			return false, fmt.Errorf("erase writes: %w", err)
		}
		if res.Applied {
			return true, nil
		}
		if !holds(res.Snapshot, e.Guard) {
			return false, ErrGuard
		}
	}
	return false, errContended
}

// eraseStep builds the step that removes what comes next; nil if nothing is left.
func (c *Claims) eraseStep(ctx context.Context, e *Erasure) (*ledger.Step, error) {
	s := &ledger.Step{Nonce: ledger.NewNonce(), At: milli(c.store.Now()), Expect: slices.Clip(e.Guard)}
	for _, g := range e.Guard {
		s.Fetch = append(s.Fetch, ledger.Fetch{Key: g.Key})
	}
	listed, err := c.store.Entries(ctx, e.Scope, ledger.EntryRange{Index: ledger.ByCreated, Limit: eraseBatch})
	if err != nil {
		return nil, fmt.Errorf("list writes to erase: %w", err)
	}
	if len(listed) == 0 {
		return c.eraseAliases(ctx, e, s)
	}
	snap, err := c.readable(ctx, e.Scope, listed)
	if err != nil {
		return nil, fmt.Errorf("read writes to erase: %w", err)
	}
	for _, entry := range listed {
		s.Unindex = append(s.Unindex, entry)
		for _, kind := range []ledger.Kind{ledger.Action, ledger.Answer, ledger.Request, ledger.Raw, ledger.Replays} {
			s.Delete = append(s.Delete, ledger.Key{Kind: kind, ID: entry.Member})
		}
		if len(entry.Member) != len(ActionID{}) {
			continue
		}
		rec, ok, err := recordIn(snap, ActionID([]byte(entry.Member)))
		if err != nil || !ok {
			continue // damaged, or expired: its binding has an end of its own
		}
		s.Delete = append(s.Delete, bindingKey(rec.Identity), twinsKey(rec.Fingerprint))
		switch rec.State {
		case InFlight:
			s.Unindex = append(s.Unindex, leaseEntry(rec.Record))
		case Held:
			s.Unindex = append(s.Unindex, heldEntries(rec.Record)...)
		default: // settled writes stand in no index of unsettled ones
		}
	}
	s.Rows = [][]byte{e.Row(s.At, len(listed))}
	return s, nil
}

// readable reads the records of index entries, without those that are damaged:
// the store refuses to read any beside one of them.
func (c *Claims) readable(ctx context.Context, scope ledger.Scope, listed []ledger.Entry) (ledger.Snapshot, error) {
	fetch := make([]ledger.Fetch, 0, len(listed))
	for _, entry := range listed {
		fetch = append(fetch, ledger.Fetch{Key: ledger.Key{Kind: ledger.Action, ID: entry.Member}})
	}
	snap, err := c.store.Read(ctx, scope, fetch...)
	if !errors.Is(err, ledger.ErrCorrupt) {
		return snap, err
	}
	snap = ledger.Snapshot{Values: make(map[ledger.Key]ledger.Value, len(fetch))}
	for _, f := range fetch {
		one, err := c.store.Read(ctx, scope, f)
		if err != nil && !errors.Is(err, ledger.ErrCorrupt) {
			return snap, err
		}
		if v, ok := one.Get(f.Key); ok {
			snap.Values[f.Key] = v
		}
	}
	return snap, nil
}

func (c *Claims) eraseAliases(ctx context.Context, e *Erasure, s *ledger.Step) (*ledger.Step, error) {
	listed, err := c.store.Entries(ctx, e.Scope, ledger.EntryRange{Index: ledger.ByAlias, Limit: eraseBatch})
	if err != nil {
		return nil, fmt.Errorf("list bindings to erase: %w", err)
	}
	if len(listed) == 0 {
		return nil, nil
	}
	for _, entry := range listed {
		s.Delete = append(s.Delete, ledger.Key{Kind: ledger.Binding, ID: entry.Member})
	}
	s.Unindex = listed
	s.Rows = [][]byte{e.Row(s.At, 0)}
	return s, nil
}

// holds says whether what a snapshot shows of the guarded keys is as expected.
func holds(snap ledger.Snapshot, guard []ledger.Expect) bool {
	for _, g := range guard {
		if v, _ := snap.Get(g.Key); v.Version != g.Version {
			return false
		}
	}
	return true
}
