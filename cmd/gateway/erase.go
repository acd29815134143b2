package main

import (
	"context"
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// eraseEvery is how often it is looked for deleted tenants to erase. When there
// are none it is one question to the store.
const eraseEvery = 2 * time.Second

// eraseDeleted removes what deleted tenants leave until ctx ends.
func (a *App) eraseDeleted(ctx context.Context) {
	eraser := a.directory.NewEraser(a.eraseWrites, a.endLog)
	tick := time.NewTicker(eraseEvery)
	defer tick.Stop()
	for {
		if a.ready.last() == nil {
			if err := eraser.Pass(ctx); err != nil && ctx.Err() == nil {
				a.log.WarnContext(ctx, "a deleted tenant is not erased yet", "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (a *App) eraseWrites(
	ctx context.Context, scope ledger.Scope, guard []ledger.Expect, row func(at time.Time, writes int) []byte,
) (bool, error) {
	return a.claims.Erase(ctx, dedupe.Erasure{Scope: scope, Guard: guard, Row: row})
}

// endLog seals the end of a deleted tenant's log: no row follows.
func (a *App) endLog(ctx context.Context, ref tenants.Ref) error {
	if a.sealing.sealer == nil {
		return nil
	}
	for {
		done, err := a.sealing.sealer.Seal(ctx, ref.Scope, true)
		if err != nil || done.Final {
			return err
		}
	}
}
