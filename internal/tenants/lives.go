package tenants

import (
	"context"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// A deleted tenant's rows outlive it, and the host must be able to find them
// although its id is free. So the step that frees the id notes the incarnation
// that had it.

const (
	// pastLife is how long it is remembered who had an id, counted from its last
	// deletion: longer than any row is kept.
	pastLife = 400 * 24 * time.Hour
	// maxLives bounds how many former holders of one id are remembered.
	maxLives = 64
)

// past are the former lives of an id, the last one first.
type past struct {
	V     int    `json:"v"`
	Lives []life `json:"lives"`
}

type life struct {
	Incarnation string    `json:"incarnation"`
	DeletedAt   time.Time `json:"deleted_at"`
}

// pastKey is where the platform's scope keeps the former lives of an id. The
// slash keeps it apart from ids.
func pastKey(id string) ledger.Key { return ledger.Key{Kind: ledger.Tenant, ID: id + "/past"} }

func decodePast(snap ledger.Snapshot, id string) (past, ledger.Version, error) {
	p := past{V: recordVersion}
	v, ok := snap.Get(pastKey(id))
	if !ok {
		return p, ledger.Version{}, nil
	}
	err := decode("former tenants", v.Data, &p.V, &p)
	return p, v.Version, err
}

// bury notes in a step that an id's holder is gone.
func bury(step *ledger.Step, seen ledger.Snapshot, f found) error {
	p, version, err := decodePast(seen, f.Tenant)
	if err != nil {
		return err
	}
	p.Lives = append([]life{{Incarnation: f.TenantID, DeletedAt: step.At}}, p.Lives...)
	p.Lives = p.Lives[:min(len(p.Lives), maxLives)]
	k := pastKey(f.Tenant)
	step.Expect = append(step.Expect, ledger.Expect{Key: k, Version: version})
	step.Put = append(step.Put, ledger.Put{Key: k, Data: encode(p), Expires: step.At.Add(pastLife)})
	return nil
}

// FindLife finds a tenant for the host's look at what it did, deleted ones
// included: the one that has the id or, if none has, the last one that had; with
// an incarnation exactly that one. ErrNotFound if there is none. It says nothing
// about access: a deleted tenant has none.
func (d *Directory) FindLife(ctx context.Context, id, incarnation string) (Ref, error) {
	f, err := d.find(ctx, id)
	if err != nil {
		return Ref{}, err
	}
	if (f.state == alive || f.state == closed) && (incarnation == "" || incarnation == f.TenantID) {
		return f.Ref, nil
	}
	if !idForm.MatchString(id) {
		return Ref{}, ErrNotFound // nor could the store spell it
	}
	snap, err := d.store.Read(ctx, ledger.Platform, ledger.Fetch{Key: pastKey(id)})
	if err != nil {
		return Ref{}, err
	}
	p, _, err := decodePast(snap, id)
	if err != nil {
		return Ref{}, err
	}
	for _, l := range p.Lives {
		if incarnation == "" || incarnation == l.Incarnation {
			return refOf(id, l.Incarnation), nil
		}
	}
	return Ref{}, ErrNotFound
}
