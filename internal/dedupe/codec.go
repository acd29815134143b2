package dedupe

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"holdfast.dev/gateway/internal/identity"
)

// Records are kept in a binary form that begins with the number of its format.
// A release reads every format up to its own and refuses later ones, which it never
// sends.
//
// Format 2 leaves out the action's id, which is the value's key, and ends with a
// checksum over it and the record: what was damaged, or is another's, is not read.
// What there is one byte for takes one (words.go), ids are packed (pack.go), and
// times are distances from each other. A record has one form only: whatever the
// encoder would have written otherwise is refused.
const recordFormat = 2

const (
	flagDerived   = 1 << iota // the fingerprint is the identity
	flagOwnerLost             //
	flagResent                //
	flagResolved              //
	flagPrevious              // there is one
	flagChecked               // checks were planned or made
	flagChecker               // there is one
	flagTold                  // the outcome has more than a phase and a status
)

func flag(bit byte, on bool) byte {
	if on {
		return bit
	}
	return 0
}

func (r *Record) flags() byte {
	return flag(flagDerived, r.Fingerprint == identity.Fingerprint(r.Identity)) |
		flag(flagOwnerLost, r.OwnerLost) | flag(flagResent, r.Resent) | flag(flagResolved, r.Resolved) |
		flag(flagPrevious, r.Previous != nil) | flag(flagChecker, r.Checker != Owner{}) |
		flag(flagChecked, !r.NextCheck.IsZero() || !r.CheckEnd.IsZero() || !r.SentUntil.IsZero() || r.Checks != 0) |
		flag(flagTold, r.Outcome.Reason != "" || r.Outcome.Code != "" || r.Outcome.Message != "")
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const sumSize = 4

// sumOf is the checksum of a record without it.
func sumOf(id *ActionID, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(id[:], castagnoli), castagnoli, body)
}

func encodeRecord(r *Record) []byte {
	flags := r.flags()
	w := writer(make([]byte, 0, 320))
	w = append(w, recordFormat, byte(r.State), flags)
	w = append(w, r.Owner[:]...)
	w = append(w, r.Identity[:]...)
	if flags&flagDerived == 0 {
		w = append(w, r.Fingerprint[:]...)
	}
	w = append(w, r.ConnectorSum[:]...)
	w.time(r.Created, r.ID.claimed())
	w.time(r.LeaseEnd, r.Created)
	w.time(r.Deadline, r.LeaseEnd)
	w.time(r.WindowEnd, r.Created)
	w.time(r.HoldUntil, r.WindowEnd)
	w.time(r.VendorKeyEnd, r.WindowEnd)
	w.time(r.Settled, r.Created)
	w.word(string(r.Source))
	w.id(r.ConnectionID, r.Created)
	w.string(r.Connection)
	w.string(r.Action)
	w.string(r.Connector)
	w.id(r.KeyID, r.Created)
	w.id(r.RequestID, r.Created)
	w.id(r.Marker, r.Created)
	w.id(r.VendorKey, r.Created)
	w.word(string(r.Evidence))
	w.outcome(&r.Outcome, flags)
	w.attempts(r)
	w.history(r)
	if flags&flagChecked != 0 {
		w.time(r.NextCheck, r.Created)
		w.time(r.CheckEnd, r.NextCheck)
		w.time(r.SentUntil, r.Created)
		w.int(int64(r.Checks))
	}
	if flags&flagChecker != 0 {
		w = append(w, r.Checker[:]...)
	}
	if p := r.Previous; p != nil {
		w = append(w, p.ID[:]...)
		w = append(w, byte(p.State))
		w.time(p.At, r.Created)
	}
	return binary.BigEndian.AppendUint32(w, sumOf(&r.ID, w))
}

// decodeRecord reads what encodeRecord wrote of an action; anything else is
// ErrUnreadable.
func decodeRecord(id ActionID, data []byte) (*Record, error) {
	var rec *Record
	var ok bool
	switch {
	case len(data) == 0:
	case data[0] == 1:
		rec, ok = decodeRecord1(id, data)
	case data[0] == recordFormat && len(data) > sumSize:
		body := data[:len(data)-sumSize]
		if ok = binary.BigEndian.Uint32(data[len(body):]) == sumOf(&id, body); ok {
			rec, ok = decodeRecord2(id, body)
		}
	}
	if !ok {
		return nil, fmt.Errorf("decode record: %w", ErrUnreadable)
	}
	if _, known := stateNames[rec.State]; !known {
		return nil, fmt.Errorf("decode record: %w", ErrUnreadable)
	}
	return rec, nil
}

