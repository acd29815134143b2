package archive

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"holdfast.dev/gateway/internal/ledger"
)

// Storage keeps objects: a folder, a bucket. Names are made here and contain
// only lower-case letters, digits, '.', '-' and '/'. Objects are at most a few
// megabytes. A Storage may be called from many goroutines.
//
// A Put that returns nil promises nothing yet: the sealer reads back what it put
// before anything is built on it.
type Storage interface {
	Put(ctx context.Context, name string, data []byte) error
	// Get returns the whole object, or an error that wraps ErrNoObject.
	Get(ctx context.Context, name string) ([]byte, error)
	// Delete removes an object; one that is not there is no error.
	Delete(ctx context.Context, name string) error
	// List returns up to limit names with the prefix, in the order of their bytes.
	List(ctx context.Context, prefix string, limit int) ([]string, error)
}

// ErrNoObject means there is no object of that name.
var ErrNoObject = errors.New("no such object")

// names of objects: all of a scope under one prefix, in the order of their
// segments, and never two contents under one name.

func scopePrefix(scope ledger.Scope) string { return ScopeID(scope).String() + "/" }

func numberPrefix(scope ledger.Scope, number uint64) string {
	return fmt.Sprintf("%s%016d", scopePrefix(scope), number)
}

// objectName is new for each attempt: one that came to nothing may be removed
// without looking who else stored the same.
func objectName(scope ledger.Scope, number uint64, sum Hash, kind string) string {
	var attempt [4]byte
	_, _ = rand.Read(attempt[:])
	return numberPrefix(scope, number) + "-" + hex.EncodeToString(sum[:8]) + "-" + hex.EncodeToString(attempt[:]) + kind
}

const (
	segmentSuffix = ".ndjson.zst"
	termsSuffix   = ".terms"
)

// store puts an object and reads it back.
func store(ctx context.Context, to Storage, scope ledger.Scope, number uint64, kind string, data []byte) (Object, error) {
	o := Object{Size: int64(len(data)), Sum: sha256.Sum256(data)}
	o.Name = objectName(scope, number, o.Sum, kind)
	if err := to.Put(ctx, o.Name, data); err != nil {
		return o, fmt.Errorf("store in audit archive: %w", err)
	}
	if _, err := load(ctx, to, o); err != nil {
		return o, fmt.Errorf("read back what was just stored: %w", err)
	}
	return o, nil
}

// load returns an object that is what was put. The error wraps ErrDamaged if it
// is missing or another.
func load(ctx context.Context, from Storage, o Object) ([]byte, error) {
	data, err := from.Get(ctx, o.Name)
	if errors.Is(err, ErrNoObject) {
		return nil, fmt.Errorf("%w: %s is missing", ErrDamaged, o.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: read from audit archive: %w", ledger.ErrUnavailable, err)
	}
	if sha256.Sum256(data) != o.Sum {
		return nil, fmt.Errorf("%w: %s is not what was stored", ErrDamaged, o.Name)
	}
	return data, nil
}

// Nowhere is the storage of a gateway that has no archive.
type Nowhere struct{}

var errNowhere = errors.New("no audit archive is configured")

// Put fails.
func (Nowhere) Put(context.Context, string, []byte) error { return errNowhere }

// Get fails.
func (Nowhere) Get(context.Context, string) ([]byte, error) { return nil, errNowhere }

// Delete fails.
func (Nowhere) Delete(context.Context, string) error { return errNowhere }

// List fails.
func (Nowhere) List(context.Context, string, int) ([]string, error) { return nil, errNowhere }
