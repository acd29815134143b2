package dedupe

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"holdfast.dev/gateway/internal/identity"
)

// anyRecord draws a record of anything that a record can hold, mostly of what looks
// like what the gateway makes, and is not quite.
func anyRecord(t *rapid.T) *Record {
	r := &Record{
		ID: ActionID(anyBytes(t, 16)), Owner: Owner(anyBytes(t, 16)), Checker: Owner(anyBytes(t, 16)),
		Identity: identity.Identity(anyBytes(t, 32)), Fingerprint: identity.Fingerprint(anyBytes(t, 32)),
		ConnectorSum: [32]byte(anyBytes(t, 32)),
		State:        State(rapid.IntRange(1, 6).Draw(t, "state")),
		Source:       identity.Source(anyWord(t)), Evidence: Evidence(anyWord(t)),
		ConnectionID: anyID(t), Connection: anyText(t), Action: anyText(t), Connector: anyText(t),
		KeyID: anyID(t), RequestID: anyID(t), Marker: anyID(t), VendorKey: anyID(t),
		OwnerLost: rapid.Bool().Draw(t, "lost"), Resent: rapid.Bool().Draw(t, "resent"), Resolved: rapid.Bool().Draw(t, "resolved"),
		Checks:  anyNumber(t),
		Outcome: Outcome{Phase: anyWord(t), Reason: anyWord(t), VendorStatus: anyNumber(t), Code: anyText(t), Message: anyText(t)},
	}
	if rapid.Bool().Draw(t, "derived") {
		r.Fingerprint = identity.Fingerprint(r.Identity)
	}
	for _, at := range []*time.Time{
		&r.Created, &r.LeaseEnd, &r.WindowEnd, &r.HoldUntil, &r.Deadline, &r.Settled,
		&r.VendorKeyEnd, &r.NextCheck, &r.CheckEnd, &r.SentUntil,
	} {
		*at = anyTime(t, r.Created)
	}
	for range rapid.IntRange(0, 3).Draw(t, "attempts") {
		a := Attempt{Phase: anyWord(t), Reason: anyWord(t), Status: anyNumber(t)}
		if rapid.Bool().Draw(t, "same") {
			a = Attempt{Phase: r.Outcome.Phase, Reason: r.Outcome.Reason, Status: r.Outcome.VendorStatus}
		}
		a.At, a.Duration = anyTime(t, r.Created), time.Duration(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "ms"))*time.Millisecond
		r.Attempts = append(r.Attempts, a)
	}
	for range rapid.IntRange(0, 3).Draw(t, "history") {
		c := Change{At: anyTime(t, r.Created), Event: Event(anyWord(t)), By: anyID(t), Detail: anyWord(t)}
		if rapid.Bool().Draw(t, "known") {
			c.Event, c.By = rapid.SampledFrom(events[:]).Draw(t, "event"), r.KeyID
		}
		r.History = append(r.History, c)
	}
	if rapid.Bool().Draw(t, "previous") {
		r.Previous = &Previous{ID: ActionID(anyBytes(t, 16)), State: State(rapid.Byte().Draw(t, "state")), At: anyTime(t, r.Created)}
	}
	return r
}

func anyBytes(t *rapid.T, n int) []byte {
	if rapid.IntRange(0, 3).Draw(t, "none") == 0 {
		return make([]byte, n)
	}
	return rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "bytes")
}

func anyNumber(t *rapid.T) int {
	return rapid.OneOf(rapid.IntRange(0, 599), rapid.Int()).Draw(t, "number")
}

// anyTime draws none, one near to another, or one that is far from all, to the
// millisecond.
func anyTime(t *rapid.T, near time.Time) time.Time {
	switch rapid.IntRange(0, 4).Draw(t, "time") {
	case 0:
		return time.Time{}
	case 1:
		return time.UnixMilli(millisOf(near) + rapid.Int64Range(-100_000, 100_000).Draw(t, "ms")).UTC()
	case 2:
		return time.UnixMilli(millisOf(near) + 1000*rapid.Int64Range(-100_000, 100_000).Draw(t, "s")).UTC()
	case 3:
		return rapid.SampledFrom([]time.Time{
			time.UnixMilli(0).UTC(), time.UnixMilli(-1).UTC(), time.UnixMilli(noMillis + 1).UTC(), time.UnixMilli(noMillis - 1).UTC(),
			time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC), time.UnixMilli(1 << 60).UTC(), time.UnixMilli(-1 << 60).UTC(),
		}).Draw(t, "odd")
	default:
		return time.UnixMilli(rapid.Int64Range(noMillis+1, 1<<48).Draw(t, "any")).UTC()
	}
}

func anyText(t *rapid.T) string {
	return rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"billing", "\xff\x00", strings.Repeat("n", 300)})).Draw(t, "text")
}

func anyWord(t *rapid.T) string {
	if rapid.Bool().Draw(t, "word") {
		return rapid.SampledFrom(words[:]).Draw(t, "word")
	}
	if rapid.Bool().Draw(t, "event") {
		return string(rapid.SampledFrom(events[:]).Draw(t, "event"))
	}
	return anyText(t)
}

// anyID draws an id of a known form, perhaps with something wrong in it.
func anyID(t *rapid.T) string {
	id := ulid.ULID(anyBytes(t, 16))
	h := hex.EncodeToString(anyBytes(t, 16))
	s := rapid.SampledFrom([]string{
		"req_" + id.String(), "act_" + id.String(), "con_" + id.String(), "key_0123456789", h, h[:31], h + h, h + h + h + h + h,
		h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], strings.ToUpper(h),
		"con_" + rapid.StringMatching(`[A-Z2-7]{26}`).Draw(t, "con"), rapid.StringMatching(`[a-z2-7]{39}`).Draw(t, "key"),
		rapid.StringMatching(`[a-z2-7]{38}[aiqy]`).Draw(t, "key"), anyText(t),
	}).Draw(t, "id")
	if s == "" || rapid.IntRange(0, 2).Draw(t, "right") > 0 {
		return s
	}
	b := []byte(s)
	b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] = rapid.SampledFrom([]byte("aAfFgG018-_zZuUlLiIoO\x00\xff")).Draw(t, "wrong")
	return string(b)
}
