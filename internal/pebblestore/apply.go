package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
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
	if err := checkStep(step); err != nil {
		return ledger.Result{}, fmt.Errorf("apply step: %w", err)
	}
	return call(ctx, s, scope, func(st *stripe) (func() (ledger.Result, error), error) {
		return s.apply(st, scope, step)
	})
}

// apply decides on a step under its stripe. What it returns waits until the
// answer is durable.
func (s *Store) apply(st *stripe, scope ledger.Scope, step ledger.Step) (func() (ledger.Result, error), error) {
	now := s.clock.now()
	name := nonceKey{scope, step.Nonce}
	if m, ok := st.nonces.find(name, s.uptime()); ok {
		return s.tell(st.last, m.result(now)), nil
	}
	c := &change{db: s.db, memory: s.memory, scope: scope, now: now.UnixMilli()}
	holds, err := c.holds(step, now)
	if err != nil {
		return nil, err
	}
	if !holds {
		s.memory.put(c.values)
		values, err := fetchValues(s.db, scope, step.Fetch, c.now)
		if err != nil {
			return nil, err
		}
		return s.tell(st.last, ledger.Result{Snapshot: ledger.Snapshot{Now: now, Values: values}}), nil
	}
	return s.make(st, c, step, now)
}

// make applies every part of a step whose conditions hold.
func (s *Store) make(st *stripe, c *change, step ledger.Step, now time.Time) (func() (ledger.Result, error), error) {
	c.batch = s.db.NewBatch()
	counters, tail, err := s.build(st, c, step)
	if err != nil {
		return nil, errors.Join(err, c.batch.Close())
	}
	written, err := s.commit(st, c.batch, c.now)
	if err != nil {
		return nil, err
	}
	s.memory.put(c.values)
	if len(step.Rows) > 0 {
		st.remember(c.scope, tail)
	}
	st.nonces.apply(nonceKey{c.scope, step.Nonce}, c.now, counters, s.uptime())
	for _, v := range step.Void {
		st.nonces.void(nonceKey{c.scope, v}, s.uptime())
	}
	res := ledger.Result{Snapshot: ledger.Snapshot{Now: now}, Applied: true, Counters: slices.Clone(counters)}
	return func() (ledger.Result, error) {
		if err := written(); err != nil {
			return ledger.Result{}, err
		}
		return res, nil
	}, nil
}

func (s *Store) build(st *stripe, c *change, step ledger.Step) (counters []int64, tail uint64, err error) {
	if counters, err = c.apply(step); err != nil || len(step.Rows) == 0 {
		return counters, 0, err
	}
	if tail, err = s.tail(st, c.scope); err != nil {
		return nil, 0, err
	}
	tail, err = c.append(step.Rows, tail)
	return counters, tail, err
}

// tail is the sequence of the scope's newest row.
func (s *Store) tail(st *stripe, scope ledger.Scope) (uint64, error) {
	if seq, ok := st.tails[scope]; ok {
		return seq, nil
	}
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
func (c *change) holds(step ledger.Step, now time.Time) (bool, error) {
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

// commit appends a batch to the log, under its stripe. What it returns waits for
// the disk, and is called without it.
func (s *Store) commit(st *stripe, b *pebble.Batch, now int64) (func() error, error) {
	if b.Empty() {
		last := st.last
		return func() error { return s.durable(last) }, b.Close()
	}
	log := s.notes.log.Load() // or a later one, if that is begun meanwhile
	err := s.mark.write(b, now, func() error { return s.db.ApplyNoSyncWait(b, pebble.Sync) })
	if err != nil {
		s.failure.set(fmt.Errorf("append to log: %w", err))
		return nil, s.failure.err()
	}
	c := &commit{done: make(chan struct{})}
	st.last = c
	return func() error {
		if err := b.SyncWait(); err != nil {
			s.failure.set(fmt.Errorf("sync log: %w", err))
			return s.failure.err()
		}
		s.notes.saw(b, log)
		close(c.done)
		return b.Close()
	}, nil
}

// tell answers without a batch, once everything the answer may rest on is
// durable.
func (s *Store) tell(last *commit, res ledger.Result) func() (ledger.Result, error) {
	return func() (ledger.Result, error) {
		if err := s.durable(last); err != nil {
			return ledger.Result{}, err
		}
		return res, nil
	}
}

func (m memo) result(now time.Time) ledger.Result {
	if m.voided {
		return ledger.Result{Snapshot: ledger.Snapshot{Now: now}, Voided: true}
	}
	return ledger.Result{Snapshot: ledger.Snapshot{Now: fromMillis(m.now)}, Applied: true, Counters: slices.Clone(m.counters)}
}
