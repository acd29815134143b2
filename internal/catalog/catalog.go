// Package catalog keeps connector manifests in the ledger's platform scope, so
// that every replica and every later release can read back the exact bytes a
// write was claimed with, whatever became of the file they came from.
//
// It owns where manifests lie; what they mean is the business of connectors,
// whose [connectors.Keeper] it is.
package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
)

// Catalog is a Keeper over a ledger. It may be used from many goroutines.
type Catalog struct{ store ledger.Store }

var _ connectors.Keeper = (*Catalog)(nil)

// New returns the catalog of a store.
func New(store ledger.Store) *Catalog { return &Catalog{store: store} }

// A manifest lies under its sum; a pin points to the sum saved last.
func sumKey(sum connectors.Sum) ledger.Key {
	return ledger.Key{Kind: ledger.Manifest, ID: "sum/" + string(sum[:])}
}

func pinKey(pin string) ledger.Key {
	return ledger.Key{Kind: ledger.Manifest, ID: "pin/" + pin}
}

// Save keeps a manifest under its sum, for good, and as the latest of its pin.
// What is kept already is left alone, without a row.
func (c *Catalog) Save(ctx context.Context, pin string, sum connectors.Sum, manifest []byte) error {
	bySum, byPin := sumKey(sum), pinKey(pin)
	fetch := []ledger.Fetch{{Key: bySum}, {Key: byPin}}
	_, err := audit.Change(ctx, c.store, ledger.Platform, fetch, func(seen ledger.Snapshot, step *ledger.Step) error {
		kept, known := seen.Get(bySum)
		latest, pinned := seen.Get(byPin)
		if known && sha256.Sum256(kept.Data) != sum {
			return fmt.Errorf("kept manifest is damaged: %w", ledger.ErrCorrupt)
		}
		if !known {
			step.Put = append(step.Put, ledger.Put{Key: bySum, Data: manifest})
		}
		if !pinned || !bytes.Equal(latest.Data, sum[:]) {
			step.Put = append(step.Put, ledger.Put{Key: byPin, Data: sum[:]})
		}
		if len(step.Put) == 0 {
			return nil
		}
		step.Expect = []ledger.Expect{{Key: bySum, Version: kept.Version}, {Key: byPin, Version: latest.Version}}
		row := audit.Caller{Actor: audit.System(), Front: "registry"}.Row(audit.ConnectorRegistered)
		row.Subject = pin
		audit.Append(step, row)
		return nil
	})
	if err != nil {
		return fmt.Errorf("keep manifest: %w", err)
	}
	return nil
}

// Load returns the manifest kept under sum, or [connectors.ErrNotKept].
func (c *Catalog) Load(ctx context.Context, sum connectors.Sum) ([]byte, error) {
	return c.read(ctx, sumKey(sum))
}

// Latest returns the manifest saved last under pin, or [connectors.ErrNotKept].
func (c *Catalog) Latest(ctx context.Context, pin string) ([]byte, error) {
	sum, err := c.read(ctx, pinKey(pin))
	if err != nil {
		return nil, err
	}
	if len(sum) != len(connectors.Sum{}) {
		return nil, fmt.Errorf("read latest manifest: %w", ledger.ErrCorrupt)
	}
	return c.Load(ctx, connectors.Sum(sum))
}

func (c *Catalog) read(ctx context.Context, key ledger.Key) ([]byte, error) {
	snap, err := c.store.Read(ctx, ledger.Platform, ledger.Fetch{Key: key})
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	v, ok := snap.Get(key)
	if !ok {
		return nil, connectors.ErrNotKept
	}
	return v.Data, nil
}
