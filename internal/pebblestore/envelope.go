package pebblestore

import (
	"encoding/binary"
	"strconv"

	"holdfast.dev/gateway/internal/ledger"
)

// An envelope is what is stored under a value key:
//
//	01 version(8) expiry(8) data    a value
//	02 expiry(8) sum(8)             a counter
//
// Expiry is in milliseconds, zero for never. The first byte tells the two apart
// and leaves room for other forms. Damage of the disk is found by the engine's
// checksums; the checks here are for bytes that this driver never wrote.
const (
	formValue   = 0x01
	formCounter = 0x02

	valueHeader   = 1 + 8 + 8
	counterLength = 1 + 8 + 8
)

type envelope struct {
	counter bool
	version ledger.Version // zero for a counter
	expires int64
	data    []byte // of a value; shares the bytes it was decoded from
	sum     int64  // of a counter
}

func appendValue(b []byte, v ledger.Version, expires int64, data []byte) []byte {
	b = append(append(b, formValue), v[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(expires))
	return append(b, data...)
}

func appendCounter(b []byte, expires, sum int64) []byte {
	b = binary.BigEndian.AppendUint64(append(b, formCounter), uint64(expires))
	return binary.BigEndian.AppendUint64(b, uint64(sum))
}

// decodeEnvelope returns [ledger.ErrCorrupt] for anything that appendValue and
// appendCounter do not make.
func decodeEnvelope(b []byte) (envelope, error) {
	switch {
	case len(b) >= valueHeader && b[0] == formValue:
		return envelope{
			version: ledger.Version(b[1:9]),
			expires: int64(binary.BigEndian.Uint64(b[9:17])),
			data:    b[valueHeader:],
		}, nil
	case len(b) == counterLength && b[0] == formCounter:
		return envelope{
			counter: true,
			expires: int64(binary.BigEndian.Uint64(b[1:9])),
			sum:     int64(binary.BigEndian.Uint64(b[9:17])),
		}, nil
	}
	return envelope{}, ledger.ErrCorrupt
}

// standing is the envelope without its data.
func (e envelope) standing() standing {
	if e.counter {
		return standing{form: formCounter, expires: e.expires, sum: e.sum}
	}
	return standing{form: formValue, expires: e.expires, version: e.version}
}

// lives reports whether the envelope's value exists at a time. The instant of
// expiry is the first at which it does not.
func (e envelope) lives(now int64) bool { return e.expires == 0 || now < e.expires }

// value is the envelope as a reader gets it: a copy. A counter reads as its
// decimal digits.
func (e envelope) value() ledger.Value {
	if e.counter {
		return ledger.Value{Data: strconv.AppendInt(nil, e.sum, 10)}
	}
	return ledger.Value{Version: e.version, Data: append([]byte{}, e.data...)}
}
