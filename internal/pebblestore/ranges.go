package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

// span is a range of keys and the direction it is read in.
type span struct {
	lower, upper []byte
	newest       bool
	limit        int
}

// timeSpan is the part of a prefix, whose keys go on with a time, from one time
// to before another; the zero time is no bound.
func timeSpan(prefix []byte, from, to time.Time, newest bool, limit int) span {
	r := span{lower: prefix, upper: prefixEnd(prefix), newest: newest, limit: limit}
	if !from.IsZero() {
		r.lower = appendMillis(bytes.Clone(prefix), ceilMillis(from))
	}
	if !to.IsZero() {
		r.upper = appendMillis(bytes.Clone(prefix), ceilMillis(to))
	}
	return r
}

// behind narrows the span to what comes behind a key in its direction.
func (r *span) behind(key []byte) {
	if r.newest {
		if bytes.Compare(key, r.upper) < 0 {
			r.upper = key
		}
		return
	}
	if next := after(key); bytes.Compare(next, r.lower) > 0 {
		r.lower = next
	}
}

// list reads a span of one scope, as it was at one instant, once that is
// durable. One turns a key and its value, which are the engine's, into an item.
func list[T any](
	ctx context.Context, s *Store, scope ledger.Scope, r span, one func(key, value []byte) (T, error),
) ([]T, error) {
	return callLater(ctx, s, scope, func(g *group) (func(error) ([]T, error), error) {
		if bytes.Compare(r.lower, r.upper) >= 0 {
			return func(durable error) ([]T, error) { return nil, durable }, nil
		}
		if err := g.append(); err != nil {
			return nil, err
		}
		// An iterator shows the store as it is when it is made.
		iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: r.lower, UpperBound: r.upper})
		if err != nil {
			return nil, readError("read range", err)
		}
		return func(durable error) ([]T, error) {
			if durable != nil {
				return nil, errors.Join(durable, iter.Close())
			}
			return collect(iter, r, one)
		}, nil
	})
}

// collect reads a span to its end or limit and closes the iterator.
func collect[T any](iter *pebble.Iterator, r span, one func(key, value []byte) (T, error)) ([]T, error) {
	first, next := iter.First, iter.Next
	if r.newest {
		first, next = iter.Last, iter.Prev
	}
	var items []T
	for ok := first(); ok && len(items) < r.limit; ok = next() {
		value, err := iter.ValueAndErr()
		if err != nil {
			return nil, errors.Join(readError("read range", err), iter.Close())
		}
		item, err := one(iter.Key(), value)
		if err != nil {
			return nil, errors.Join(err, iter.Close())
		}
		items = append(items, item)
	}
	if err := iter.Close(); err != nil {
		return nil, readError("read range", err)
	}
	return items, nil
}

// Entries lists an index; see [ledger.EntryRange].
func (s *Store) Entries(ctx context.Context, scope ledger.Scope, er ledger.EntryRange) ([]ledger.Entry, error) {
	if er.Limit <= 0 {
		return nil, fmt.Errorf("list entries: %w", errLimit)
	}
	prefix := indexPrefix(scope, er.Index)
	r := timeSpan(prefix, er.From, er.To, er.Newest, er.Limit)
	if er.After != nil {
		r.behind(indexKey(scope, er.Index, er.After.Score.UnixMilli(), er.After.Member))
	}
	return list(ctx, s, scope, r, func(key, _ []byte) (ledger.Entry, error) {
		tail := key[len(prefix):]
		if len(tail) < 8 {
			return ledger.Entry{}, fmt.Errorf("list entries: %w", ledger.ErrCorrupt)
		}
		score, _ := decodeMillis(tail[:8])
		return ledger.Entry{Index: er.Index, Score: fromMillis(score), Member: string(tail[8:])}, nil
	})
}

// Rows lists audit rows; see [ledger.RowRange].
func (s *Store) Rows(ctx context.Context, scope ledger.Scope, rr ledger.RowRange) ([]ledger.Row, error) {
	if rr.Limit <= 0 {
		return nil, fmt.Errorf("list rows: %w", errLimit)
	}
	r := timeSpan(rowPrefix(scope), rr.From, rr.To, rr.Newest, rr.Limit)
	if rr.After != "" {
		key, ok := cursorKey(scope, rr.After)
		if !ok {
			return nil, errors.New("list rows: the cursor is not one of this store")
		}
		r.behind(key)
	}
	return list(ctx, s, scope, r, func(key, value []byte) (ledger.Row, error) {
		if len(key) != scopeLength+16 {
			return ledger.Row{}, fmt.Errorf("list rows: %w", ledger.ErrCorrupt)
		}
		at, _ := decodeMillis(key[scopeLength : scopeLength+8])
		return ledger.Row{Cursor: rowCursor(key), At: fromMillis(at), Data: append([]byte{}, value...)}, nil
	})
}

// trimChunk bounds how long a trim keeps the scope's steps waiting.
const trimChunk = 512

// Trim removes the entries of an index with a score before a time. It goes by
// chunks, so a trim that is cut short has removed the lowest entries; it may be
// repeated.
func (s *Store) Trim(ctx context.Context, scope ledger.Scope, index ledger.Index, before time.Time) error {
	prefix := indexPrefix(scope, index)
	r := span{lower: prefix, upper: appendMillis(bytes.Clone(prefix), ceilMillis(before)), limit: trimChunk}
	for {
		n, err := call(ctx, s, scope, func(g *group) (int, error) { return g.trim(r) })
		if err != nil {
			return fmt.Errorf("trim index: %w", err)
		}
		if n < trimChunk {
			return nil
		}
	}
}

func (g *group) trim(r span) (int, error) {
	if err := g.append(); err != nil {
		return 0, err
	}
	db := g.store.db
	iter, err := db.NewIter(&pebble.IterOptions{LowerBound: r.lower, UpperBound: r.upper})
	if err != nil {
		return 0, readError("read range", err)
	}
	keys, err := collect(iter, r, func(key, _ []byte) ([]byte, error) { return bytes.Clone(key), nil })
	if err != nil || len(keys) == 0 {
		return 0, err
	}
	b := db.NewBatch()
	for _, key := range keys {
		if err := b.Delete(key, nil); err != nil {
			return 0, errors.Join(err, b.Close())
		}
	}
	g.batch, g.now = b, g.store.clock.now().UnixMilli()
	return len(keys), nil
}
