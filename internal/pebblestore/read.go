package pebblestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

// Read returns the values that exist at one instant. The instant is fixed under
// the scope's stripe; the values are read after it, and told once all of them
// are durable.
func (s *Store) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	if err := checkFetch(fetch); err != nil {
		return ledger.Snapshot{}, fmt.Errorf("read values: %w", err)
	}
	return callLater(ctx, s, scope, func(g *group) (func(error) (ledger.Snapshot, error), error) {
		if err := g.append(); err != nil {
			return nil, err
		}
		now, at := s.clock.now(), s.db.NewSnapshot()
		return func(durable error) (snap ledger.Snapshot, err error) {
			defer func() { err = errors.Join(err, at.Close()) }()
			if durable != nil {
				return ledger.Snapshot{}, durable
			}
			values, err := fetchValues(at, scope, fetch, now.UnixMilli())
			if err != nil {
				return ledger.Snapshot{}, err
			}
			return ledger.Snapshot{Now: now, Values: values}, nil
		}, nil
	})
}

// fetchValues reads values and what they point to.
func fetchValues(
	r pebble.Reader, scope ledger.Scope, fetch []ledger.Fetch, now int64,
) (map[ledger.Key]ledger.Value, error) {
	values := make(map[ledger.Key]ledger.Value, len(fetch))
	for _, f := range fetch {
		if err := fetchValue(r, scope, f.Key, now, values); err != nil {
			return nil, err
		}
		if len(f.Follow) == 0 {
			continue
		}
		for _, id := range splitIDs(values[f.Key].Data) {
			for _, kind := range f.Follow {
				if err := fetchValue(r, scope, ledger.Key{Kind: kind, ID: id}, now, values); err != nil {
					return nil, err
				}
			}
		}
	}
	return values, nil
}

func fetchValue(
	r pebble.Reader, scope ledger.Scope, k ledger.Key, now int64, into map[ledger.Key]ledger.Value,
) error {
	if _, read := into[k]; read {
		return nil
	}
	_, err := view(r, valueKey(scope, k), func(raw []byte) error {
		e, err := decodeEnvelope(raw)
		if err == nil && e.lives(now) {
			into[k] = e.value()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("read value: %w", err)
	}
	return nil
}

// splitIDs splits data into ids of 16 bytes; data that is no sequence of them
// has none.
func splitIDs(data []byte) []string {
	const size = 16
	if len(data)%size != 0 {
		return nil
	}
	ids := make([]string, 0, len(data)/size)
	for i := 0; i < len(data); i += size {
		ids = append(ids, string(data[i:i+size]))
	}
	return ids
}

// view shows the bytes under a key, which are the engine's and end with see.
func view(r pebble.Reader, key []byte, see func(raw []byte) error) (bool, error) {
	raw, closer, err := r.Get(key)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return false, nil
	case err != nil:
		return false, readError("read store", err)
	}
	return true, errors.Join(see(raw), closer.Close())
}

// getRaw returns a copy of the bytes under a key.
func (s *Store) getRaw(key []byte) (value []byte, ok bool, err error) {
	ok, err = view(s.db, key, func(raw []byte) error {
		value = append([]byte{}, raw...)
		return nil
	})
	return value, ok, err
}
