package dedupe

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/identity"
)

// earlier are records whose bytes of format 1, as the last release that wrote it
// encoded them, lie in testdata/format1. They are never made anew.
func earlier() map[string]*Record {
	at := time.UnixMilli(1_764_482_400_123).UTC()
	fixed := func(b byte) (out [32]byte) {
		for i := range out {
			out[i] = b + byte(i)
		}
		return out
	}
	half := func(b byte) [16]byte {
		whole := fixed(b)
		return [16]byte(whole[:16])
	}
	settled := &Record{
		ID: ActionID(half(0x10)), Owner: Owner(half(0x20)),
		Identity: identity.Identity(fixed(0x30)), Fingerprint: identity.Fingerprint(fixed(0x30)),
		Source: identity.Derived, State: Succeeded,
		ConnectionID: "con_ABCDEFGHIJKLMNOPQRSTUVWXYZ", Connection: "billing", Action: "create_invoice",
		Connector: "stripe@1.0.0", ConnectorSum: fixed(0x50),
		KeyID: "abcdefghijklmnopqrstuvwxyz234567abcdefa", RequestID: "req_01KB7T0A4X5S8R9P2M3N6Q7V1W",
		Created: at, LeaseEnd: at.Add(30 * time.Second), WindowEnd: at.Add(24 * time.Hour), HoldUntil: at.Add(24 * time.Hour),
		Deadline: at.Add(50 * time.Second), Settled: at.Add(432 * time.Millisecond), VendorKeyEnd: at.Add(24 * time.Hour),
		Marker: "0123456789abcdef0123456789abcdef", VendorKey: "0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff", Evidence: ByVendor,
		Outcome:  Outcome{Phase: "answered", VendorStatus: 201},
		Attempts: []Attempt{{At: at.Add(5 * time.Millisecond), Duration: 420 * time.Millisecond, Phase: "answered", Status: 201}},
		History: []Change{
			{At: at, Event: EventClaimed, By: "abcdefghijklmnopqrstuvwxyz234567abcdefa"},
			{At: at.Add(432 * time.Millisecond), Event: EventSucceeded},
		},
	}
	held := settled.clone()
	held.Fingerprint, held.Source, held.State = identity.Fingerprint(fixed(0x40)), identity.Supplied, Held
	held.NextCheck, held.Checker, held.CheckEnd = at.Add(time.Minute), Owner(half(0x60)), at.Add(time.Minute)
	held.SentUntil, held.Checks = at.Add(90*time.Second), 3
	held.OwnerLost, held.Resent, held.Resolved, held.Evidence = true, true, true, ByOperator
	held.Outcome = Outcome{Phase: "sent_no_answer", Reason: "owner_lost", VendorStatus: 502, Code: "c", Message: "m\x00é"}
	held.Previous = &Previous{ID: ActionID(half(0x70)), State: NotDone, At: at.Add(-time.Hour)}
	held.note(Change{At: at.Add(time.Second), Event: EventChecked, By: "another", Detail: "lookup: none, status 200, matches 0"})
	return map[string]*Record{"settled": settled, "held": held, "bare": {State: InFlight}}
}

func TestFormat1IsStillRead(t *testing.T) {
	for name, want := range earlier() {
		data, err := os.ReadFile("testdata/format1/" + name + ".bin")
		require.NoError(t, err)
		got, err := decodeRecord(want.ID, data)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)

		_, err = decodeRecord(ActionID{0xff}, data)
		require.ErrorIs(t, err, ErrUnreadable, "another's")
		for n := range data {
			_, err := decodeRecord(want.ID, data[:n])
			require.ErrorIs(t, err, ErrUnreadable, "%s, cut to %d bytes", name, n)
		}
		_, err = decodeRecord(want.ID, append(data, 0))
		require.ErrorIs(t, err, ErrUnreadable)
	}
}
