package actions

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// Tenants lists tenants.
type Tenants interface {
	Refs(ctx context.Context, each func(tenants.Ref) error) error
}

// Scopes lists the tenants with something that the clock may ask for, and all.
type Scopes interface {
	Tenants
	All(ctx context.Context, each func(tenants.Ref) error) error
}

// Sweeper does what the clock asks of one scope; dedupe's Claims do.
type Sweeper interface {
	Sweep(ctx context.Context, scope ledger.Scope, scribe dedupe.Scribe) (dedupe.Swept, error)
	Trim(ctx context.Context, scope ledger.Scope) error
	Holding(ctx context.Context, scope ledger.Scope) (dedupe.Holding, error)
}

// SweepEvery is how often every scope with something in flight is swept: a lease that lapses unnoticed
// is noticed within 5 s (CONTRACT 4).
const SweepEvery = 2 * time.Second

const trimEvery = time.Hour

// countEvery is how often it is counted what is held: scrapes read the last count.
const countEvery = 5 * time.Second

// Sweep moves what the clock has moved, in every scope with something to move, until
// ctx ends, and once in a while drops old listings of all. A scope
// that fails is tried again the next time round; one that has more to move than
// a sweep does, as after the end of a busy gateway, is not kept waiting.
func Sweep(ctx context.Context, claims Sweeper, scopes Scopes, m *Metrics, log *slog.Logger) {
	tick := time.NewTicker(SweepEvery)
	defer tick.Stop()
	var trimmed, counted time.Time
	for {
		more := false
		count := census{due: time.Since(counted) >= countEvery}
		err := scopes.Refs(ctx, func(ref tenants.Ref) error {
			scope := ref.Scope
			moved, err := claims.Sweep(ctx, scope, systemScribe(ref.Tenant, "sweep"))
			m.swept.Add(float64(moved.Held + moved.Lapsed))
			m.lapsed.Add(float64(moved.Lapsed))
			if moved.Held > 0 {
				log.WarnContext(ctx, "writes held because their gateways were lost", "count", moved.Held)
			}
			if moved.Lapsed > 0 {
				log.ErrorContext(ctx, "held writes lapsed with their outcome unknown", "count", moved.Lapsed)
			}
			more = more || err == nil && moved.More()
			if err == nil {
				err = count.add(ctx, claims, scope)
			}
			count.failed = count.failed || err != nil
			if err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "scope not swept", "error", err)
			}
			return ctx.Err()
		})
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ledger.ErrNotReady): // readiness has said why
		case err != nil:
			log.WarnContext(ctx, "tenants not listed for the sweep", "error", err)
		case time.Since(trimmed) >= trimEvery && trim(ctx, claims, scopes, log):
			trimmed = time.Now()
		}
		if count.due && !count.failed && err == nil {
			m.holding(count.held, count.oldest)
			counted = time.Now()
		}
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// trim drops the old listings of all scopes; false if some are left.
func trim(ctx context.Context, claims Sweeper, scopes Scopes, log *slog.Logger) bool {
	whole := true
	err := scopes.All(ctx, func(ref tenants.Ref) error {
		if err := claims.Trim(ctx, ref.Scope); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "old listings of a scope not dropped", "error", err)
			whole = false
		}
		return ctx.Err()
	})
	return err == nil && whole
}

// census adds up what the scopes hold. One that failed counts for nothing: a
// gauge that stands still is better than one that leaves a tenant out.
type census struct {
	due, failed bool
	held        int
	oldest      time.Duration
}

func (c *census) add(ctx context.Context, claims Sweeper, scope ledger.Scope) error {
	if !c.due {
		return nil
	}
	h, err := claims.Holding(ctx, scope)
	c.held += h.Held
	c.oldest = max(c.oldest, h.Oldest)
	return err
}
