package tenants

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

// APIKey is a key as it may be shown: everything but its secret.
type APIKey struct {
	ID        string // public id
	Label     string // for people
	Scopes    []KeyScope
	Grants    []Grant
	ExpiresAt time.Time // zero: never
	CreatedAt time.Time
	CreatedBy audit.Actor
	// LastUsedAt is right to a minute or two; zero: not used, or just now for the
	// first time. Only listing fills it in.
	LastUsedAt time.Time
}

// NewKey is what a key is created from.
type NewKey struct {
	Label     string
	Scopes    []KeyScope // at least one
	Grants    []Grant    // nil: do is not narrowed
	ExpiresAt time.Time  // zero: never
}

// What a key may hold at most.
const (
	maxGrants  = 64
	maxActions = 64
)

// grantForm is what names of connections and actions look like.
var grantForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (n *NewKey) check(now time.Time) error {
	var p problems
	p.text("/label", n.Label)
	p.scopes(n.Scopes)
	p.grants(n.Grants)
	if !n.ExpiresAt.IsZero() && !n.ExpiresAt.After(now) {
		p.add("/expires_at", "use a time in the future")
	}
	return p.err()
}

func (p *problems) scopes(scopes []KeyScope) {
	if len(scopes) == 0 {
		p.add("/scopes", "name at least one of do, read, resolve, manage")
	}
	for i, s := range scopes {
		at := "/scopes/" + strconv.Itoa(i)
		switch {
		case !s.known():
			p.add(at, "use one of do, read, resolve, manage")
		case slices.Contains(scopes[:i], s):
			p.add(at, "this scope is listed twice")
		}
	}
}

// grants refuses what reads as "nothing" but would mean "everything".
func (p *problems) grants(grants []Grant) {
	switch {
	case grants != nil && len(grants) == 0:
		p.add("/grants", "an empty list grants nothing; leave grants out to grant everything")
	case len(grants) > maxGrants:
		p.add("/grants", "use at most 64 grants")
		return
	}
	for i, g := range grants {
		at := "/grants/" + strconv.Itoa(i)
		if !grantForm.MatchString(g.Connection) {
			p.add(at+"/connection", "this is no name of a connection")
		}
		switch {
		case g.Actions != nil && len(g.Actions) == 0:
			p.add(at+"/actions", "an empty list grants nothing; leave actions out to grant all of them")
		case len(g.Actions) > maxActions:
			p.add(at+"/actions", "use at most 64 actions")
			continue
		}
		for j, a := range g.Actions {
			if !grantForm.MatchString(a) {
				p.add(at+"/actions/"+strconv.Itoa(j), "this is no name of an action")
			}
		}
	}
}

// keyRecord is a key as it is stored, in its tenant's scope.
type keyRecord struct {
	V         int         `json:"v"`
	Hash      []byte      `json:"hash"` // SHA-256 of the secret
	Label     string      `json:"label,omitempty"`
	Scopes    []KeyScope  `json:"scopes"`
	Grants    []Grant     `json:"grants,omitempty"`
	ExpiresAt *time.Time  `json:"expires_at,omitempty"`
	CreatedAt time.Time   `json:"created_at"`
	CreatedBy audit.Actor `json:"created_by"`
}

// storedKey is a key as it was read.
type storedKey struct {
	APIKey
	hash    secretHash
	version ledger.Version
}

func decodeKey(id string, v ledger.Value) (storedKey, error) {
	var r keyRecord
	if err := decode("API key", v.Data, &r.V, &r); err != nil {
		return storedKey{}, err
	}
	if len(r.Hash) != len(secretHash{}) || len(r.Scopes) == 0 {
		return storedKey{}, fmt.Errorf("read API key: %w", ledger.ErrCorrupt)
	}
	k := storedKey{hash: secretHash(r.Hash), version: v.Version, APIKey: APIKey{
		ID: id, Label: r.Label, Scopes: r.Scopes, Grants: r.Grants, CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy,
	}}
	if r.ExpiresAt != nil {
		k.ExpiresAt = *r.ExpiresAt
	}
	return k, nil
}

// apiKeyKey is where a scope keeps a key.
func apiKeyKey(publicID string) ledger.Key { return ledger.Key{Kind: ledger.APIKey, ID: publicID} }

