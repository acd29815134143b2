package tenants

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

const (
	// cacheLife is how long a key is taken to be as it was read. It bounds how
	// long a revocation elsewhere goes unnoticed by calls that take no new write
	// ([Principal.Guards] covers those that do).
	cacheLife = time.Second
	// cacheSize is how many keys are remembered.
	cacheSize = 4096
)

// Authenticate finds out whose a bearer credential is: the platform's admin key
// or an API key. Every credential that is not good is ErrUnauthenticated; any
// other error is the store's, and nobody may be let in on it.
func (d *Directory) Authenticate(ctx context.Context, bearer string) (Principal, error) {
	if n := d.adminKey(bearer); n > 0 {
		return Principal{Platform: true, AdminKey: n, Scope: ledger.Platform}, nil
	}
	scope, id, hash, ok := parseKey(bearer)
	if !ok {
		return Principal{}, ErrUnauthenticated
	}
	now := d.now()
	k, known := d.known.get(id, now)
	if !known {
		var err error
		if k, err = d.readKey(ctx, scope, id, now); err != nil {
			return Principal{}, err
		}
	}
	// A key that is not there compares with zeros, so that it costs what a wrong
	// secret costs.
	same := subtle.ConstantTimeCompare(hash[:], k.key.hash[:]) == 1
	if !same || !k.exists || k.key.expired(now) {
		return Principal{}, ErrUnauthenticated
	}
	d.uses.note(&k.key, scope, now)
	return k.principal(), nil
}

// Known says, without asking the store, that a credential is the platform's or
// names an API key that was used in the last minutes. It is for telling apart
// who is worth a read when many strangers ask, and opens nothing: the secret is
// not looked at.
func (d *Directory) Known(bearer string) bool {
	if d.adminKey(bearer) > 0 {
		return true
	}
	_, id, _, ok := parseKey(bearer)
	return ok && d.uses.has(id)
}

// adminKey says which of the platform's keys this is, counted from 1; 0 for none.
// All are compared, so that the time tells nothing.
func (d *Directory) adminKey(bearer string) int {
	given := sha256.Sum256([]byte(bearer))
	which := 0
	for i := range d.admins {
		which |= (i + 1) * subtle.ConstantTimeCompare(given[:], d.admins[i][:])
	}
	return which
}

// identity is a key with its tenant, as they were read at one instant.
type identity struct {
	exists bool
	key    storedKey
	tenant Tenant
	readAt time.Time
}

func (k *storedKey) expired(now time.Time) bool {
	return !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt)
}

func (k *identity) principal() Principal {
	return Principal{
		Tenant: k.tenant.Tenant, TenantID: k.tenant.TenantID, Scope: k.tenant.Scope,
		KeyID: k.key.ID, Scopes: k.key.Scopes, Grants: k.key.Grants,
		Suspended: k.tenant.Suspended || k.tenant.Closing, Limits: k.tenant.Limits,
		guards: []ledger.Expect{
			{Key: tenantKey(), Version: k.tenant.version},
			{Key: apiKeyKey(k.key.ID), Version: k.key.version},
		},
	}
}

// readKey reads a key and its tenant, in one instant, and remembers them.
func (d *Directory) readKey(ctx context.Context, scope ledger.Scope, id string, now time.Time) (identity, error) {
	era := d.known.era()
	snap, err := d.store.Read(ctx, scope, ledger.Fetch{Key: tenantKey()}, ledger.Fetch{Key: apiKeyKey(id)})
	if err != nil {
		return identity{}, fmt.Errorf("read API key: %w", err)
	}
	tv, hasTenant := snap.Get(tenantKey())
	kv, hasKey := snap.Get(apiKeyKey(id))
	if !hasTenant || !hasKey {
		return identity{}, nil
	}
	k := identity{exists: true, readAt: now}
	if k.tenant, err = decodeRecord(tv); err != nil {
		return identity{}, err
	}
	if k.key, err = decodeKey(id, kv); err != nil {
		return identity{}, err
	}
	if k.tenant.Scope != scope {
		return identity{}, fmt.Errorf("tenant is in another's scope: %w", ledger.ErrCorrupt)
	}
	d.known.put(id, k, era)
	return k, nil
}

// Forget drops what is remembered of a key, so that it is read anew. It is for
// a caller whose step failed on one of [Principal.Guards].
func (d *Directory) Forget(keyID string) { d.known.forget(keyID) }
