package tenants

import (
	"context"
	"fmt"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// state is how far a tenant is along its life (see the package's comment).
type state int

const (
	unknown  state = iota // no entry
	reserved              // an entry, and nothing in its scope
	alive                 // a record
	closed                // a scope closed for good, whose entry is still there
)

// found is what the two scopes say of an id.
type found struct {
	Ref
	state   state
	tenant  Tenant // of alive
	entry   entry
	version ledger.Version // of the entry
}

// find looks an id up. It reads the entry first and the scope second, so an
// entry that is replaced in between shows as the tenant it pointed to.
func (d *Directory) find(ctx context.Context, id string) (found, error) {
	if !idForm.MatchString(id) {
		return found{}, nil // nobody could have made it
	}
	snap, err := d.store.Read(ctx, ledger.Platform, ledger.Fetch{Key: entryKey(id)})
	if err != nil {
		return found{}, fmt.Errorf("read tenant entry: %w", err)
	}
	v, ok := snap.Get(entryKey(id))
	if !ok {
		return found{}, nil
	}
	e, err := decodeEntry(v)
	if err != nil {
		return found{}, err
	}
	f := found{Ref: refOf(id, e.Incarnation), entry: e, version: v.Version}
	return d.look(ctx, f)
}

// look reads the scope an entry points to.
func (d *Directory) look(ctx context.Context, f found) (found, error) {
	snap, err := d.store.Read(ctx, f.Scope, ledger.Fetch{Key: tenantKey()}, ledger.Fetch{Key: audit.ClosedKey()})
	if err != nil {
		return found{}, fmt.Errorf("read tenant: %w", err)
	}
	f.state = reserved
	if _, is := snap.Get(audit.ClosedKey()); is {
		f.state = closed
		return f, nil
	}
	if v, is := snap.Get(tenantKey()); is {
		f.state = alive
		f.tenant, err = decodeRecord(v)
	}
	return f, err
}

// RefOf returns the tenant whose scope it is; false if none lives there.
func (d *Directory) RefOf(ctx context.Context, scope ledger.Scope) (Ref, bool, error) {
	f, err := d.look(ctx, found{Ref: Ref{Scope: scope}})
	return f.tenant.Ref, err == nil && f.state == alive, err
}

// Scopes calls each with the scope of every tenant, as Refs does.
func (d *Directory) Scopes(ctx context.Context, each func(ledger.Scope) error) error {
	return d.Refs(ctx, func(ref Ref) error { return each(ref.Scope) })
}

// Refs calls each with every tenant, in the order of their creation, until it
// returns an error. Tenants that are being made or removed may be among them;
// their scopes are empty, or soon will be.
func (d *Directory) Refs(ctx context.Context, each func(Ref) error) error {
	cursor := ""
	for {
		ids, next, err := list(ctx, d.store, ledger.Platform, ledger.Tenant, cursor, listBatch)
		if err != nil {
			return err
		}
		fetch := make([]ledger.Fetch, 0, len(ids))
		for _, id := range ids {
			fetch = append(fetch, ledger.Fetch{Key: entryKey(id)})
		}
		snap, err := d.store.Read(ctx, ledger.Platform, fetch...)
		if err != nil {
			return fmt.Errorf("read tenant entries: %w", err)
		}
		for _, id := range ids {
			v, ok := snap.Get(entryKey(id))
			if !ok {
				continue // deleted since the index was read
			}
			e, err := decodeEntry(v)
			if err != nil {
				return err
			}
			if err := each(refOf(id, e.Incarnation)); err != nil {
				return err
			}
		}
		if next == "" {
			return nil
		}
		cursor = next
	}
}