// CreateKey makes a key of a tenant and returns its text, which nobody can see
// again. The error is an *InvalidError, or ErrNotFound if the tenant is gone.
func (d *Directory) CreateKey(ctx context.Context, caller audit.Caller, ref Ref, n NewKey) (text string, key APIKey, err error) {
	if err := n.check(d.store.Now()); err != nil {
		return "", APIKey{}, err
	}
	text, id, hash := mint(ref.Scope)
	_, err = d.change(ctx, ref, func(_ *Tenant, step *ledger.Step) error {
		key = APIKey{
			ID: id, Label: n.Label, Scopes: n.Scopes, Grants: n.Grants,
			ExpiresAt: millis(n.ExpiresAt), CreatedAt: step.At, CreatedBy: caller.Actor,
		}
		r := keyRecord{
			V: recordVersion, Hash: hash[:], Label: n.Label, Scopes: n.Scopes, Grants: n.Grants,
			CreatedAt: step.At, CreatedBy: caller.Actor,
		}
		if !n.ExpiresAt.IsZero() {
			r.ExpiresAt = &key.ExpiresAt
		}
		k := apiKeyKey(id)
		step.Expect = append(step.Expect, ledger.Expect{Key: k})
		step.Put = []ledger.Put{{Key: k, Data: encode(r)}}
		step.Index = []ledger.Entry{indexed(k, step.At)}
		audit.Append(step, rowOf(caller, ref, audit.KeyCreated, id))
		return nil
	})
	if err != nil {
		return "", APIKey{}, err
	}
	return text, key, nil
}

func millis(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Millisecond)
}

// ListKeys returns a tenant's keys, oldest first, expired ones too, and the
// cursor of the next page, "" on the last.
func (d *Directory) ListKeys(ctx context.Context, ref Ref, cursor string, limit int) (keys []APIKey, next string, err error) {
	ids, next, err := list(ctx, d.store, ref.Scope, ledger.APIKey, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	fetch := []ledger.Fetch{{Key: tenantKey()}}
	for _, id := range ids {
		fetch = append(fetch, ledger.Fetch{Key: apiKeyKey(id)}, ledger.Fetch{Key: usedKey(id)})
	}
	snap, err := d.store.Read(ctx, ref.Scope, fetch...)
	if err != nil {
		return nil, "", fmt.Errorf("read API keys: %w", err)
	}
	if _, alive := snap.Get(tenantKey()); !alive {
		return nil, "", ErrNotFound
	}
	for _, id := range ids {
		v, ok := snap.Get(apiKeyKey(id))
		if !ok {
			continue // revoked since the index was read
		}
		k, err := decodeKey(id, v)
		if err != nil {
			return nil, "", err
		}
		k.LastUsedAt = usedIn(snap, id)
		keys = append(keys, k.APIKey)
	}
	return keys, next, nil
}

// RevokeKey ends a key: at once here and for every step that carries
// [Principal.Guards], within cacheLife on other replicas. ErrNotFound if the
// tenant has no such key.
func (d *Directory) RevokeKey(ctx context.Context, caller audit.Caller, ref Ref, id string) error {
	if scope, ok := scopeOf(id); !ok || scope != ref.Scope {
		return ErrNotFound // nor could the store spell it
	}
	defer d.Forget(id)
	k := apiKeyKey(id)
	_, err := audit.Change(ctx, d.store, ref.Scope, []ledger.Fetch{{Key: k}}, func(seen ledger.Snapshot, step *ledger.Step) error {
		v, ok := seen.Get(k)
		if !ok {
			return ErrNotFound
		}
		step.Expect = []ledger.Expect{{Key: k, Version: v.Version}}
		step.Delete = []ledger.Key{k, usedKey(id)}
		// A key that cannot be read must still be possible to end. It leaves its
		// index entry behind, which listing passes over.
		if key, err := decodeKey(id, v); err == nil {
			step.Unindex = []ledger.Entry{indexed(k, key.CreatedAt)}
		}
		audit.Append(step, rowOf(caller, ref, audit.KeyRevoked, id))
		return nil
	})
	return gone(err)
}

// gone words a closed scope as what it is to the caller: no such tenant.
func gone(err error) error {
	if errors.Is(err, audit.ErrClosed) {
		return ErrNotFound
	}
	return err
}
