package dedupe

import (
	"encoding/binary"
	"math"
	"time"
)

// writer and reader are the two sides of a stored record's fields: numbers as
// varints, strings behind their length.
type writer []byte

func (w *writer) uint(v uint64) { *w = binary.AppendUvarint(*w, v) }

func (w *writer) int(v int64) { *w = binary.AppendVarint(*w, v) }

func (w *writer) string(s string) {
	w.uint(uint64(len(s)))
	*w = append(*w, s...)
}

// time writes one more than the distance from another time, or zero for no time.
// Most ends are whole seconds away from what they are counted from, and take them as
// the unit: the lowest bit says so. Times are good for a hundred million years.
func (w *writer) time(t, from time.Time) {
	ms := t.UnixMilli()
	if ms == noMillis {
		w.uint(0)
		return
	}
	d, unit := ms-millisOf(from), uint64(0)
	if d%second == 0 {
		d, unit = d/second, 1
	}
	w.uint(1 + (zigzag(d)<<1 | unit))
}

const (
	second   = 1000
	noMillis = -62135596800000 // of the zero time
)

// millisOf is a time in milliseconds since 1970; no time is 0.
func millisOf(t time.Time) int64 {
	if ms := t.UnixMilli(); ms != noMillis {
		return ms
	}
	return 0
}

func zigzag(v int64) uint64   { return uint64(v)<<1 ^ uint64(v>>63) }
func unzigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// reader takes fields off the front; after the first that is not there, or that
// the writer would have written otherwise, bad is set and everything reads as zero.
type reader struct {
	rest []byte
	bad  bool
}

// ended says whether all was read and nothing was bad.
func (r *reader) ended() bool { return !r.bad && len(r.rest) == 0 }

func (r *reader) insist(ok bool) { r.bad = r.bad || !ok }

func (r *reader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.rest) {
		r.bad = true
		return nil
	}
	out := r.rest[:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) fill(dst []byte) { copy(dst, r.take(len(dst))) }

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint() uint64 {
	if r.bad {
		return 0
	}
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || n > 1 && r.rest[n-1] == 0 { // a last byte of zero says nothing
		r.bad = true
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) int() int64 { return unzigzag(r.uint()) }

// size reads a length, or a number of format 1, which are not negative.
func (r *reader) size() int {
	v := r.uint()
	if v > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int(v)
}

// count reads the length of a list, every element of which takes a byte or more.
func (r *reader) count() int {
	n := r.size()
	if n > len(r.rest) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return n
}

func (r *reader) string() string { return string(r.take(r.size())) }

func (r *reader) time(from time.Time) time.Time {
	v := r.uint()
	if v == 0 {
		return time.Time{}
	}
	v--
	d := unzigzag(v >> 1)
	if v&1 != 0 {
		r.insist(d <= math.MaxInt64/second && d >= math.MinInt64/second)
		d *= second
	} else {
		r.insist(d%second != 0)
	}
	t := time.UnixMilli(millisOf(from) + d).UTC()
	r.insist(!t.IsZero())
	return t
}

// millis reads a duration.
func (r *reader) millis() time.Duration {
	ms := r.int()
	r.insist(ms <= math.MaxInt64/int64(time.Millisecond) && ms >= math.MinInt64/int64(time.Millisecond))
	return time.Duration(ms) * time.Millisecond
}
