package redisstore

import (
	"encoding/binary"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// headSize is what stands in front of a value's data: the version (zero for a
// counter) and the expiry in milliseconds, zero for none, 8 bytes each.
const headSize = 16

// decodeValue splits a stored string. A counter, which has no version, reads as
// its decimal digits. The script has judged the expiry already, by the server's
// clock.
func decodeValue(raw string) (ledger.Value, error) {
	if len(raw) < headSize {
		return ledger.Value{}, ledger.ErrCorrupt
	}
	v := ledger.Value{Version: ledger.Version([]byte(raw[:8]))}
	data := raw[headSize:]
	if v.Version != (ledger.Version{}) {
		v.Data = []byte(data)
		return v, nil
	}
	if len(data) != 8 {
		return ledger.Value{}, ledger.ErrCorrupt
	}
	v.Data = strconv.AppendInt(nil, decodeCounter(data), 10)
	return v, nil
}

// decodeCounter reads 8 bytes.
func decodeCounter(b string) int64 { return int64(binary.BigEndian.Uint64([]byte(b))) }

// millis is a time in the unit of the store, rounded down; zero stays zero.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// ceilMillis rounds up, for bounds on times that are whole milliseconds.
func ceilMillis(t time.Time) int64 {
	return t.Add(time.Millisecond - time.Nanosecond).UnixMilli()
}
