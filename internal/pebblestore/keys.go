package pebblestore

import (
	"encoding/binary"
	"encoding/hex"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// The layout of keys. Numbers are big-endian and times are in milliseconds with
// the sign bit flipped, so that bytes sort as numbers do.
//
//	00 name                                 the store's own: format, clock mark, clock pace
//	01 expiry(8) scope(16) version(8)       what of a step ends then; see note.go
//	02 scope(16) 'v' kind(1) id             envelope; see envelope.go
//	02 scope(16) 'i' index(1) score(8) member   empty; an index in its order
//	02 scope(16) 'r' at(8) seq(8)           an audit row
//	02 scope(16) 's'                        seq(8) of the newest row trimmed
//
// Ids and members come last in their keys, so they need no length and may be any
// bytes. Everything of a scope is one range. What format 1 had beside this is in
// upgrade.go.
const (
	tagStore  = 0x00
	tagExpiry = 0x01
	tagScope  = 0x02

	tagValue = 'v'
	tagIndex = 'i'
	tagRow   = 'r'
	tagSeq   = 's'
)

const (
	scopeLength = 1 + len(ledger.Scope{}) + 1 // up to and with the tag within the scope
	maxID       = 255
)

var (
	keyFormat    = []byte{tagStore, 'f'}
	keyHighWater = []byte{tagStore, 't'}
	keyPace      = []byte{tagStore, 'p'}
)

func scoped(scope ledger.Scope, tag byte, extra int) []byte {
	k := make([]byte, 0, scopeLength+extra)
	k = append(k, tagScope)
	k = append(k, scope[:]...)
	return append(k, tag)
}

func valueKey(scope ledger.Scope, k ledger.Key) []byte {
	return appendValueKey(make([]byte, 0, scopeLength+1+len(k.ID)), scope, k)
}

func appendValueKey(b []byte, scope ledger.Scope, k ledger.Key) []byte {
	b = append(append(b, tagScope), scope[:]...)
	return append(append(b, tagValue, byte(k.Kind)), k.ID...)
}

func indexPrefix(scope ledger.Scope, index ledger.Index) []byte {
	return append(scoped(scope, tagIndex, 1+8+maxID), byte(index))
}

func indexKey(scope ledger.Scope, index ledger.Index, score int64, member string) []byte {
	return append(appendMillis(indexPrefix(scope, index), score), member...)
}

func rowPrefix(scope ledger.Scope) []byte { return scoped(scope, tagRow, 16) }

func rowKey(scope ledger.Scope, at int64, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendMillis(rowPrefix(scope), at), seq)
}

// trimmedKey is where the sequence of the newest trimmed row stands, so that
// sequences go on when no row is left to tell.
func trimmedKey(scope ledger.Scope) []byte { return scoped(scope, tagSeq, 0) }

// rowCursor spells the end of a row's key, which sorts as the key does.
func rowCursor(key []byte) string { return hex.EncodeToString(key[scopeLength:]) }

// cursorKey is the row key a cursor came from, if it can be one.
func cursorKey(scope ledger.Scope, cursor string) ([]byte, bool) {
	tail, err := hex.DecodeString(cursor)
	if err != nil || len(tail) != 16 || hex.EncodeToString(tail) != cursor {
		return nil, false
	}
	return append(rowPrefix(scope), tail...), true
}

// after is the first key behind k.
func after(k []byte) []byte { return append(k[:len(k):len(k)], 0) }

// prefixEnd is the first key behind all that begin with p. No prefix here is all
// 0xff, since each begins with a tag.
func prefixEnd(p []byte) []byte {
	end := append([]byte(nil), p...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i]++; end[i] != 0 {
			return end[:i+1]
		}
	}
	return nil
}

func appendMillis(b []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(ms)^(1<<63))
}

func encodeMillis(ms int64) []byte { return appendMillis(nil, ms) }

func decodeMillis(b []byte) (int64, bool) {
	if len(b) != 8 {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(b) ^ (1 << 63)), true
}

// ceilMillis is the first whole millisecond not before t. A bound rounded up is
// exact for times that are whole milliseconds themselves.
func ceilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Nanosecond()%int(time.Millisecond) != 0 {
		ms++
	}
	return ms
}

func fromMillis(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
