package tenants

import (
	"context"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// AuditRetention returns how long the audit rows of a scope are kept by its
// tenant's setting; 0: by the gateway's default. The tenant is gone, or has never
// been, if ok is false; the platform is always there.
func (d *Directory) AuditRetention(ctx context.Context, scope ledger.Scope) (keep time.Duration, ok bool, err error) {
	if scope == ledger.Platform {
		return 0, true, nil
	}
	snap, err := d.store.Read(ctx, scope, ledger.Fetch{Key: tenantKey()})
	if err != nil {
		return 0, false, fmt.Errorf("read tenant: %w", err)
	}
	v, there := snap.Get(tenantKey())
	if !there {
		return 0, false, nil
	}
	t, err := decodeRecord(v)
	return time.Duration(t.AuditRetention) * 24 * time.Hour, true, err
}
