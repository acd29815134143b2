package dedupe

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/identity"
)

// full returns a record in which every member is set.
func full() *Record {
	at := time.UnixMilli(1_700_000_000_123).UTC()
	return &Record{
		ID: NewActionID(at), Identity: identity.Identity{1}, Fingerprint: identity.Fingerprint{2},
		Source: identity.Supplied, State: Held, Owner: NewOwner(),
		ConnectionID: "conn", Connection: "billing", Action: "create_invoice",
		Connector: "stripe@1.0.0", ConnectorSum: [32]byte{3},
		KeyID: "key", RequestID: "req",
		Created: at, LeaseEnd: at.Add(1), WindowEnd: at.Add(time.Hour), HoldUntil: at.Add(2 * time.Hour),
		Deadline: at.Add(time.Minute), Settled: at.Add(time.Second), VendorKeyEnd: at.Add(3 * time.Hour),
		Marker: "marker", VendorKey: "vendor key",
		NextCheck: at.Add(4 * time.Minute), Checker: NewOwner(), CheckEnd: at.Add(5 * time.Minute), SentUntil: at.Add(6 * time.Minute), Checks: 300,
		OwnerLost: true, Resent: true, Resolved: true, Evidence: ByOperator,
		Outcome:  Outcome{Phase: "answered", Reason: "no_rule", VendorStatus: 502, Code: "c", Message: "m\x00é"},
		Attempts: []Attempt{{At: at, Duration: 1500 * time.Millisecond, Phase: "answered", Reason: "r", Status: 502}},
		History:  []Change{{At: at, Event: EventClaimed, By: "key", Detail: "d"}, {Event: EventHeld}},
		Previous: &Previous{ID: NewActionID(at), State: Refused, At: at},
	}
}

func TestRecordComesBackWhole(t *testing.T) {
	want := full()
	want.LeaseEnd = want.Created // the codec keeps milliseconds
	got, err := decodeRecord(encodeRecord(want))
	require.NoError(t, err)
	require.Equal(t, want, got)

	bare := &Record{State: InFlight}
	got, err = decodeRecord(encodeRecord(bare))
	require.NoError(t, err)
	require.Equal(t, bare, got)
}

func TestEveryTruncationAndAdditionIsUnreadable(t *testing.T) {
	whole := encodeRecord(full())
	for n := range whole {
		_, err := decodeRecord(whole[:n])
		require.ErrorIs(t, err, ErrUnreadable, "cut to %d bytes", n)
	}
	_, err := decodeRecord(append(whole, 0))
	require.ErrorIs(t, err, ErrUnreadable)
}

// TestRecordFormatIsFixed pins the stored form: records written by one release
// are read by the next. A change here needs a new format number.
func TestRecordFormatIsFixed(t *testing.T) {
	r := &Record{State: Succeeded, Connection: "c", Created: time.UnixMilli(1).UTC(), Outcome: Outcome{VendorStatus: 201}}
	want := append([]byte{1, 2, 0}, make([]byte, 16+16+32+32+32)...)
	want = append(want, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0) // times: 1 ms as a zigzag varint, then none
	want = append(want, 0, 0, 1, 'c', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	want = append(want, 0xc9, 0x01, 0, 0, 0) // status 201, no attempts, no history, no checks
	require.Equal(t, want, encodeRecord(r))
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(encodeRecord(full()))
	f.Add(encodeRecord(&Record{State: InFlight}))
	f.Add([]byte{})
	f.Add([]byte{recordFormat, 1, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decodeRecord(data)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) || r != nil {
				t.Fatalf("record %v beside error %v", r, err)
			}
			return
		}
		again, err := decodeRecord(encodeRecord(r))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func FuzzDecodeAnswer(f *testing.F) {
	f.Add(encodeAnswer([]byte("[]")))
	f.Add(encodeAnswer(bytes.Repeat([]byte("ab"), 600)))
	f.Add([]byte{answerZstd, 1, 2, 3})
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := decodeAnswer(data)
		if err != nil {
			require.ErrorIs(t, err, ErrUnreadable)
			return
		}
		again, err := decodeAnswer(encodeAnswer(out))
		require.NoError(t, err)
		require.True(t, bytes.Equal(out, again))
	})
}

func TestAnswersOf512BytesAndMoreAreCompressed(t *testing.T) {
	require.Len(t, encodeAnswer(bytes.Repeat([]byte("a"), 511)), 512)
	require.Less(t, len(encodeAnswer(bytes.Repeat([]byte("a"), 512))), 64)
}

func TestActionIDs(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	id := NewActionID(at)
	got, err := ParseActionID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, got)
	require.Less(t, id.String(), NewActionID(at.Add(time.Millisecond)).String(), "ids sort by time")
	for _, bad := range []string{
		"", "act_", id.String()[4:], "req_" + id.String()[4:], id.String() + "0", id.String()[:29],
		strings.ToLower(id.String()), "act_ZZZZZZZZZZZZZZZZZZZZZZZZZZ", "act_" + strings.Repeat("é", 13),
	} {
		_, err := ParseActionID(bad)
		require.ErrorIs(t, err, ErrNotFound, "%q", bad)
	}
}

func TestHistoryIsBounded(t *testing.T) {
	r := &Record{}
	for i := range 1000 {
		r.note(Change{Detail: strings.Repeat("x", i)})
	}
	require.Len(t, r.History, maxHistory)
	require.Empty(t, r.History[0].Detail, "how it began stays")
	require.Len(t, r.History[maxHistory-1].Detail, 999, "and how it stands")
}
