package archive

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// An archive and a store belong together: a folder that is empty because it was
// not mounted, or that each replica has for itself, must not be taken for the
// archive. So the store keeps an id that is in the archive too.

// markerName is the object that holds the archive's id.
const markerName = "archive-id"

type marker struct {
	V  int    `json:"v"`
	ID string `json:"id"`
	// Made: the id was in the archive once, so an archive without it is another.
	Made bool `json:"made"`
}

func markerKey() ledger.Key { return ledger.Key{Kind: ledger.Sealing, ID: "archive"} }

// ErrForeign means the archive is not the one that the store's rows are in.
var ErrForeign = errors.New("this is not the audit archive of this store: it does not hold its id; mount or name the right one")

// recognise says whether the storage is the store's archive, and makes it so if
// the store has none yet. It returns the archive's id.
func recognise(ctx context.Context, store ledger.Store, storage Storage) (marker, error) {
	for range maxDecisions {
		snap, err := store.Read(ctx, ledger.Platform, ledger.Fetch{Key: markerKey()})
		if err != nil {
			return marker{}, fmt.Errorf("read archive's id: %w", err)
		}
		m := marker{V: recordVersion}
		v, there := snap.Get(markerKey())
		if there {
			if err := decode("archive's id", v.Data, &m.V, &m); err != nil {
				return marker{}, err
			}
		}
		if m.Made {
			return m, compareMarker(ctx, storage, m)
		}
		if there {
			if err := makeMarker(ctx, storage, m); err != nil {
				return marker{}, err
			}
			m.Made = true
		} else {
			m.ID = newMarkerID()
		}
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: snap.Now,
			Expect: []ledger.Expect{{Key: markerKey(), Version: v.Version}}, Put: []ledger.Put{{Key: markerKey(), Data: encode(m)}},
		}
		if _, err := apply(ctx, store, ledger.Platform, step); err != nil {
			return marker{}, fmt.Errorf("keep archive's id: %w", err)
		}
	}
	return marker{}, fmt.Errorf("keep archive's id: %w", ledger.ErrUnavailable)
}

// maxDecisions bounds how often one change is decided again.
const maxDecisions = 16

func newMarkerID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func makeMarker(ctx context.Context, storage Storage, m marker) error {
	if err := storage.Put(ctx, markerName, []byte(m.ID)); err != nil {
		return fmt.Errorf("store in audit archive: %w", err)
	}
	return compareMarker(ctx, storage, m)
}

func compareMarker(ctx context.Context, storage Storage, m marker) error {
	id, err := storage.Get(ctx, markerName)
	if err != nil && !errors.Is(err, ErrNoObject) {
		return fmt.Errorf("read from audit archive: %w", err)
	}
	if string(id) != m.ID {
		return ErrForeign
	}
	return nil
}

// SigningKey is a public key that checkpoints were signed with.
type SigningKey struct {
	KeyID string            `json:"key_id"`
	Key   ed25519.PublicKey `json:"public_key"`
	Since time.Time         `json:"since"` // when it was first used
}

type keyBook struct {
	V    int          `json:"v"`
	Keys []SigningKey `json:"keys"`
}

func keysKey() ledger.Key { return ledger.Key{Kind: ledger.Sealing, ID: "keys"} }

// SigningKeys lists every public key that checkpoints of this store were signed
// with, oldest first.
func SigningKeys(ctx context.Context, store ledger.Store) ([]SigningKey, error) {
	book, _, _, err := readKeys(ctx, store)
	return book.Keys, err
}

func readKeys(ctx context.Context, store ledger.Store) (keyBook, ledger.Version, time.Time, error) {
	book := keyBook{V: recordVersion}
	snap, err := store.Read(ctx, ledger.Platform, ledger.Fetch{Key: keysKey()})
	if err != nil {
		return book, ledger.Version{}, time.Time{}, fmt.Errorf("read signing keys: %w", err)
	}
	v, ok := snap.Get(keysKey())
	if ok {
		err = decode("signing keys", v.Data, &book.V, &book)
	}
	return book, v.Version, snap.Now, err
}

// announce keeps the public key before anything is signed with it.
func announce(ctx context.Context, store ledger.Store, key ed25519.PublicKey) error {
	id := KeyID(key)
	for range maxDecisions {
		book, version, now, err := readKeys(ctx, store)
		if err != nil {
			return err
		}
		for _, k := range book.Keys {
			if k.KeyID == id {
				return nil
			}
		}
		book.Keys = append(book.Keys, SigningKey{KeyID: id, Key: key, Since: now.UTC()})
		step := ledger.Step{
			Nonce: ledger.NewNonce(), At: now,
			Expect: []ledger.Expect{{Key: keysKey(), Version: version}}, Put: []ledger.Put{{Key: keysKey(), Data: encode(book)}},
		}
		if _, err := apply(ctx, store, ledger.Platform, step); err != nil {
			return fmt.Errorf("keep signing key: %w", err)
		}
	}
	return fmt.Errorf("keep signing key: %w", ledger.ErrUnavailable)
}

// apply repeats a step under its nonce while the store does not answer, so that
// it is known what became of it, within the time that a nonce is remembered.
func apply(ctx context.Context, store ledger.Store, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, ledger.NonceLife/2)
	defer cancel()
	for {
		res, err := store.Apply(ctx, scope, step)
		if !errors.Is(err, ledger.ErrUnavailable) {
			return res, err
		}
		pause := time.NewTimer(50 * time.Millisecond)
		select {
		case <-ctx.Done():
			pause.Stop()
			return res, err
		case <-pause.C:
		}
	}
}
