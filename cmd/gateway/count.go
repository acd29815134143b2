package main

import (
	"context"
	"time"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/usage"
)

// countEvery is how often it is looked for rows to count.
const countEvery = 10 * time.Second

// countUsage folds rows into the figures of usage until ctx ends. Where there is
// an archive, sealing does it.
func (a *App) countUsage(ctx context.Context) {
	counter := usage.Counter{Store: a.store, Keep: archive.DefaultRetention}
	tick := time.NewTicker(countEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if a.ready.last() != nil {
			continue
		}
		err := a.directory.Scopes(ctx, func(scope ledger.Scope) error {
			for more := true; more && ctx.Err() == nil; {
				var err error
				if more, err = counter.Count(ctx, scope); err != nil {
					a.log.WarnContext(ctx, "usage of a tenant not counted", "error", err)
					break
				}
			}
			return ctx.Err()
		})
		if err != nil && ctx.Err() == nil {
			a.log.WarnContext(ctx, "tenants not listed to count usage", "error", err)
		}
	}
}
