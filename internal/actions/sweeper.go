package actions

import (
	"context"
	"log/slog"
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// Scopes lists the scopes of all tenants.
type Scopes interface {
	Scopes(ctx context.Context, each func(ledger.Scope) error) error
}

// SweepEvery is how often every scope is swept: a lease that lapses unnoticed
// is noticed within 5 s (CONTRACT 4).
const SweepEvery = 2 * time.Second

const trimEvery = time.Hour

// Sweep moves what the clock has moved, in every scope, until ctx ends. A scope
// that fails is tried again the next time round.
func Sweep(ctx context.Context, claims *dedupe.Claims, scopes Scopes, m *Metrics, log *slog.Logger) {
	tick := time.NewTicker(SweepEvery)
	defer tick.Stop()
	var trimmed time.Time
	for {
		trim := time.Since(trimmed) >= trimEvery
		err := scopes.Scopes(ctx, func(scope ledger.Scope) error {
			moved, err := claims.Sweep(ctx, scope)
			m.swept.Add(float64(moved.Held + moved.Lapsed))
			m.lapsed.Add(float64(moved.Lapsed))
			if moved.Lapsed > 0 {
				log.ErrorContext(ctx, "held writes lapsed with their outcome unknown", "count", moved.Lapsed)
			}
			if err == nil && trim {
				err = claims.Trim(ctx, scope)
			}
			if err != nil && ctx.Err() == nil {
				log.WarnContext(ctx, "scope not swept", "error", err)
			}
			return ctx.Err()
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WarnContext(ctx, "tenants not listed for the sweep", "error", err)
		case trim:
			trimmed = time.Now()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
