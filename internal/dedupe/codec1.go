package dedupe

import (
	"time"

	"holdfast.dev/gateway/internal/identity"
)

// decodeRecord1 reads a record of format 1, which earlier releases wrote: strings
// and lists behind their length, times as milliseconds since 1970, zero for none.
// Writes that are held, and the histories of ended ones, are of it for weeks after
// the last gateway of such a release has gone.
func decodeRecord1(id ActionID, data []byte) (*Record, bool) {
	r := reader{rest: data[1:]}
	rec := &Record{State: State(r.byte())}
	flags := r.byte()
	const ownerLost, resent, resolved, previous, checker = 1, 2, 4, 8, 16
	rec.OwnerLost, rec.Resent, rec.Resolved = flags&ownerLost != 0, flags&resent != 0, flags&resolved != 0
	r.fill(rec.ID[:])
	r.fill(rec.Owner[:])
	r.fill(rec.Identity[:])
	r.fill(rec.Fingerprint[:])
	r.fill(rec.ConnectorSum[:])
	for _, t := range []*time.Time{
		&rec.Created, &rec.LeaseEnd, &rec.WindowEnd, &rec.HoldUntil, &rec.Deadline, &rec.Settled,
		&rec.VendorKeyEnd, &rec.NextCheck, &rec.CheckEnd, &rec.SentUntil,
	} {
		*t = r.time1()
	}
	rec.Source = identity.Source(r.string())
	for _, s := range []*string{
		&rec.ConnectionID, &rec.Connection, &rec.Action, &rec.Connector,
		&rec.KeyID, &rec.RequestID, &rec.Marker, &rec.VendorKey, (*string)(&rec.Evidence),
		&rec.Outcome.Phase, &rec.Outcome.Reason, &rec.Outcome.Code, &rec.Outcome.Message,
	} {
		*s = r.string()
	}
	rec.Outcome.VendorStatus = r.size()
	for range r.count() {
		rec.Attempts = append(rec.Attempts, Attempt{
			At: r.time1(), Duration: time.Duration(r.size()) * time.Millisecond,
			Phase: r.string(), Reason: r.string(), Status: r.size(),
		})
	}
	for range r.count() {
		rec.History = append(rec.History, Change{
			At: r.time1(), Event: Event(r.string()), By: r.string(), Detail: r.string(),
		})
	}
	rec.Checks = r.size()
	if flags&checker != 0 {
		r.fill(rec.Checker[:])
		r.bad = r.bad || rec.Checker == Owner{}
	}
	if flags&previous != 0 {
		rec.Previous = &Previous{}
		r.fill(rec.Previous.ID[:])
		rec.Previous.State = State(r.byte())
		rec.Previous.At = r.time1()
	}
	return rec, r.ended() && flags < checker<<1 && rec.ID == id
}

func (r *reader) time1() time.Time {
	ms := r.int()
	if r.bad || ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
