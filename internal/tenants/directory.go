package tenants

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// MinAdminKey is the least length of the platform's admin key, in bytes.
const MinAdminKey = 32

// Config is what a Directory is made of.
type Config struct {
	Store ledger.Store
	// AdminKeys are the platform's, each at least MinAdminKey bytes; while one is
	// being replaced by another there are two. None: nobody is the platform.
	AdminKeys []string
	// Clock is what expiry and the memory of keys go by; nil: the store's.
	Clock func() time.Time
}

// Directory knows tenants and their keys. It is safe for concurrent use, and so
// are several of them, in several processes, over one store.
type Directory struct {
	store  ledger.Store
	now    func() time.Time
	admins [][sha256.Size]byte
	known  *memory
	uses   uses
}

// New returns the directory of a store. It starts nothing.
func New(c Config) (*Directory, error) {
	if c.Store == nil {
		return nil, errors.New("tenants: store is required")
	}
	if c.Clock == nil {
		c.Clock = c.Store.Now
	}
	d := &Directory{store: c.Store, now: c.Clock, known: newMemory(cacheSize), uses: uses{byID: map[string]use{}}}
	for _, key := range c.AdminKeys {
		if len(key) < MinAdminKey {
			return nil, fmt.Errorf("tenants: an admin key must have at least %d characters", MinAdminKey)
		}
		d.admins = append(d.admins, sha256.Sum256([]byte(key)))
	}
	return d, nil
}

// CreateTenant makes a tenant. The error is an *InvalidError, or ErrExists.
// After [ledger.ErrUnavailable] it may have been made or not; repeating the call
// makes it or says that it exists.
func (d *Directory) CreateTenant(ctx context.Context, caller audit.Caller, n NewTenant) (Tenant, error) {
	if err := n.check(); err != nil {
		return Tenant{}, err
	}
	for range maxTurns {
		found, err := d.find(ctx, n.ID)
		if err != nil {
			return Tenant{}, err
		}
		switch found.state {
		case alive:
			return Tenant{}, ErrExists
		case unknown:
			err = d.reserve(ctx, caller, n.ID)
		case reserved: // by us, or by a creation that did not end
			return d.settle(ctx, caller, found.Ref, n)
		case closed: // by a deletion that did not end
			err = d.sweepUp(ctx, caller, found)
		}
		if err != nil {
			return Tenant{}, err
		}
	}
	return Tenant{}, errContended
}

// maxTurns bounds how often a call that meets others at work on the same tenant
// looks again.
const maxTurns = 16

var errContended = fmt.Errorf("tenant kept changing: %w", ledger.ErrUnavailable)

// reserve makes the platform's entry, unless another call was faster.
func (d *Directory) reserve(ctx context.Context, caller audit.Caller, id string) error {
	incarnation := newIncarnation()
	k := entryKey(id)
	_, err := audit.Change(ctx, d.store, ledger.Platform, []ledger.Fetch{{Key: k}}, func(seen ledger.Snapshot, step *ledger.Step) error {
		if _, taken := seen.Get(k); taken {
			return nil
		}
		step.Expect = []ledger.Expect{{Key: k}}
		step.Put = []ledger.Put{{Key: k, Data: encode(entry{V: recordVersion, Incarnation: incarnation, CreatedAt: step.At})}}
		step.Index = []ledger.Entry{indexed(k, step.At)}
		audit.Append(step, rowOf(caller, Ref{Tenant: id}, audit.TenantReserved, incarnation))
		return nil
	})
	return err
}

// settle makes the tenant's own record, which is what makes the tenant.
func (d *Directory) settle(ctx context.Context, caller audit.Caller, ref Ref, n NewTenant) (Tenant, error) {
	t := Tenant{Ref: ref, Name: n.Name, Limits: n.Limits, AuditRetention: n.AuditRetention}
	step, err := audit.Change(ctx, d.store, ref.Scope, []ledger.Fetch{{Key: tenantKey()}}, func(seen ledger.Snapshot, step *ledger.Step) error {
		if _, made := seen.Get(tenantKey()); made {
			return ErrExists
		}
		t.CreatedAt, t.UpdatedAt = step.At, step.At
		step.Expect = []ledger.Expect{{Key: tenantKey()}}
		step.Put = []ledger.Put{{Key: tenantKey(), Data: t.encode()}}
		audit.Append(step, rowOf(caller, ref, audit.TenantCreated, ref.TenantID))
		return nil
	})
	if errors.Is(err, audit.ErrClosed) {
		return Tenant{}, errContended // made and deleted by others meanwhile
	}
	if err != nil {
		return Tenant{}, err
	}
	t.version = step.Nonce.Version()
	return t, nil
}

