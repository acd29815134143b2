package dedupe

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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
	for _, want := range []*Record{want, {State: InFlight}, earlier()["settled"], earlier()["held"]} {
		got, err := decodeRecord(want.ID, encodeRecord(want))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestEveryRecordComesBackWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := anyRecord(t)
		data := encodeRecord(want)
		got, err := decodeRecord(want.ID, data)
		require.NoError(t, err)
		require.Equal(t, want, got)

		at := rapid.IntRange(0, len(data)-1).Draw(t, "byte")
		data[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		_, err = decodeRecord(want.ID, data)
		require.ErrorIs(t, err, ErrUnreadable, "a bit of byte %d is damaged", at)
	})
}

func TestEveryTruncationAndAdditionIsUnreadable(t *testing.T) {
	rec := full()
	whole := encodeRecord(rec)
	for n := range whole {
		_, err := decodeRecord(rec.ID, whole[:n])
		require.ErrorIs(t, err, ErrUnreadable, "cut to %d bytes", n)
		if n > 0 && n != len(whole)-sumSize {
			_, err = decodeRecord(rec.ID, resum(rec.ID, whole[:n]))
			require.ErrorIs(t, err, ErrUnreadable, "cut to %d bytes, with a checksum", n)
		}
	}
	_, err := decodeRecord(rec.ID, append(whole, 0))
	require.ErrorIs(t, err, ErrUnreadable)
	_, err = decodeRecord(rec.ID, resum(rec.ID, append(whole[:len(whole)-sumSize:len(whole)-sumSize], 0)))
	require.ErrorIs(t, err, ErrUnreadable)
}

func TestRecordOfAnotherActionIsUnreadable(t *testing.T) {
	rec := full()
	_, err := decodeRecord(NewActionID(rec.Created), encodeRecord(rec))
	require.ErrorIs(t, err, ErrUnreadable)
}

// TestRecordFormatIsFixed pins the stored form: records written by one release
// are read by the next. A change here needs a new format number.
func TestRecordFormatIsFixed(t *testing.T) {
	for name, rec := range earlier() {
		path := "testdata/format2/" + name + ".hex"
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSpace(string(want)), hex.EncodeToString(encodeRecord(rec)), path)
	}
}

// TestNumbersOfWordsAreFixed: a word that moves turns into another in records that
// are stored. New ones go to the end.
func TestNumbersOfWordsAreFixed(t *testing.T) {
	require.Len(t, wordNumbers, len(words), "no word stands twice")
	require.Len(t, eventNumbers, len(events))
	require.LessOrEqual(t, len(events), changeEvent)
	require.LessOrEqual(t, len(words), 64, "in one byte")
	require.Equal(t, "derived supplied vendor check operator not_sent sent_no_answer answered owner_lost claim_unconfirmed "+
		"internal answer_encoding found rate_limit credential unavailable rule no_rule rule_failed body status connector "+
		"deadline canceled cut reset malformed head_size gzip encoding not_json upgraded invalid_url invalid_method "+
		"invalid_header invalid dns refused dial tls egress_denied not_permitted closed resend: sending", strings.Join(words[:], " "))
	require.Equal(t, "[claimed succeeded refused held not_sent released replayed in_flight key_reused twin_refused lease_lost "+
		"late_answer held_repeat lapsed not_done resolved checked recovered]", fmt.Sprint(events))
}

func TestIDsArePacked(t *testing.T) {
	created := time.UnixMilli(1_764_482_400_123).UTC()
	request := "req_" + NewActionID(created.Add(-3 * time.Millisecond)).String()[len(actionPrefix):]
	for s, size := range map[string]int{
		"": 1, "x": 2,
		"0123456789abcdef0123456789abcdef":        17,
		strings.Repeat("0f", 32):                  34,
		"0f":                                      3,
		"0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0ff":    17,
		"con_" + rand.Text():                      18,
		request:                                   12,
		"req_00000000000000000000000000":          17,
		"req_7ZZZZZZZZZZZZZZZZZZZZZZZZZ":          18,
		strings.Repeat("a", keyDigits):            25,
		"77777777777777777777777777777777777777y": 25,

		// Not as the gateway spells them, or not its own: as they are.
		strings.Repeat("0f", 65):                  132,
		"0F":                                      3,
		"0f1":                                     4,
		"0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0fF":    37,
		"0f1e2d3c-4b5a-4978-8695-a4b3c2d1e0-f":    37,
		"con_abcdefghijklmnopqrstuvwxyz":          31,
		"con_ABCDEFGHIJKLMNOPQRSTUVWXY1":          31,
		"cox_ABCDEFGHIJKLMNOPQRSTUVWXYZ":          31,
		strings.ToLower(request):                  31,
		"req_8ZZZZZZZZZZZZZZZZZZZZZZZZZ":          31,
		"req_7ZZZZZZZZZZZZZZZZZZZZZZZZU":          31,
		"act" + request[3:]:                       31,
		"77777777777777777777777777777777777777z": 40,
		strings.Repeat("A", keyDigits):            40,
	} {
		var w writer
		w.id(s, created)
		require.Len(t, []byte(w), size, s)
		r := reader{rest: w}
		require.Equal(t, s, r.id(created))
		require.True(t, r.ended())
	}
}

