package connections

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/strictjson"
)

// Credentials that were replaced are kept for a while, sealed, so that a
// rotation that went wrong can be undone although nobody has the old ones at
// hand. They stand beside the connection and not in it: the path of `do` remembers
// connections, and needs none of them.

// MaxKept is how many replaced versions of its credentials a connection keeps.
const MaxKept = 4

// Kept is a replaced version of a connection's credentials, as it may be shown.
type Kept struct {
	Version     int64
	Names       []string
	Fingerprint string
	At          time.Time // when they were given
}

// kept is the stored list, the highest version first.
type kept struct {
	list    []keptVersion
	version ledger.Version // of the list
	changed bool
}

type keptVersion struct {
	Version     int64    `json:"version"`
	Names       []string `json:"names"`
	Fingerprint string   `json:"fingerprint"`
	At          int64    `json:"at"`
	Sealed      []byte   `json:"sealed"`
}

type storedKept struct {
	V    int           `json:"v"`
	Kept []keptVersion `json:"kept"`
}

// keptSuffix follows the name of a connection where its replaced credentials
// stand. No name holds a slash.
const keptSuffix = "/kept"

func keptKey(name string) ledger.Key {
	return ledger.Key{Kind: ledger.Connection, ID: name + keptSuffix}
}

// keptEntry lets whoever clears a scope find them, as it finds connections.
func keptEntry(c *Connection) ledger.Entry {
	return ledger.Entry{Index: ledger.ByName, Score: c.CreatedAt, Member: memberPrefix + c.Name + keptSuffix}
}

func keptIn(snap ledger.Snapshot, name string) (*kept, error) {
	v, ok := snap.Get(keptKey(name))
	if !ok {
		return &kept{}, nil
	}
	var s storedKept
	if err := strictjson.Unmarshal(v.Data, &s); err != nil || s.V != storedVersion {
		return nil, ErrUnreadable // the cause would quote member names
	}
	return &kept{list: s.Kept, version: v.Version}, nil
}

// next is the number of credentials that replace c's.
func (k *kept) next(c *Connection) int64 {
	n := c.CredentialVersion
	for _, v := range k.list {
		n = max(n, v.Version)
	}
	return n + 1
}

// add keeps the credentials that c had.
func (k *kept) add(c *Connection) {
	k.list = append(k.list, keptVersion{
		Version: c.CredentialVersion, Names: c.CredentialNames, Fingerprint: c.Fingerprint,
		At: c.CredentialsAt.UnixMilli(), Sealed: c.sealed,
	})
	slices.SortFunc(k.list, func(a, b keptVersion) int { return int(b.Version - a.Version) })
	k.list = k.list[:min(len(k.list), MaxKept)]
	k.changed = true
}

// restore gives c the credentials of a kept version, which is kept no longer.
func (k *kept) restore(c *Connection, version int64) error {
	i := slices.IndexFunc(k.list, func(v keptVersion) bool { return v.Version == version })
	if i < 0 {
		return bad("/credential_version", "this version is not kept (any more); GET the connection lists those that are")
	}
	v := k.list[i]
	c.CredentialVersion, c.CredentialNames, c.Fingerprint, c.sealed = v.Version, v.Names, v.Fingerprint, v.Sealed
	c.CredentialsAt = time.UnixMilli(v.At).UTC()
	k.list = slices.Delete(k.list, i, i+1)
	k.changed = true
	return nil
}

// save adds the list to a step, if it was changed.
func (k *kept) save(step *ledger.Step, c *Connection) error {
	if !k.changed {
		return nil
	}
	data, err := json.Marshal(storedKept{V: storedVersion, Kept: k.list})
	if err != nil {
		return fmt.Errorf("encode kept credentials: %w", err)
	}
	key := keptKey(c.Name)
	step.Expect = append(step.Expect, ledger.Expect{Key: key, Version: k.version})
	step.Put = append(step.Put, ledger.Put{Key: key, Data: data})
	if k.version == (ledger.Version{}) {
		step.Index = append(step.Index, keptEntry(c))
	}
	return nil
}

