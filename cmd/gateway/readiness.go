package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// readiness remembers whether the store may be claimed in, so that every call
// can ask without a round trip. Until the first answer it may not.
type readiness struct {
	ask     func(context.Context) error
	timeout time.Duration
	log     *slog.Logger
	state   atomic.Pointer[error]
}

// askEvery bounds how long a store that became unsafe is claimed in.
const askEvery = time.Second

var errNotAsked = errors.New("the store has not been asked yet")

func newReadiness(ask func(context.Context) error, timeout time.Duration, log *slog.Logger) *readiness {
	r := &readiness{ask: ask, timeout: timeout, log: log}
	r.state.Store(&errNotAsked)
	return r
}

// last is the latest answer.
func (r *readiness) last() error { return *r.state.Load() }

// now asks.
func (r *readiness) now(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	err := r.ask(ctx)
	before := r.state.Swap(&err)
	switch was := *before; {
	case err != nil && was == nil, err != nil && errors.Is(was, errNotAsked):
		r.log.WarnContext(ctx, "store not ready; nothing new is claimed", "error", err)
	case err == nil && was != nil:
		r.log.InfoContext(ctx, "store ready")
	}
	return err
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

// trusted lists the tenants while the store's data and clock can be trusted.
// What the clock asks of a write is not done on a clock that jumped or on
// records that may be old.
type trusted struct {
	tenants actions.Directory
	doubt   func() error
}

func (t trusted) GetTenant(ctx context.Context, id string) (tenants.Tenant, error) {
	return t.tenants.GetTenant(ctx, id)
}

func (t trusted) Refs(ctx context.Context, each func(tenants.Ref) error) error {
	if err := t.doubt(); err != nil {
		return err
	}
	return t.tenants.Refs(ctx, each)
}
