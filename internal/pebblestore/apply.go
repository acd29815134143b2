package pebblestore

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

// Apply makes one step; see [ledger.Step]. An error that wraps
// [ledger.ErrUnavailable] leaves open whether the step was or will be made;
// any other error means that it was not.
func (s *Store) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if err := checkStep(&step); err != nil {
		return ledger.Result{}, fmt.Errorf("apply step: %w", err)
	}
	return call(ctx, s, scope, func(g *group) (ledger.Result, error) { return g.apply(scope, &step) })
}

// apply decides on a step and makes it if its conditions hold.
func (g *group) apply(scope ledger.Scope, step *ledger.Step) (ledger.Result, error) {
	s, st := g.store, g.stripe
	now := s.clock.now()
	name := nonceKey{scope, step.Nonce}
	if m, ok := st.nonces.find(name, s.uptime()); ok {
		return m.result(now), nil
	}
	c := &g.change
	c.begin(scope, now.UnixMilli())
	holds, err := c.holds(step, now)
	if err != nil {
		return ledger.Result{}, err
	}
	if !holds {
		s.memory.put(c.values)
		return g.refuse(scope, step, now)
	}
	tail, err := c.plan(step)
	if err != nil {
		return ledger.Result{}, err
	}
	if g.batch == nil {
		g.batch, g.began = s.db.NewBatch(), s.memory.generation()
	}
	if err := c.write(g.batch, step, tail); err != nil {
		s.failure.set(fmt.Errorf("build batch: %w", err)) // what it leaves there is unknown
		return ledger.Result{}, s.failure.err()
	}
	g.now = c.now
	s.memory.put(c.values)
	if len(step.Rows) > 0 {
		st.remember(scope, tail+uint64(len(step.Rows)))
	}
	counters := c.counters()
	st.nonces.apply(name, c.now, counters, s.uptime())
	for _, v := range step.Void {
		st.nonces.void(nonceKey{scope, v}, s.uptime())
	}
	return ledger.Result{Snapshot: ledger.Snapshot{Now: now}, Applied: true, Counters: slices.Clone(counters)}, nil
}

// refuse reads what a step whose conditions do not hold is told.
func (g *group) refuse(scope ledger.Scope, step *ledger.Step, now time.Time) (ledger.Result, error) {
	if err := g.append(); err != nil {
		return ledger.Result{}, err
	}
	values, err := fetchValues(g.store.db, scope, step.Fetch, now.UnixMilli())
	return ledger.Result{Snapshot: ledger.Snapshot{Now: now, Values: values}}, err
}

// tail is the sequence of the scope's newest row.
func (g *group) tail(scope ledger.Scope) (uint64, error) {
	if seq, ok := g.stripe.tails[scope]; ok {
		return seq, nil
	}
	if err := g.append(); err != nil {
		return 0, err
	}
	s := g.store
	prefix := rowPrefix(scope)
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return 0, readError("read newest row", err)
	}
	var seq uint64
	if iter.Last() {
		if key := iter.Key(); len(key) == scopeLength+16 {
			seq = binary.BigEndian.Uint64(key[scopeLength+8:])
		}
	}
	if err := iter.Close(); err != nil {
		return 0, readError("read newest row", err)
	}
	trimmed, err := s.trimmed(scope)
	return max(seq, trimmed), err
}

// holds reports whether a step's conditions hold at a time, which is the change's.
func (c *change) holds(step *ledger.Step, now time.Time) (bool, error) {
	if off := now.Sub(step.At); off > ledger.Drift || off < -ledger.Drift {
		return false, nil
	}
	if !step.Before.IsZero() && !now.Before(step.Before) {
		return false, nil
	}
	for _, x := range step.Expect {
		at, err := c.stands(c.key(x.Key))
		if err != nil {
			return false, fmt.Errorf("check condition: %w", err)
		}
		if !at.is(x.Version, c.now) {
			return false, nil
		}
	}
	return true, nil
}

func (m memo) result(now time.Time) ledger.Result {
	if m.voided {
		return ledger.Result{Snapshot: ledger.Snapshot{Now: now}, Voided: true}
	}
	return ledger.Result{Snapshot: ledger.Snapshot{Now: fromMillis(m.now)}, Applied: true, Counters: slices.Clone(m.counters)}
}
