package main

import (
	"context"
	"time"
)

// saveUsesEvery is how often it is written down which keys were used.
const saveUsesEvery = 30 * time.Second

// saveUses writes down which keys were used, and once more at the end.
func (a *App) saveUses(ctx context.Context) {
	tick := time.NewTicker(saveUsesEvery)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		if a.ready.last() != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.StoreTimeout)
		if err := a.directory.SaveUses(ctx); err != nil {
			a.log.WarnContext(ctx, "last uses of keys not stored", "error", err)
		}
		cancel()
	}
}
