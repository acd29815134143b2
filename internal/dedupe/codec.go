package dedupe

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"holdfast.dev/gateway/internal/identity"
)

// Records are kept in a binary form that begins with the number of its format.
// A release reads every format up to its own and refuses later ones. Strings
// and lists are preceded by their length as an unsigned varint; times are
// milliseconds since 1970 as a signed varint, zero for none.
const recordFormat = 1

const (
	flagOwnerLost = 1 << iota
	flagResent
	flagResolved
	flagPrevious
	flagChecker
)

func flag(bit byte, on bool) byte {
	if on {
		return bit
	}
	return 0
}

func encodeRecord(r *Record) []byte {
	flags := flag(flagOwnerLost, r.OwnerLost) | flag(flagResent, r.Resent) |
		flag(flagResolved, r.Resolved) | flag(flagPrevious, r.Previous != nil) | flag(flagChecker, r.Checker != Owner{})
	w := writer(make([]byte, 0, 512))
	w = append(w, recordFormat, byte(r.State), flags)
	w = append(w, r.ID[:]...)
	w = append(w, r.Owner[:]...)
	w = append(w, r.Identity[:]...)
	w = append(w, r.Fingerprint[:]...)
	w = append(w, r.ConnectorSum[:]...)
	for _, t := range []time.Time{r.Created, r.LeaseEnd, r.WindowEnd, r.HoldUntil, r.Deadline, r.Settled, r.VendorKeyEnd, r.NextCheck, r.CheckEnd, r.SentUntil} {
		w.time(t)
	}
	for _, s := range []string{
		string(r.Source), r.ConnectionID, r.Connection, r.Action, r.Connector,
		r.KeyID, r.RequestID, r.Marker, r.VendorKey, string(r.Evidence),
		r.Outcome.Phase, r.Outcome.Reason, r.Outcome.Code, r.Outcome.Message,
	} {
		w.string(s)
	}
	w.uint(uint64(max(r.Outcome.VendorStatus, 0)))
	w.uint(uint64(len(r.Attempts)))
	for _, a := range r.Attempts {
		w.time(a.At)
		w.uint(uint64(max(a.Duration.Milliseconds(), 0)))
		w.string(a.Phase)
		w.string(a.Reason)
		w.uint(uint64(max(a.Status, 0)))
	}
	w.uint(uint64(len(r.History)))
	for _, h := range r.History {
		w.time(h.At)
		w.string(string(h.Event))
		w.string(h.By)
		w.string(h.Detail)
	}
	w.uint(uint64(max(r.Checks, 0)))
	if r.Checker != (Owner{}) {
		w = append(w, r.Checker[:]...)
	}
	if p := r.Previous; p != nil {
		w = append(w, p.ID[:]...)
		w = append(w, byte(p.State))
		w.time(p.At)
	}
	return w
}

// decodeRecord reads what encodeRecord wrote; anything else is ErrUnreadable.
func decodeRecord(data []byte) (*Record, error) {
	r := reader{rest: data}
	if format := r.byte(); r.bad || format != recordFormat {
		return nil, fmt.Errorf("decode record of format %d: %w", format, ErrUnreadable)
	}
	rec := &Record{State: State(r.byte())}
	flags := r.byte()
	rec.OwnerLost = flags&flagOwnerLost != 0
	rec.Resent = flags&flagResent != 0
	rec.Resolved = flags&flagResolved != 0
	r.fill(rec.ID[:])
	r.fill(rec.Owner[:])
	r.fill(rec.Identity[:])
	r.fill(rec.Fingerprint[:])
	r.fill(rec.ConnectorSum[:])
	for _, t := range []*time.Time{&rec.Created, &rec.LeaseEnd, &rec.WindowEnd, &rec.HoldUntil, &rec.Deadline, &rec.Settled, &rec.VendorKeyEnd, &rec.NextCheck, &rec.CheckEnd, &rec.SentUntil} {
		*t = r.time()
	}
	rec.Source = identity.Source(r.string())
	for _, s := range []*string{
		&rec.ConnectionID, &rec.Connection, &rec.Action, &rec.Connector,
		&rec.KeyID, &rec.RequestID, &rec.Marker, &rec.VendorKey, (*string)(&rec.Evidence),
		&rec.Outcome.Phase, &rec.Outcome.Reason, &rec.Outcome.Code, &rec.Outcome.Message,
	} {
		*s = r.string()
	}
	rec.Outcome.VendorStatus = r.int()
	for range r.count() {
		rec.Attempts = append(rec.Attempts, Attempt{
			At: r.time(), Duration: time.Duration(r.int()) * time.Millisecond,
			Phase: r.string(), Reason: r.string(), Status: r.int(),
		})
	}
	for range r.count() {
		rec.History = append(rec.History, Change{
			At: r.time(), Event: Event(r.string()), By: r.string(), Detail: r.string(),
		})
	}
	rec.Checks = r.int()
	if flags&flagChecker != 0 {
		r.fill(rec.Checker[:])
		r.bad = r.bad || rec.Checker == Owner{}
	}
	if flags&flagPrevious != 0 {
		rec.Previous = &Previous{}
		r.fill(rec.Previous.ID[:])
		rec.Previous.State = State(r.byte())
		rec.Previous.At = r.time()
	}
	_, known := stateNames[rec.State]
	if r.bad || len(r.rest) != 0 || !known || flags >= flagChecker<<1 {
		return nil, fmt.Errorf("decode record: %w", ErrUnreadable)
	}
	return rec, nil
}

type writer []byte

func (w *writer) uint(v uint64) { *w = binary.AppendUvarint(*w, v) }

func (w *writer) string(s string) {
	w.uint(uint64(len(s)))
	*w = append(*w, s...)
}

func (w *writer) time(t time.Time) {
	var ms int64
	if !t.IsZero() {
		ms = t.UnixMilli()
	}
	*w = binary.AppendVarint(*w, ms)
}

// reader takes fields off the front; after the first that is not there, bad
// is set and everything reads as zero.
type reader struct {
	rest []byte
	bad  bool
}

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

func (r *reader) varint(read func([]byte) int) {
	n := 0
	if !r.bad {
		n = read(r.rest)
	}
	if n <= 0 {
		r.bad = true
		return
	}
	r.rest = r.rest[n:]
}

func (r *reader) int() int {
	var v uint64
	r.varint(func(b []byte) (n int) { v, n = binary.Uvarint(b); return n })
	if v > math.MaxInt32 {
		r.bad = true
		return 0
	}
	return int(v)
}

// count reads the length of a list, every element of which takes a byte or more.
func (r *reader) count() int {
	n := r.int()
	if n > len(r.rest) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return n
}

func (r *reader) string() string { return string(r.take(r.int())) }

func (r *reader) time() time.Time {
	var ms int64
	r.varint(func(b []byte) (n int) { ms, n = binary.Varint(b); return n })
	if r.bad || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