// forget adds to a step that nothing is kept any more.
func (k *kept) forget(step *ledger.Step, c *Connection) {
	if k.version == (ledger.Version{}) {
		return
	}
	step.Expect = append(step.Expect, ledger.Expect{Key: keptKey(c.Name), Version: k.version})
	step.Delete = append(step.Delete, keptKey(c.Name))
	step.Unindex = append(step.Unindex, keptEntry(c))
}

// Kept lists the replaced credentials of a connection that it can go back to,
// the newest first. The error wraps ErrUnreadable or one of the store's.
func (b *Book) Kept(ctx context.Context, conn Connection) ([]Kept, error) {
	snap, err := b.store.Read(ctx, conn.scope, ledger.Fetch{Key: keptKey(conn.Name)})
	if err != nil {
		return nil, fmt.Errorf("read kept credentials: %w", err)
	}
	k, err := keptIn(snap, conn.Name)
	if err != nil {
		return nil, err
	}
	out := make([]Kept, 0, len(k.list))
	for _, v := range k.list {
		out = append(out, Kept{Version: v.Version, Names: v.Names, Fingerprint: v.Fingerprint, At: time.UnixMilli(v.At).UTC()})
	}
	return out, nil
}

// Resealed is what a Reseal came to.
type Resealed struct {
	Connections int      // whose credentials are sealed under the first key now and were not before
	Failed      []string // names of connections some of whose credentials no key opens
}

// Reseal seals the credentials of a scope's connections, kept ones included,
// under the first secret key, so that the others can be let go. It may run while
// the gateway serves. Credentials that no key opens are left as they are. After
// an error it can be repeated.
func (b *Book) Reseal(ctx context.Context, caller audit.Caller, scope ledger.Scope) (Resealed, error) {
	var out Resealed
	cursor := ""
	for {
		page, next, err := b.List(ctx, scope, cursor, batch)
		if err != nil {
			return out, err
		}
		for _, c := range page {
			done, whole, err := b.resealOne(ctx, caller, scope, c.Name)
			if err != nil {
				return out, err
			}
			if done {
				out.Connections++
			}
			if !whole {
				out.Failed = append(out.Failed, c.Name)
			}
		}
		if next == "" {
			return out, nil
		}
		cursor = next
	}
}

func (b *Book) resealOne(ctx context.Context, caller audit.Caller, scope ledger.Scope, name string) (done, whole bool, err error) {
	step, err := audit.Change(ctx, b.store, scope, []ledger.Fetch{{Key: keyOf(name)}, {Key: keptKey(name)}, {Key: tokenKey(name)}},
		func(seen ledger.Snapshot, step *ledger.Step) error {
			whole = true
			if _, there := seen.Get(keyOf(name)); !there {
				return nil // deleted since it was listed
			}
			c, err := find(seen, scope, name)
			if err != nil {
				return err
			}
			past, err := keptIn(seen, name)
			if err != nil {
				return err
			}
			next := *c
			changed := b.refresh(&next, &next.sealed, &next.Fingerprint, &whole)
			for i := range past.list {
				v := &past.list[i]
				past.changed = b.refresh(c, &v.Sealed, &v.Fingerprint, &whole) || past.changed
			}
			token, err := b.refreshToken(seen, c)
			if err != nil {
				return err
			}
			if !changed && !past.changed && token == nil {
				return nil
			}
			row := rowOf(caller, audit.ConnectionUpdated, c)
			row.Changed = []string{"sealing"}
			audit.Append(step, row)
			expect(step, c)
			if err := put(step, &next); err != nil {
				return err
			}
			if token != nil {
				step.Expect = append(step.Expect, ledger.Expect{Key: token.Key, Version: seen.Values[token.Key].Version})
				step.Put = append(step.Put, *token)
			}
			return past.save(step, c)
		})
	return len(step.Put) > 0, whole, err
}

// refresh seals one value anew if it is outdated. What no key opens stays, and
// whole says so.
func (b *Book) refresh(c *Connection, sealed *[]byte, fingerprint *string, whole *bool) bool {
	plain, err := b.sealer.Open(*sealed, boundTo(c)...)
	if err != nil {
		*whole = false
		return false
	}
	if !b.sealer.Outdated(*sealed) {
		return false
	}
	*sealed = b.sealer.Seal(plain, boundTo(c)...)
	*fingerprint = b.fingerprint(c, plain)
	return true
}
