package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/bootclock"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// readiness remembers whether the store may be claimed in, so that every call
// can ask without a round trip. Until the first answer it may not.
type readiness struct {
	ask     func(context.Context) error
	timeout time.Duration
	log     *slog.Logger
	boot    func() time.Duration // a clock that goes on while this process is stopped
	state   atomic.Pointer[readyAnswer]
}

// readyAnswer is what the store said of itself.
type readyAnswer struct {
	err   error
	asked time.Duration // when it was asked, on the clock of boot
}

// askEvery bounds how long a store that became unsafe is claimed in.
const askEvery = time.Second

// maxLate is how late an answer may be, on top of the time it may take, before
// the last one counts no more: a process that was stopped or starved does not
// claim by what it knew before.
const maxLate = 5 * time.Second

var (
	errNotAsked = errors.New("the store has not been asked yet")
	errStale    = fmt.Errorf("%w: the store has not been asked for too long", ledger.ErrNotReady)
)

func newReadiness(ask func(context.Context) error, timeout time.Duration, log *slog.Logger) *readiness {
	r := &readiness{ask: ask, timeout: timeout, log: log, boot: bootclock.New().Now}
	r.state.Store(&readyAnswer{err: errNotAsked})
	return r
}

// last is the latest answer.
func (r *readiness) last() error {
	a := r.state.Load()
	if a.err != nil {
		return a.err
	}
	if r.boot()-a.asked > r.timeout+maxLate {
		return errStale
	}
	return nil
}

// now asks. An answer is kept unless a later question has been answered already;
// that nobody waited for it says nothing of the store.
func (r *readiness) now(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	a := &readyAnswer{asked: r.boot()}
	a.err = r.ask(bounded)
	if a.err != nil && ctx.Err() != nil {
		return a.err
	}
	for {
		before := r.state.Load()
		if before.asked > a.asked && before.asked <= r.boot() { // and the clock was not set back
			return a.err
		}
		if r.state.CompareAndSwap(before, a) {
			r.tell(ctx, before.err, a.err)
			return a.err
		}
	}
}

// tell logs a change.
func (r *readiness) tell(ctx context.Context, was, is error) {
	switch {
	case is != nil && was == nil, is != nil && errors.Is(was, errNotAsked):
		r.log.WarnContext(ctx, "store not ready; nothing new is claimed", "error", is)
	case is == nil && was != nil:
		r.log.InfoContext(ctx, "store ready")
	}
}

// watch asks every second until ctx ends.
func (r *readiness) watch(ctx context.Context) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = r.now(ctx) // kept and logged
		}
	}
}

// guarded is the store as administration sees it: while the store is not ready
// nothing is changed in it. Writes of agents are guarded by the path of a write
// itself, which must still be able to settle what it sent.
type guarded struct {
	ledger.Store
	ready *readiness
}

func (g guarded) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if err := g.ready.last(); err != nil {
		return ledger.Result{}, fmt.Errorf("%w: %w", ledger.ErrUnavailable, err)
	}
	return g.Store.Apply(ctx, scope, step)
}

// scopes are what background work goes through; [due.Scopes] are.
type scopes interface {
	actions.Scopes
	actions.Directory
	Look(ctx context.Context) error
}

// trusted lists the tenants while the store's data and clock can be trusted.
// What the clock asks of a write is not done on a clock that jumped or on
// records that may be old. It stands over what remembers tenants: that asks no
// directory.
type trusted struct {
	scopes
	doubt func() error
}

func (t trusted) Refs(ctx context.Context, each func(tenants.Ref) error) error {
	return t.through(ctx, t.scopes.Refs, each)
}

func (t trusted) All(ctx context.Context, each func(tenants.Ref) error) error {
	return t.through(ctx, t.scopes.All, each)
}

// lookAround is how often it is asked whether all tenants are to be gone through.
const lookAround = time.Minute

// look has all tenants gone through once in a while, until ctx ends.
func (t trusted) look(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(lookAround)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if t.doubt() != nil {
			continue // readiness has said why
		}
		if err := t.Look(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "not all tenants gone through for what is due", "error", err)
		}
	}
}

func (t trusted) through(
	ctx context.Context, list func(context.Context, func(tenants.Ref) error) error, each func(tenants.Ref) error,
) error {
	if err := t.doubt(); err != nil {
		return err
	}
	return list(ctx, func(ref tenants.Ref) error {
		if err := t.doubt(); err != nil {
			return err
		}
		return each(ref)
	})
}

// ofKnownFormat is the store as a job of its own sees it that asks nobody whether
// the store is ready: one that a newer release has marked as its own is left alone.
type ofKnownFormat struct {
	ledger.Store
	doubt func() error
}

func (k ofKnownFormat) known() error {
	if err := k.doubt(); errors.Is(err, ledger.ErrFormat) {
		return err
	}
	return nil
}

func (k ofKnownFormat) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if err := k.known(); err != nil {
		return ledger.Result{}, err
	}
	return k.Store.Apply(ctx, scope, step)
}

func (k ofKnownFormat) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	if err := k.known(); err != nil {
		return ledger.Snapshot{}, err
	}
	return k.Store.Read(ctx, scope, fetch...)
}

func (k ofKnownFormat) TrimRows(ctx context.Context, scope ledger.Scope, upTo string) error {
	if err := k.known(); err != nil {
		return err
	}
	return k.Store.TrimRows(ctx, scope, upTo)
}
