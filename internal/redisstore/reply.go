package redisstore

import (
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// decodeResult reads the reply of scripts/apply.lua. Fresh says that its time
// is that of this very run, not of an earlier one.
func decodeResult(ks keyspace, reply any) (res ledger.Result, fresh bool, err error) {
	text, ok := reply.(string)
	if !ok {
		res.Snapshot, err = decodeSnapshot(ks, reply)
		return res, err == nil, err
	}
	if len(text) < 9 {
		return res, false, malformed()
	}
	mark := text[0]
	res.Now = decodeTime(text[1:9])
	switch {
	case mark == 'A' || mark == 'R':
		res.Applied = true
		res.Counters, err = decodeCounters(text[9:])
		return res, mark == 'A', err
	case mark == 'V' && len(text) == 9:
		res.Voided = true
		return res, true, nil
	default:
		return res, false, malformed()
	}
}

// decodeList is what a list brings that has its echo in front.
func decodeList(reply any) ([]any, error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 || parts[0] != "" {
		return nil, malformed()
	}
	list, ok := parts[1].([]any)
	if !ok {
		return nil, malformed()
	}
	return list, nil
}

// decodeSnapshot reads the reply of scripts/read.lua.
func decodeSnapshot(ks keyspace, reply any) (snap ledger.Snapshot, err error) {
	parts, ok := reply.([]any)
	if !ok || len(parts) != 2 {
		return snap, malformed()
	}
	now, ok := parts[0].(string)
	if !ok || len(now) != 8 {
		return snap, malformed()
	}
	snap.Now = decodeTime(now)
	snap.Values, err = decodeValues(ks, parts[1])
	return snap, err
}

func decodeTime(b string) time.Time { return time.UnixMilli(decodeCounter(b)) }

func decodeCounters(b string) ([]int64, error) {
	if len(b)%8 != 0 {
		return nil, malformed()
	}
	var out []int64
	for ; b != ""; b = b[8:] {
		out = append(out, decodeCounter(b[:8]))
	}
	return out, nil
}

func decodeValues(ks keyspace, reply any) (map[ledger.Key]ledger.Value, error) {
	pairs, ok := reply.([]any)
	if !ok || len(pairs)%2 != 0 {
		return nil, malformed()
	}
	out := make(map[ledger.Key]ledger.Value, len(pairs)/2)
	for ; len(pairs) > 0; pairs = pairs[2:] {
		name, ok1 := pairs[0].(string)
		raw, ok2 := pairs[1].(string)
		if !ok1 || !ok2 {
			return nil, malformed()
		}
		k, ok := ks.parse(name)
		if !ok {
			return nil, malformed()
		}
		v, err := decodeValue(raw)
		if err != nil {
			return nil, err
		}
		out[k] = v
	}
	return out, nil
}
