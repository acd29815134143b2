package pebblestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

// TrimRows removes the rows of a scope up to and including a cursor. However
// many they are, it is one range tombstone, so it holds up no step of the scope.
func (s *Store) TrimRows(ctx context.Context, scope ledger.Scope, upTo string) error {
	last, ok := cursorKey(scope, upTo)
	if !ok {
		return errors.New("trim rows: the cursor is not one of this store")
	}
	_, err := call(ctx, s, scope, func(g *group) (struct{}, error) { return struct{}{}, g.trimRows(scope, last) })
	if err != nil {
		return fmt.Errorf("trim rows: %w", err)
	}
	return nil
}

func (g *group) trimRows(scope ledger.Scope, last []byte) error {
	if err := g.append(); err != nil {
		return err
	}
	db := g.store.db
	r := span{lower: rowPrefix(scope), upper: after(last), newest: true, limit: 1}
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: r.lower, UpperBound: r.upper})
	if err != nil {
		return readError("read newest row", err)
	}
	// The cursor need not be that of a row, so the row's own sequence is kept.
	newest, err := collect(iter, r, func(key, _ []byte) ([]byte, error) {
		if len(key) != scopeLength+16 {
			return nil, ledger.ErrCorrupt
		}
		return append([]byte{}, key[scopeLength+8:]...), nil
	})
	if err != nil || len(newest) == 0 {
		return err
	}
	b := db.NewBatch()
	if err := errors.Join(b.DeleteRange(r.lower, r.upper, nil), b.Set(trimmedKey(scope), newest[0], nil)); err != nil {
		return errors.Join(err, b.Close())
	}
	g.batch, g.now = b, g.store.clock.now().UnixMilli()
	return nil
}

// trimmed is the sequence of the newest row that was trimmed, 0 if none was.
func (s *Store) trimmed(scope ledger.Scope) (seq uint64, err error) {
	_, err = view(s.db, trimmedKey(scope), func(raw []byte) error {
		if len(raw) != 8 {
			return ledger.ErrCorrupt
		}
		seq = binary.BigEndian.Uint64(raw)
		return nil
	})
	return seq, err
}
