package redisstore

import (
	"context"
	"fmt"
	"math"

	"holdfast.dev/gateway/internal/ledger"
)

// trimChunk bounds, roughly, how many rows one command removes while the server
// serves nobody else.
const trimChunk = 2000

// TrimRows removes the rows of a scope up to and including a cursor: whole nodes
// of the stream by chunks, then what the last node holds of them. A stream
// remembers its last id when it is empty, so later rows still come behind.
func (s *Store) TrimRows(ctx context.Context, scope ledger.Scope, upTo string) error {
	last, ok := parseCursor(upTo)
	if !ok {
		return fmt.Errorf("trim rows: %w", errBadCursor)
	}
	key, first := keysOf(scope).rows(), last.next().String()
	for {
		removed, err := s.trimStream(ctx, key, "minid", "~", first, "limit", trimChunk)
		if err == nil && removed == 0 {
			_, err = s.trimStream(ctx, key, "minid", "=", first)
		}
		if err != nil {
			return fmt.Errorf("trim rows: %w", err)
		}
		if removed == 0 {
			return nil
		}
	}
}

func (s *Store) trimStream(ctx context.Context, key string, how ...any) (int64, error) {
	reply, err := s.command(ctx, "xtrim", key, how...)
	if err != nil {
		return 0, err
	}
	n, ok := reply.(int64)
	if !ok {
		return 0, malformed()
	}
	return n, nil
}

// next is the id right behind this one.
func (i rowID) next() rowID {
	if i.seq == math.MaxUint64 {
		return rowID{ms: i.ms + 1}
	}
	return rowID{ms: i.ms, seq: i.seq + 1}
}
