package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// Read returns the values named by the fetches, and what they point to, as of
// one instant.
func (s *Store) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	snap, err := s.read(ctx, scope, fetch)
	if err != nil {
		return ledger.Snapshot{}, fmt.Errorf("read values: %w", err)
	}
	return snap, nil
}

func (s *Store) read(ctx context.Context, scope ledger.Scope, fetch []ledger.Fetch) (ledger.Snapshot, error) {
	if err := checkFetch(fetch); err != nil {
		return ledger.Snapshot{}, err
	}
	ks := keysOf(scope)
	started := s.clock.boot()
	reply, err := s.run(ctx, s.scripts.read, encodeRead(ks, fetch, s.shift()))
	if err != nil {
		return ledger.Snapshot{}, err
	}
	snap, err := decodeSnapshot(ks, reply)
	if err != nil {
		return ledger.Snapshot{}, err
	}
	s.clock.learn(started, snap.Now)
	return snap, nil
}

// Entries lists a range of an index.
func (s *Store) Entries(ctx context.Context, scope ledger.Scope, r ledger.EntryRange) ([]ledger.Entry, error) {
	entries, err := s.entries(ctx, scope, r)
	if err != nil {
		return nil, fmt.Errorf("list entries: %w", err)
	}
	return entries, nil
}

func (s *Store) entries(ctx context.Context, scope ledger.Scope, r ledger.EntryRange) ([]ledger.Entry, error) {
	if r.Limit <= 0 {
		return nil, errBadLimit
	}
	args := []any{score(r.From, "-inf"), score(r.To, "+inf"), r.Limit, flag(r.Newest), flag(r.After != nil)}
	if r.After != nil {
		args = append(args, r.After.Score.UnixMilli(), r.After.Member)
	}
	reply, err := s.run(ctx, s.scripts.entries, newCall([]string{keysOf(scope).index(r.Index)}, args...))
	if err != nil {
		return nil, err
	}
	out, err := decodeEntries(r.Index, reply)
	if r.Newest {
		slices.Reverse(out)
	}
	return out, err
}

// score is a bound of an index: scores are whole milliseconds, so a bound
// between two of them is the later one.
func score(t time.Time, unbounded string) string {
	if t.IsZero() {
		return unbounded
	}
	return strconv.FormatInt(ceilMillis(t), 10)
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func decodeEntries(index ledger.Index, reply any) ([]ledger.Entry, error) {
	pairs, err := decodeList(reply)
	if err != nil || len(pairs)%2 != 0 {
		return nil, malformed()
	}
	out := make([]ledger.Entry, 0, len(pairs)/2)
	for ; len(pairs) > 0; pairs = pairs[2:] {
		member, ok1 := pairs[0].(string)
		digits, ok2 := pairs[1].(string)
		if !ok1 || !ok2 {
			return nil, malformed()
		}
		ms, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return nil, ledger.ErrCorrupt
		}
		out = append(out, ledger.Entry{Index: index, Score: time.UnixMilli(ms), Member: member})
	}
	return out, nil
}

// Trim removes the entries of an index with a score before the given time.
func (s *Store) Trim(ctx context.Context, scope ledger.Scope, index ledger.Index, before time.Time) error {
	bound := "(" + strconv.FormatInt(ceilMillis(before), 10)
	reply, err := s.command(ctx, "zremrangebyscore", keysOf(scope).index(index), "-inf", bound)
	if err == nil {
		if _, ok := reply.(int64); !ok {
			err = malformed()
		}
	}
	if err != nil {
		return fmt.Errorf("trim index: %w", err)
	}
	return nil
}
