package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// DeleteTenant removes a tenant: access ends, its keys and connections with
// their credentials are removed, its id is free. Its writes, with everything kept
// of them, are left to the [Eraser], which removes them step by step. Its audit
// rows stay for their time; no key of a tenant reaches them, and the host finds
// them by [Directory.FindLife].
//
// A tenant with writes in flight or held is not deleted: ErrUnsettled, and it
// goes on as before. ErrNotFound if there is none. After
// [ledger.ErrUnavailable], and after a crash, repeating the call finishes it.
func (d *Directory) DeleteTenant(ctx context.Context, caller audit.Caller, id string) error {
	for range maxTurns {
		f, err := d.find(ctx, id)
		if err != nil {
			return err
		}
		switch f.state {
		case alive:
			err = d.end(ctx, caller, f.Ref)
		case closed:
			return d.sweepUp(ctx, caller, f)
		case unknown, reserved:
			return ErrNotFound
		}
		// Another deletion that was faster shows as ErrNotFound: look again, and
		// help it to its end.
		if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, ErrNotFound) {
			return err
		}
	}
	return errContended
}

// errChanged: the tenant was changed while it was being deleted.
var errChanged = errors.New("tenant was changed")

// end ends a tenant's life: no new writes, a look for unsettled ones, and if
// there are none the record is removed and the scope closed in one step.
//
// The order closes the door before looking into the room. A claim that carries
// [Principal.Guards] is either applied before the tenant is marked, and then the
// look finds it, or it is refused. The last step expects the very mark that was
// there during the look: a tenant that was reopened and marked again since may
// have taken a write.
func (d *Directory) end(ctx context.Context, caller audit.Caller, ref Ref) error {
	defer d.known.forgetScope(ref.Scope)
	mark, err := d.markClosing(ctx, caller, ref, true)
	if err != nil {
		return err
	}
	unsettled, err := d.unsettled(ctx, ref.Scope)
	if err != nil || unsettled {
		// The caller may have gone; the tenant is not to stay half closed.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reopenPatience)
		defer cancel()
		_, reopened := d.markClosing(ctx, caller, ref, false)
		if err = errors.Join(err, reopened); err != nil {
			return err
		}
		return ErrUnsettled
	}
	_, err = d.change(ctx, ref, func(now *Tenant, step *ledger.Step) error {
		if now.version != mark {
			return errChanged
		}
		step.Delete = []ledger.Key{tenantKey()}
		step.Put = []ledger.Put{{Key: audit.ClosedKey(), Data: now.encode()}}
		audit.Append(step, rowOf(caller, ref, audit.TenantDeleted, ref.TenantID))
		return nil
	})
	return err
}

// reopenPatience bounds how long a deletion that was given up tries to say so.
const reopenPatience = 5 * time.Second

// markClosing marks a tenant as closing, or open again, and returns the version
// that says so.
func (d *Directory) markClosing(ctx context.Context, caller audit.Caller, ref Ref, closing bool) (ledger.Version, error) {
	event := audit.TenantReopened
	if closing {
		event = audit.TenantClosing
	}
	var version ledger.Version
	_, err := d.change(ctx, ref, func(now *Tenant, step *ledger.Step) error {
		version = now.version
		if now.Closing == closing {
			return nil
		}
		version = step.Nonce.Version()
		now.Closing = closing
		step.Put = []ledger.Put{{Key: tenantKey(), Data: now.encode()}}
		audit.Append(step, rowOf(caller, ref, event, ref.TenantID))
		return nil
	})
	return version, err
}

// unsettled says whether a scope has writes in flight or held. It looks where a
// write goes first and where it goes next, so one on its way is seen.
func (d *Directory) unsettled(ctx context.Context, scope ledger.Scope) (bool, error) {
	for _, index := range []ledger.Index{ledger.ByLease, ledger.ByHold} {
		found, err := d.store.Entries(ctx, scope, ledger.EntryRange{Index: index, Limit: 1})
		if err != nil {
			return false, fmt.Errorf("look for unsettled writes: %w", err)
		}
		if len(found) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// sweepUp removes what a closed scope has under a name, then the entry. Each
// step can be repeated, by anybody.
func (d *Directory) sweepUp(ctx context.Context, caller audit.Caller, f found) error {
	for {
		named, err := d.store.Entries(ctx, f.Scope, ledger.EntryRange{Index: ledger.ByName, Limit: listBatch})
		if err != nil {
			return fmt.Errorf("list what a tenant leaves: %w", err)
		}
		if len(named) == 0 {
			break
		}
		if err := d.purge(ctx, caller, f, named); err != nil {
			return err
		}
	}
	k := entryKey(f.Tenant)
	_, err := audit.Change(ctx, d.store, ledger.Platform, []ledger.Fetch{{Key: k}, {Key: pastKey(f.Tenant)}}, func(seen ledger.Snapshot, step *ledger.Step) error {
		if v, _ := seen.Get(k); v.Version != f.version {
			return nil // somebody else finished, and the id may be in use again
		}
		step.Expect = []ledger.Expect{{Key: k, Version: f.version}}
		step.Delete = []ledger.Key{k}
		step.Unindex = []ledger.Entry{indexed(k, f.entry.CreatedAt)}
		step.Put = []ledger.Put{{Key: erasureKey(f.Ref), Data: []byte(f.TenantID)}}
		step.Index = []ledger.Entry{erasureEntry(f.Ref, step.At)}
		audit.Append(step, rowOf(caller, f.Ref, audit.TenantDeleted, f.TenantID))
		return bury(step, seen, f)
	})
	return err
}

// purge removes named values of a closed scope in one step. It is the one
// change a closed scope takes, so it does not go through [audit.Change].
func (d *Directory) purge(ctx context.Context, caller audit.Caller, f found, named []ledger.Entry) error {
	at := d.store.Now()
	for range maxTurns {
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: at,
			Unindex: named,
		}
		for _, e := range named {
			if k, ok := keyOf(e.Member); ok {
				step.Delete = append(step.Delete, k)
				if k.Kind == ledger.APIKey {
					step.Delete = append(step.Delete, usedKey(k.ID))
				}
			}
		}
		audit.Append(&step, rowOf(caller, f.Ref, audit.TenantPurged, f.TenantID))
		res, err := d.store.Apply(ctx, f.Scope, step)
		if err != nil {
			return fmt.Errorf("remove what a tenant leaves: %w", err)
		}
		if res.Applied {
			return nil
		}
		at = res.Now // nothing but the time was a condition
	}
	return errContended
}
