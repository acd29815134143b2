package redisstore

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

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
	reply, err := s.run(ctx, s.scripts.rows, newCall([]string{keysOf(scope).rows()}, name, from, to, r.Limit))
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
	list, err := decodeList(reply)
	if err != nil {
		return nil, err
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
