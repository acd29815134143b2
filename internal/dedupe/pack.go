package dedupe

import (
	"encoding/binary"
	"encoding/hex"
	"time"
)

// Forms of the ids that the gateway makes, as they are packed. An id that is not of
// one of them, or is spelled in another way, is kept as it is.
const (
	formHex  = iota // lower-case hexadecimal digits of so many bytes
	formHalf        // of 16 bytes: a marker
	formUUID        // the same, with hyphens: a vendor key
	formKey         // 24 bytes in lower-case base32: an API key
	formConn        // con_ and 26 digits in base32: a connection
	formReq         // req_ and a ULID: a request
)

const (
	connPrefix = "con_"
	reqPrefix  = "req_"
	ulidDigits = 26 // and those of a connection, which carry 130 bits
	connSize   = 17
	keyDigits  = 39
	keySize    = 24
	hexKept    = 64 // bytes that are packed at most
)

// alphabet is the digits of a base up to 32, each of 5 bits.
type alphabet struct {
	digits string
	values [256]byte // noDigit: none
}

const noDigit = 0xff

var (
	upper32   = newAlphabet("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
	lower32   = newAlphabet("abcdefghijklmnopqrstuvwxyz234567")
	crockford = newAlphabet("0123456789ABCDEFGHJKMNPQRSTVWXYZ")
	lowerHex  = newAlphabet("0123456789abcdef")
)

func newAlphabet(digits string) *alphabet {
	a := &alphabet{digits: digits}
	for i := range a.values {
		a.values[i] = noDigit
	}
	for i := range len(digits) {
		a.values[digits[i]] = byte(i)
	}
	return a
}

// read is the number that a few digits write. All is noDigit if one is none, and
// the digits ored together otherwise.
func (a *alphabet) read(s string) (v uint64, all byte) {
	for i := range len(s) {
		d := a.values[s[i]]
		v, all = v<<5|uint64(d), all|d
	}
	return v, all
}

func (a *alphabet) write(dst []byte, v uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, a.digits[v>>(5*i)&31])
	}
	return dst
}

// pack appends digits whose number is a multiple of 8: 5 bytes for each 8.
func (a *alphabet) pack(dst []byte, s string) ([]byte, byte) {
	var all byte
	for ; len(s) >= 8; s = s[8:] {
		v, any := a.read(s[:8])
		dst, all = append(dst, byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v)), all|any
	}
	return dst, all
}

func (a *alphabet) unpack(dst, packed []byte) []byte {
	for ; len(packed) >= 5; packed = packed[5:] {
		dst = a.write(dst, uint64(packed[0])<<32|uint64(binary.BigEndian.Uint32(packed[1:])), 8)
	}
	return dst
}

// packHex appends what lower-case hexadecimal digits write.
func packHex(dst []byte, s string) ([]byte, byte) {
	var all byte
	for ; len(s) >= 2; s = s[2:] {
		hi, lo := lowerHex.values[s[0]], lowerHex.values[s[1]]
		dst, all = append(dst, hi<<4|lo), all|hi|lo
	}
	return dst, all
}

// packConn packs what follows the prefix of a connection's id.
func packConn(dst []byte, s string) ([]byte, bool) {
	dst, all := upper32.pack(dst, s[:24])
	last, any := upper32.read(s[24:])
	return append(dst, byte(last>>2), byte(last<<6)), all|any != noDigit
}

// packULID packs a ULID, of which the first two digits are a byte.
func packULID(dst []byte, s string) ([]byte, bool) {
	first, any := crockford.read(s[:2])
	dst, all := crockford.pack(append(dst, byte(first)), s[2:])
	return dst, all|any != noDigit && first <= 0xff
}

// packKey packs the public id of an API key, whose last 3 bits are none of its own.
func packKey(dst []byte, s string) ([]byte, bool) {
	dst, all := lower32.pack(dst, s[:32])
	last, any := lower32.read(s[32:])
	return binary.BigEndian.AppendUint32(dst, uint32(last>>3)), all|any != noDigit && last&7 == 0
}

