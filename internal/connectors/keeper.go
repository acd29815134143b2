package connectors

import (
	"context"
	"errors"
)

// ErrNotKept means a Keeper has no such manifest.
var ErrNotKept = errors.New("manifest not kept")

// Keeper remembers manifests beyond the files they came from, so that a write
// claimed with one can be judged, checked and replayed by those same bytes
// after the file was changed, broken or removed, by any replica and any later
// release. A ledger-backed package implements it. Methods may be called from
// many goroutines.
type Keeper interface {
	// Save keeps manifest under its sum, for good, and as the latest of its pin
	// ("name@major"). It returns once that is durable. Saving again is harmless.
	Save(ctx context.Context, pin string, sum Sum, manifest []byte) error
	// Load returns the manifest kept under sum, or ErrNotKept.
	Load(ctx context.Context, sum Sum) ([]byte, error)
	// Latest returns the manifest saved last under pin, or ErrNotKept.
	Latest(ctx context.Context, pin string) ([]byte, error)
}