func decodeRecord2(id ActionID, body []byte) (*Record, bool) {
	r := reader{rest: body[1:]}
	rec := &Record{ID: id, State: State(r.byte())}
	flags := r.byte()
	rec.OwnerLost, rec.Resent, rec.Resolved = flags&flagOwnerLost != 0, flags&flagResent != 0, flags&flagResolved != 0
	r.fill(rec.Owner[:])
	r.fill(rec.Identity[:])
	if rec.Fingerprint = identity.Fingerprint(rec.Identity); flags&flagDerived == 0 {
		r.fill(rec.Fingerprint[:])
	}
	r.fill(rec.ConnectorSum[:])
	rec.Created = r.time(id.claimed())
	rec.LeaseEnd = r.time(rec.Created)
	rec.Deadline = r.time(rec.LeaseEnd)
	rec.WindowEnd = r.time(rec.Created)
	rec.HoldUntil = r.time(rec.WindowEnd)
	rec.VendorKeyEnd = r.time(rec.WindowEnd)
	rec.Settled = r.time(rec.Created)
	rec.Source = identity.Source(r.word())
	rec.ConnectionID = r.id(rec.Created)
	rec.Connection, rec.Action, rec.Connector = r.string(), r.string(), r.string()
	rec.KeyID, rec.RequestID = r.id(rec.Created), r.id(rec.Created)
	rec.Marker, rec.VendorKey = r.id(rec.Created), r.id(rec.Created)
	rec.Evidence = Evidence(r.word())
	r.outcome(&rec.Outcome, flags)
	r.attempts(rec)
	r.history(rec)
	if flags&flagChecked != 0 {
		rec.NextCheck = r.time(rec.Created)
		rec.CheckEnd = r.time(rec.NextCheck)
		rec.SentUntil = r.time(rec.Created)
		rec.Checks = int(r.int())
	}
	if flags&flagChecker != 0 {
		r.fill(rec.Checker[:])
	}
	if flags&flagPrevious != 0 {
		rec.Previous = &Previous{}
		r.fill(rec.Previous.ID[:])
		rec.Previous.State = State(r.byte())
		rec.Previous.At = r.time(rec.Created)
	}
	return rec, r.ended() && rec.flags() == flags
}

func (w *writer) outcome(o *Outcome, flags byte) {
	w.word(o.Phase)
	w.int(int64(o.VendorStatus))
	if flags&flagTold != 0 {
		w.word(o.Reason)
		w.string(o.Code)
		w.string(o.Message)
	}
}

func (r *reader) outcome(o *Outcome, flags byte) {
	o.Phase, o.VendorStatus = r.word(), int(r.int())
	if flags&flagTold != 0 {
		o.Reason, o.Code, o.Message = r.word(), r.string(), r.string()
	}
}

// What an attempt begins with: whether it came to the same as the write.
const (
	attemptOther = 0
	attemptSame  = 1
)

func (a *Attempt) like(o *Outcome) bool {
	return a.Phase == o.Phase && a.Reason == o.Reason && a.Status == o.VendorStatus
}

func (w *writer) attempts(r *Record) {
	w.uint(uint64(len(r.Attempts)))
	before := r.Created
	for i := range r.Attempts {
		a := &r.Attempts[i]
		same := a.like(&r.Outcome)
		*w = append(*w, flag(attemptSame, same))
		w.time(a.At, before)
		w.int(a.Duration.Milliseconds())
		if !same {
			w.word(a.Phase)
			w.word(a.Reason)
			w.int(int64(a.Status))
		}
		before = a.At
	}
}

func (r *reader) attempts(rec *Record) {
	n := r.count()
	rec.Attempts = slices.Grow(rec.Attempts, n)
	before := rec.Created
	for range n {
		head := r.byte()
		a := Attempt{
			At: r.time(before), Duration: r.millis(),
			Phase: rec.Outcome.Phase, Reason: rec.Outcome.Reason, Status: rec.Outcome.VendorStatus,
		}
		if head == attemptOther {
			a.Phase, a.Reason, a.Status = r.word(), r.word(), int(r.int())
		}
		r.insist(flag(attemptSame, a.like(&rec.Outcome)) == head)
		rec.Attempts = append(rec.Attempts, a)
		before = a.At
	}
}

// What a line of the history begins with: the number of its event, if it has one,
// and which of the others it has.
const (
	changeEvent  = 1<<5 - 1
	changeByKey  = 1 << 5 // by the API key that claimed
	changeBy     = 1 << 6 // by another
	changeDetail = 1 << 7
)

func (c *Change) head(keyID string) byte {
	head := eventNumbers[c.Event] | flag(changeDetail, c.Detail != "")
	switch c.By {
	case "":
		return head
	case keyID:
		return head | changeByKey
	default:
		return head | changeBy
	}
}

func (w *writer) history(r *Record) {
	w.uint(uint64(len(r.History)))
	before := r.Created
	for i := range r.History {
		c := &r.History[i]
		head := c.head(r.KeyID)
		*w = append(*w, head)
		w.time(c.At, before)
		if head&changeEvent == 0 {
			w.string(string(c.Event))
		}
		if head&changeBy != 0 {
			w.id(c.By, r.Created)
		}
		if head&changeDetail != 0 {
			w.word(c.Detail)
		}
		before = c.At
	}
}

func (r *reader) history(rec *Record) {
	n := r.count()
	rec.History = slices.Grow(rec.History, n)
	before := rec.Created
	for range n {
		head := r.byte()
		c := Change{At: r.time(before)}
		if number := head & changeEvent; number == 0 {
			c.Event = Event(r.string())
		} else if int(number) <= len(events) {
			c.Event = events[number-1]
		}
		if head&changeByKey != 0 {
			c.By = rec.KeyID
		}
		if head&changeBy != 0 {
			c.By = r.id(rec.Created)
		}
		if head&changeDetail != 0 {
			c.Detail = r.word()
		}
		r.insist(c.head(rec.KeyID) == head)
		rec.History = append(rec.History, c)
		before = c.At
	}
}