// packUUID packs a UUID whose hyphens are where they are to be.
func packUUID(dst []byte, s string) ([]byte, bool) {
	all := byte(0)
	for _, part := range [...]string{s[:8], s[9:13], s[14:18], s[19:23], s[24:]} {
		var any byte
		dst, any = packHex(dst, part)
		all |= any
	}
	return dst, all != noDigit
}

// id writes an id. That of a request says when it came, which is near to when it
// claimed.
func (w *writer) id(s string, created time.Time) {
	var buf [hexKept]byte
	switch form, packed := formOf(buf[:0], s); form {
	case formReq:
		w.uint(formReq<<1 | shortForm)
		w.int(ulidMillis(packed) - millisOf(created))
		*w = append(*w, packed[6:]...)
	case formHex:
		w.uint(formHex<<1 | shortForm)
		w.uint(uint64(len(packed)))
		*w = append(*w, packed...)
	case formHalf, formUUID, formKey, formConn:
		w.uint(uint64(form)<<1 | shortForm)
		*w = append(*w, packed...)
	default:
		w.plain(s)
	}
}

// formOf returns the form of an id, and appends it packed; -1 for none.
func formOf(dst []byte, s string) (form int, packed []byte) {
	ok := false
	switch n := len(s); {
	case n == len(connPrefix)+ulidDigits && s[:4] == connPrefix:
		form = formConn
		packed, ok = packConn(dst, s[4:])
	case n == len(reqPrefix)+ulidDigits && s[:4] == reqPrefix:
		form = formReq
		packed, ok = packULID(dst, s[4:])
	case n == keyDigits:
		form = formKey
		packed, ok = packKey(dst, s)
	case n == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-':
		form = formUUID
		packed, ok = packUUID(dst, s)
	case n > 0 && n%2 == 0 && n <= 2*hexKept:
		var all byte
		packed, all = packHex(dst, s)
		if form, ok = formHex, all != noDigit; len(packed) == 16 {
			form = formHalf
		}
	}
	if !ok {
		return -1, nil
	}
	return form, packed
}

func (r *reader) id(created time.Time) string {
	n := r.uint()
	if n&shortForm == 0 {
		s := r.plain(n)
		var buf [hexKept]byte
		form, _ := formOf(buf[:0], s)
		r.insist(form < 0)
		return s
	}
	var buf [hexKept]byte
	text := buf[:0]
	switch n >> 1 {
	case formHex:
		size := r.size()
		r.insist(size != 16 && size > 0 && size <= hexKept)
		return hex.EncodeToString(r.take(size))
	case formHalf:
		return hex.EncodeToString(r.take(16))
	case formUUID:
		text = unpackUUID(text, r.array(16))
	case formKey:
		b := r.array(keySize)
		text = lower32.write(lower32.unpack(text, b[:20]), uint64(binary.BigEndian.Uint32(b[20:]))<<3, 7)
	case formConn:
		b := r.array(connSize)
		r.insist(b[16]&63 == 0)
		text = upper32.write(upper32.unpack(append(text, connPrefix...), b[:15]), uint64(b[15])<<2|uint64(b[16])>>6, 2)
	case formReq:
		ms := r.int() + millisOf(created)
		r.insist(ms>>48 == 0)
		var id [16]byte
		binary.BigEndian.PutUint64(id[:], uint64(ms)<<16)
		r.fill(id[6:])
		text = crockford.unpack(crockford.write(append(text, reqPrefix...), uint64(id[0]), 2), id[1:])
	default:
		r.bad = true
	}
	if r.bad {
		return ""
	}
	return string(text)
}

// array takes so many bytes, zeros if they are not there.
func (r *reader) array(n int) []byte {
	if b := r.take(n); b != nil {
		return b
	}
	return make([]byte, n)
}

func unpackUUID(dst, b []byte) []byte {
	for i, part := range [...][]byte{b[:4], b[4:6], b[6:8], b[8:10], b[10:]} {
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, part)
	}
	return dst
}

// ulidMillis is the time that a ULID begins with.
func ulidMillis(id []byte) (ms int64) {
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return ms
}