// TestOtherFormsAreUnreadable: what says the same as the encoder would have said
// otherwise was not written by it.
func TestOtherFormsAreUnreadable(t *testing.T) {
	at := time.UnixMilli(1_764_482_400_123).UTC()
	for name, c := range map[string]struct {
		data []byte
		read func(r *reader)
	}{
		"a long number":            {[]byte{0x80, 0}, func(r *reader) { r.uint() }},
		"a word as it is":          {append([]byte{2 * 7}, "derived"...), func(r *reader) { r.word() }},
		"no word":                  {[]byte{2*60 | 1}, func(r *reader) { r.word() }},
		"an id as it is":           {append([]byte{64}, strings.Repeat("0", 32)...), func(r *reader) { r.id(at) }},
		"an unknown form":          {[]byte{2*6 | 1}, func(r *reader) { r.id(at) }},
		"a marker as any hex":      {append([]byte{1, 16}, make([]byte, 16)...), func(r *reader) { r.id(at) }},
		"no hex":                   {[]byte{1, 0}, func(r *reader) { r.id(at) }},
		"hex that is kept":         {append([]byte{1, 65}, make([]byte, 65)...), func(r *reader) { r.id(at) }},
		"bits behind an id":        {append([]byte{2*formConn | 1}, bytes.Repeat([]byte{0xff}, 17)...), func(r *reader) { r.id(at) }},
		"a request's time":         {append([]byte{2*formReq | 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, make([]byte, 10)...), func(r *reader) { r.id(at) }},
		"milliseconds of seconds":  {[]byte{1 + 0}, func(r *reader) { r.time(at) }},
		"seconds beyond":           {binary.AppendUvarint(nil, math.MaxUint64-1), func(r *reader) { r.time(at) }},
		"the zero time":            {binary.AppendUvarint(nil, 1+(zigzag(noMillis/second)<<1|1)), func(r *reader) { r.time(time.Time{}) }},
		"a duration beyond":        {binary.AppendVarint(nil, math.MaxInt64), func(r *reader) { r.millis() }},
		"an attempt like the rest": {append([]byte{1}, make([]byte, 6)...), func(r *reader) { r.attempts(&Record{}) }},
		"an event as it is":        {append([]byte{1, 0, 0, 7}, "claimed"...), func(r *reader) { r.history(&Record{}) }},
		"no event":                 {[]byte{1, 31, 0}, func(r *reader) { r.history(&Record{}) }},
		"by a key that is none":    {[]byte{1, 1 | changeByKey, 0}, func(r *reader) { r.history(&Record{}) }},
		"no detail":                {[]byte{1, 1 | changeDetail, 0, 0}, func(r *reader) { r.history(&Record{}) }},
	} {
		r := reader{rest: c.data}
		c.read(&r)
		require.True(t, r.bad, name)
	}
	bare := encodeRecord(&Record{State: InFlight})
	bare = bare[:len(bare)-sumSize]
	for flag, more := range map[byte]int{flagChecker: 16, flagChecked: 4} {
		data := append(bytes.Clone(bare), make([]byte, more)...)
		data[2] |= flag
		_, err := decodeRecord(ActionID{}, resum(ActionID{}, data))
		require.ErrorIs(t, err, ErrUnreadable, "flag %x", flag)
	}
}

// resum gives cut or changed bytes the checksum they would have.
func resum(id ActionID, body []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(body), sumOf(&id, body))
}

func FuzzDecodeRecord(f *testing.F) {
	for _, rec := range append(slices.Collect(maps.Values(earlier())), full()) {
		data := encodeRecord(rec)
		f.Add(data[:len(data)-sumSize])
		if old, err := os.ReadFile("testdata/format1/settled.bin"); err == nil {
			f.Add(old)
		}
	}
	f.Add([]byte{})
	f.Add([]byte{recordFormat, 1, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		id := ActionID{1, 2, 3}
		if len(data) > 19 && data[0] == 1 {
			id = ActionID(data[3:19])
		} else {
			data = resum(id, data)
		}
		r, err := decodeRecord(id, data)
		if err != nil {
			if !errors.Is(err, ErrUnreadable) || r != nil {
				t.Fatalf("record %v beside error %v", r, err)
			}
			return
		}
		written := encodeRecord(r)
		if data[0] == recordFormat {
			require.Equal(t, data, written, "a record has one form")
		}
		again, err := decodeRecord(id, written)
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
