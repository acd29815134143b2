package tenants

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// When a key was last used is kept beside the key and not in it: a key's version
// is what claims stand on, and must not move because the key is used. It is kept
// coarsely, and written by [Directory.SaveUses] rather than by the call that
// used the key, so that it costs no call anything. It is the one value of this
// package that changes without an audit row, since each use leaves rows of its
// own.

const (
	// useGrain is how much newer a use must be than the one that is stored to be
	// written down.
	useGrain = time.Minute
	// maxUses bounds how many keys' uses wait to be written. Those of further
	// keys are written when they are used again.
	maxUses = 1 << 14
)

// use is one key's last use, as this process knows it.
type use struct {
	scope   ledger.Scope
	version ledger.Version // of the key
	at      time.Time
	saved   time.Time
}

// uses are those of this process.
type uses struct {
	mu   sync.Mutex
	byID map[string]use
}

// note remembers that a key was used.
func (u *uses) note(k *storedKey, scope ledger.Scope, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	last, known := u.byID[k.ID]
	if !known && len(u.byID) >= maxUses {
		return
	}
	last.scope, last.version = scope, k.version
	if at.After(last.at) {
		last.at = at
	}
	u.byID[k.ID] = last
}

func (u *uses) has(id string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, known := u.byID[id]
	return known
}

// due lists the uses to be written down, and forgets keys that were written and
// not used since.
func (u *uses) due(now time.Time) map[string]use {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := map[string]use{}
	for id, last := range u.byID {
		switch {
		case last.at.Sub(last.saved) >= useGrain:
			list[id] = last
		case now.Sub(last.at) >= useGrain:
			delete(u.byID, id)
		}
	}
	return list
}

func (u *uses) saved(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if last, known := u.byID[id]; known {
		last.saved = at
		u.byID[id] = last
	}
}

// usedKey is where a scope keeps when a key was last used. The slash keeps it
// apart from the ids of keys.
func usedKey(publicID string) ledger.Key {
	return ledger.Key{Kind: ledger.APIKey, ID: publicID + "/used"}
}

// usedIn reads it; the zero time if the key was never used or that cannot be
// read, which says nothing about the key.
func usedIn(snap ledger.Snapshot, publicID string) time.Time {
	v, ok := snap.Get(usedKey(publicID))
	if !ok {
		return time.Time{}
	}
	ms, err := strconv.ParseInt(string(v.Data), 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// SaveUses writes down which keys were used since the last time. It is to be
// called every now and then; what a process that dies had not written is lost.
func (d *Directory) SaveUses(ctx context.Context) error {
	var errs []error
	for id, last := range d.uses.due(d.now()) {
		if err := d.saveUse(ctx, id, last); err != nil {
			errs = append(errs, err)
			break // the store; the others would fare no better
		}
		d.uses.saved(id, last.at)
	}
	return errors.Join(errs...)
}

func (d *Directory) saveUse(ctx context.Context, id string, last use) error {
	at := d.store.Now()
	snap, err := d.store.Read(ctx, last.scope, ledger.Fetch{Key: usedKey(id)})
	if err != nil {
		return fmt.Errorf("read last use: %w", err)
	}
	if last.at.Sub(usedIn(snap, id)) < useGrain {
		return nil // another replica was faster
	}
	// A key that was revoked since must not leave this behind.
	_, err = d.store.Apply(ctx, last.scope, ledger.Step{
		Nonce: ledger.NewNonce(), At: at,
		Expect: []ledger.Expect{{Key: apiKeyKey(id), Version: last.version}},
		Put:    []ledger.Put{{Key: usedKey(id), Data: strconv.AppendInt(nil, last.at.UnixMilli(), 10)}},
	})
	if err != nil {
		return fmt.Errorf("write last use: %w", err)
	}
	return nil
}