// GetTenant returns a tenant, or ErrNotFound.
func (d *Directory) GetTenant(ctx context.Context, id string) (Tenant, error) {
	found, err := d.find(ctx, id)
	if err != nil {
		return Tenant{}, err
	}
	if found.state != alive {
		return Tenant{}, ErrNotFound
	}
	return found.tenant, nil
}

// ListTenants returns tenants in the order of their creation and the cursor of
// the next page, "" on the last. A page may be short and still have a next one.
func (d *Directory) ListTenants(ctx context.Context, cursor string, limit int) (tenants []Tenant, next string, err error) {
	ids, next, err := list(ctx, d.store, ledger.Platform, ledger.Tenant, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	for _, id := range ids {
		t, err := d.GetTenant(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue // not made yet, or deleted since
		}
		if err != nil {
			return nil, "", err
		}
		tenants = append(tenants, t)
	}
	return tenants, next, nil
}

// UpdateTenant changes what the patch names. The error is an *InvalidError, or
// ErrNotFound. A patch that changes nothing leaves no row.
func (d *Directory) UpdateTenant(ctx context.Context, caller audit.Caller, id string, p Patch) (Tenant, error) {
	if err := p.check(); err != nil {
		return Tenant{}, err
	}
	found, err := d.GetTenant(ctx, id)
	if err != nil {
		return Tenant{}, err
	}
	defer d.known.forgetScope(found.Scope)
	var t Tenant
	step, err := d.change(ctx, found.Ref, func(now *Tenant, step *ledger.Step) error {
		t = *now
		events, changed := t.apply(p)
		if len(events) == 0 {
			return nil
		}
		t.UpdatedAt = step.At
		step.Put = []ledger.Put{{Key: tenantKey(), Data: t.encode()}}
		for _, e := range events {
			row := rowOf(caller, t.Ref, e, "")
			if e == audit.TenantUpdated {
				row.Changed = changed
			}
			audit.Append(step, row)
		}
		return nil
	})
	if err != nil {
		return Tenant{}, err
	}
	if len(step.Put) > 0 {
		t.version = step.Nonce.Version()
	}
	return t, nil
}

// apply changes t and says which events that is.
func (t *Tenant) apply(p Patch) (events []audit.Event, changed []string) {
	if p.Name != nil && *p.Name != t.Name {
		t.Name = *p.Name
		changed = append(changed, "name")
	}
	if p.Limits != nil && *p.Limits != t.Limits {
		t.Limits = *p.Limits
		changed = append(changed, "limits")
	}
	if p.AuditRetention != nil && *p.AuditRetention != t.AuditRetention {
		t.AuditRetention = *p.AuditRetention
		changed = append(changed, "audit_retention_days")
	}
	if len(changed) > 0 {
		events = append(events, audit.TenantUpdated)
	}
	if p.Suspended == nil {
		return events, changed
	}
	if t.Closing && !*p.Suspended {
		t.Closing = false
		events = append(events, audit.TenantReopened)
	}
	if *p.Suspended != t.Suspended {
		t.Suspended = *p.Suspended
		if t.Suspended {
			events = append(events, audit.TenantSuspended)
		} else {
			events = append(events, audit.TenantResumed)
		}
	}
	return events, changed
}

// change decides a step on the tenant as it is. A tenant that is gone gives
// ErrNotFound.
func (d *Directory) change(ctx context.Context, ref Ref, decide func(now *Tenant, step *ledger.Step) error) (ledger.Step, error) {
	step, err := audit.Change(ctx, d.store, ref.Scope, []ledger.Fetch{{Key: tenantKey()}}, func(seen ledger.Snapshot, step *ledger.Step) error {
		v, ok := seen.Get(tenantKey())
		if !ok {
			return ErrNotFound
		}
		t, err := decodeRecord(v)
		if err != nil {
			return err
		}
		step.Expect = []ledger.Expect{{Key: tenantKey(), Version: v.Version}}
		return decide(&t, step)
	})
	return step, gone(err)
}

func rowOf(caller audit.Caller, ref Ref, e audit.Event, subject string) audit.Row {
	row := caller.Row(e)
	row.Tenant, row.Subject = ref.Tenant, subject
	return row
}
