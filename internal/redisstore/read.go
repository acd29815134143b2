package redisstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
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
	c := &scriptCall{}
	c.key(ks.rows())
	c.arg(s.shift().Milliseconds(), ks.values())
	c.fetches(ks, fetch)
	started := s.clock.boot()
	reply, err := s.run(ctx, s.scripts.read, c.keys, c.args)
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
	reply, err := s.run(ctx, s.scripts.entries, []string{keysOf(scope).index(r.Index)}, args)
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
	pairs, ok := reply.([]any)
	if !ok || len(pairs)%2 != 0 {
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

// Rows lists a range of a scope's audit rows.
func (s *Store) Rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) ([]ledger.Row, error) {
	rows, err := s.rows(ctx, scope, r)
	if err != nil {
		return nil, fmt.Errorf("list rows: %w", err)
	}
	return rows, nil
}

func (s *Store) rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) ([]ledger.Row, error) {
	if r.Limit <= 0 {
		return nil, errBadLimit
	}
	first, last, err := rowBounds(r)
	if err != nil {
		return nil, err
	}
	name, from, to := "xrange", first, last
	if r.Newest {
		name, from, to = "xrevrange", last, first
	}
	reply, err := s.run(ctx, s.scripts.rows, []string{keysOf(scope).rows()}, []any{name, from, to, r.Limit})
	if err != nil {
		return nil, err
	}
	return decodeRows(reply)
}

// rowBounds returns the lower and the upper bound as stream ids; "(" excludes.
func rowBounds(r ledger.RowRange) (first, last string, err error) {
	low, high := rowID{}, rowID{ms: math.MaxUint64, seq: math.MaxUint64}
	first, last = "-", "+"
	if !r.From.IsZero() {
		low.ms = uint64(max(0, ceilMillis(r.From)))
		first = low.String()
	}
	if !r.To.IsZero() {
		high = rowID{ms: uint64(max(0, ceilMillis(r.To)))}
		last = "(" + high.String()
	}
	if r.After == "" {
		return first, last, nil
	}
	after, ok := parseCursor(r.After)
	switch {
	case !ok:
		return "", "", errBadCursor
	case r.Newest && after.less(high):
		last = "(" + after.String()
	case !r.Newest && !after.less(low):
		first = "(" + after.String()
	}
	return first, last, nil
}

func decodeRows(reply any) ([]ledger.Row, error) {
	list, ok := reply.([]any)
	if !ok {
		return nil, malformed()
	}
	out := make([]ledger.Row, 0, len(list))
	for _, item := range list {
		row, err := decodeRow(item)
		if err != nil {
			return nil, err
		}
		out = append(out, row)
	}
	return out, nil
}

func decodeRow(item any) (ledger.Row, error) {
	pair, ok := item.([]any)
	if !ok || len(pair) != 2 {
		return ledger.Row{}, malformed()
	}
	name, ok1 := pair[0].(string)
	fields, ok2 := pair[1].([]any)
	if !ok1 || !ok2 {
		return ledger.Row{}, malformed()
	}
	id, ok := parseRowID(name)
	if !ok || len(fields) != 2 || fields[0] != "d" {
		return ledger.Row{}, ledger.ErrCorrupt
	}
	data, ok := fields[1].(string)
	if !ok {
		return ledger.Row{}, malformed()
	}
	return ledger.Row{Cursor: id.cursor(), At: time.UnixMilli(int64(id.ms)), Data: []byte(data)}, nil
}

// rowID is a stream id: the time of the row in milliseconds and its place
// within that millisecond.
type rowID struct{ ms, seq uint64 }

func (i rowID) String() string {
	return strconv.FormatUint(i.ms, 10) + "-" + strconv.FormatUint(i.seq, 10)
}

func (i rowID) less(j rowID) bool { return i.ms < j.ms || i.ms == j.ms && i.seq < j.seq }

// cursor is the id in a fixed width, so that bytes sort as rows do.
func (i rowID) cursor() string { return fmt.Sprintf("%016x-%016x", i.ms, i.seq) }

func parseRowID(s string) (rowID, bool) { return parseID(s, 10) }

// parseCursor accepts only what cursor writes.
func parseCursor(s string) (rowID, bool) {
	id, ok := parseID(s, 16)
	return id, ok && id.ms <= math.MaxInt64 && id.cursor() == s
}

func parseID(s string, base int) (rowID, bool) {
	ms, seq, found := strings.Cut(s, "-")
	m, err1 := strconv.ParseUint(ms, base, 64)
	n, err2 := strconv.ParseUint(seq, base, 64)
	return rowID{m, n}, found && err1 == nil && err2 == nil
}
