package archive_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/seal"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ring(t testing.TB, seeds ...byte) *seal.Ring {
	t.Helper()
	var keys []string
	for _, s := range seeds {
		key := make([]byte, 32)
		key[0], key[1] = s, 1
		keys = append(keys, base64.StdEncoding.EncodeToString(key))
	}
	r, err := seal.Parse(strings.Join(keys, ","))
	require.NoError(t, err)
	return r
}

// sample is a log of three segments with rows 1-4, 5-8, 9-12, each a list of its
// lines, and their checkpoints.
type sample struct {
	scope    ledger.Scope
	ring     *seal.Ring
	segments [][]string
	marks    []archive.Checkpoint
}

func auditRow(n int) ledger.Row {
	at := noon.Add(time.Duration(n) * time.Second)
	return ledger.Row{
		Cursor: fmt.Sprintf("%016x", n), At: at,
		Data: audit.Row{Event: audit.Claimed, At: at, Tenant: "acme", ActionID: fmt.Sprintf("act_%d", n)}.Encode(),
	}
}

func newSample(t testing.TB, tenant string) sample {
	s := sample{scope: ledger.ScopeOf(tenant), ring: ring(t, 1)}
	h := archive.NewHead(s.scope, tenant)
	for n := 1; n <= 12; n += 4 {
		rows := []ledger.Row{auditRow(n), auditRow(n + 1), auditRow(n + 2), auditRow(n + 3)}
		var text string
		var mark archive.Checkpoint
		text, mark, h = archive.BuildSegment(s.ring, h, s.scope, noon.Add(time.Hour), false, rows...)
		s.segments = append(s.segments, slices.Collect(strings.Lines(text)))
		s.marks = append(s.marks, mark)
	}
	return s
}

func (s *sample) text() string {
	var b strings.Builder
	for _, lines := range s.segments {
		b.WriteString(strings.Join(lines, ""))
	}
	return b.String()
}

func (s *sample) keys() archive.Keys { return archive.NewKeys(s.ring.SigningKeys()...) }

func (s *sample) verify(t testing.TB, later *archive.Checkpoint) archive.Report {
	t.Helper()
	r, err := archive.Verify(strings.NewReader(s.text()), s.keys(), later)
	require.NoError(t, err)
	return r
}

func TestAWholeLogIsProvenToItsLastRow(t *testing.T) {
	s := newSample(t, "acme")
	r := s.verify(t, nil)
	require.True(t, r.Whole(), "%v", r.Findings)
	require.Equal(t, uint64(1), r.Begins)
	require.Equal(t, uint64(12), r.Proven)
	require.Equal(t, noon.Add(12*time.Second), r.ProvenAt)
	require.Equal(t, "acme", r.Tenant)
	require.Equal(t, [3]int{3, 12, 0}, [3]int{r.Segments, r.Rows, r.Open})

	t.Run("with rows that are not sealed yet", func(t *testing.T) {
		for n := 13; n <= 14; n++ {
			s.segments = append(s.segments, []string{string(archive.Row{Row: auditRow(n), Seq: uint64(n)}.OpenLine())})
		}
		r := s.verify(t, &s.marks[2])
		require.True(t, r.Whole(), "%v", r.Findings)
		require.Equal(t, uint64(12), r.Proven)
		require.Equal(t, 2, r.Open)
	})
}

// tampering is one thing done to a log, and where it must be found.
type tampering struct {
	name    string
	do      func(s *sample)
	later   int // 1..3: the checkpoint that was put aside
	kind    string
	segment uint64
	row     uint64
	proven  uint64
}

func replace(s *sample, segment, line int, old, with string) {
	lines := s.segments[segment-1]
	if !strings.Contains(lines[line], old) {
		panic("nothing to replace")
	}
	lines[line] = strings.Replace(lines[line], old, with, 1)
}

// forge makes a row as an attacker without the signing key can: with a hash that
// fits the row before it.
func forge(s *sample, segment int, seq uint64, like int) string {
	prev := archive.Genesis(s.scope, "acme")
	for n := 1; n < int(seq); n++ {
		r := auditRow(n)
		prev = prev.Next(uint64(n), r.At, r.Cursor, r.Data)
	}
	r := auditRow(like)
	return string(archive.Row{Row: r, Seq: seq, Hash: prev.Next(seq, r.At, r.Cursor, r.Data)}.SealedLine())
}

func tamperings() []tampering {
	other := func(t *sample) sample {
		o := newSample(panicker{}, "rival")
		return o
	}
	return []tampering{
		{name: "a changed byte of a row", do: func(s *sample) { replace(s, 2, 2, "act_6", "act_7") },
			kind: archive.ChangedRow, segment: 2, row: 6, proven: 4},
		{name: "a changed byte in the middle of the time of a row", do: func(s *sample) { replace(s, 2, 2, `"at":"2026-03-01T12:00:06`, `"at":"2026-03-01T12:00:16`) },
			kind: archive.ChangedRow, segment: 2, row: 6, proven: 4},
		{name: "a changed cursor", do: func(s *sample) { replace(s, 2, 1, `"cursor":"0`, `"cursor":"1`) },
			kind: archive.ChangedRow, segment: 2, row: 5, proven: 4},
		{name: "a byte that breaks the form of a row", do: func(s *sample) { replace(s, 2, 2, `"cursor"`, `"curs0r"`) },
			kind: archive.Unreadable, segment: 2, proven: 4},
		{name: "a byte of the header", do: func(s *sample) { replace(s, 2, 0, `"prev"`, `"prEv"`) },
			kind: archive.Unreadable, proven: 4},
		{name: "a changed time in the header", do: func(s *sample) { replace(s, 2, 0, `12:00:05`, `11:00:05`) },
			kind: archive.AlteredSegment, segment: 2, row: 5, proven: 4},
		{name: "a changed hash in the header", do: func(s *sample) {
			h := s.segments[1][0]
			at := strings.Index(h, `"prev":"`) + 8
			s.segments[1][0] = h[:at] + strings.Repeat("0", 64) + h[at+64:]
		}, kind: archive.AlteredSegment, segment: 2, row: 5, proven: 4},
		{name: "a changed time in the checkpoint", do: func(s *sample) { replace(s, 2, 5, `13:00:00`, `14:00:00`) },
			kind: archive.BadSignature, segment: 2, row: 8, proven: 4},
		{name: "a row hidden in base64", do: func(s *sample) {
			row := auditRow(6).Data
			replace(s, 2, 2, `"row":`+string(row), `"raw_base64":"`+base64.StdEncoding.EncodeToString(row)+`"`)
		}, kind: archive.Unreadable, segment: 2, proven: 4},
		{name: "the border between the first two segments", do: func(s *sample) {
			merged := slices.Concat(s.segments[0][:5], s.segments[1][1:])
			merged[0] = strings.Replace(merged[0], `"number":1`, `"number":2`, 1)
			s.segments = [][]string{merged, s.segments[2]}
		}, kind: archive.AlteredSegment, segment: 2, row: 1},
		{name: "a removed row", do: func(s *sample) { s.segments[1] = slices.Delete(s.segments[1], 2, 3) },
			kind: archive.MissingRow, segment: 2, row: 6, proven: 4},
		{name: "a removed last row", do: func(s *sample) { s.segments[1] = slices.Delete(s.segments[1], 4, 5) },
			kind: archive.MissingRow, segment: 2, row: 8, proven: 4},
		{name: "two removed rows", do: func(s *sample) { s.segments[1] = slices.Delete(s.segments[1], 2, 4) },
			kind: archive.MissingRow, segment: 2, row: 6, proven: 4},
		{name: "an inserted row", do: func(s *sample) { s.segments[1] = slices.Insert(s.segments[1], 3, forge(s, 2, 6, 99)) },
			kind: archive.InsertedRow, segment: 2, row: 6, proven: 4},
		{name: "an inserted row in front of the one it copies", do: func(s *sample) { s.segments[1] = slices.Insert(s.segments[1], 2, forge(s, 2, 6, 99)) },
			kind: archive.InsertedRow, segment: 2, row: 6, proven: 4},
		{name: "a row inserted behind the last", do: func(s *sample) { s.segments[1] = slices.Insert(s.segments[1], 5, forge(s, 2, 9, 99)) },
			kind: archive.InsertedRow, segment: 2, row: 9, proven: 4},
		{name: "a row without a hash", do: func(s *sample) {
			s.segments[1] = slices.Insert(s.segments[1], 3, string(archive.Row{Row: auditRow(99), Seq: 7}.OpenLine()))
		}, kind: archive.InsertedRow, segment: 2, row: 7, proven: 4},
		{name: "a replaced row whose hash was made to fit", do: func(s *sample) { s.segments[1][2] = forge(s, 2, 6, 99) },
			kind: archive.ChangedRow, segment: 2, row: 7, proven: 4},
		{name: "a replaced last row whose hash was made to fit", do: func(s *sample) { s.segments[1][4] = forge(s, 2, 8, 99) },
			kind: archive.AlteredSegment, segment: 2, row: 5, proven: 4},
		{name: "swapped rows", do: func(s *sample) { l := s.segments[1]; l[2], l[3] = l[3], l[2] },
			kind: archive.SwappedRows, segment: 2, row: 6, proven: 4},
		{name: "a repeated row", do: func(s *sample) { s.segments[1] = slices.Insert(s.segments[1], 3, s.segments[1][2]) },
			kind: archive.InsertedRow, segment: 2, row: 6, proven: 4},
		{name: "a missing segment", do: func(s *sample) { s.segments = slices.Delete(s.segments, 1, 2) },
			kind: archive.MissingSegment, segment: 2, row: 5, proven: 4},
		{name: "swapped segments", do: func(s *sample) { s.segments[1], s.segments[2] = s.segments[2], s.segments[1] },
			kind: archive.MissingSegment, segment: 2, row: 5, proven: 4},
		{name: "a repeated segment", do: func(s *sample) { s.segments = slices.Insert(s.segments, 2, s.segments[1]) },
			kind: archive.StraySegment, segment: 2, proven: 8},
		{name: "another tenant's segment", do: func(s *sample) { o := other(s); s.segments[1] = o.segments[1] },
			kind: archive.ForeignSegment, segment: 2, proven: 4},
		{name: "another tenant's segment under this one's name", do: func(s *sample) {
			o := other(s)
			text := strings.Join(o.segments[1], "")
			text = strings.ReplaceAll(text, archive.ScopeID(o.scope).String(), archive.ScopeID(s.scope).String())
			s.segments[1] = slices.Collect(strings.Lines(strings.ReplaceAll(text, `"rival"`, `"acme"`)))
		}, kind: archive.AlteredSegment, segment: 2, row: 5, proven: 4},
		{name: "a log that begins as another tenant's", do: func(s *sample) {
			o := other(s)
			text := strings.Join(o.segments[0], "")
			text = strings.ReplaceAll(text, archive.ScopeID(o.scope).String(), archive.ScopeID(s.scope).String())
			s.segments = [][]string{slices.Collect(strings.Lines(strings.ReplaceAll(text, `"rival"`, `"acme"`)))}
		}, kind: archive.AlteredSegment, segment: 1, row: 1},
		{name: "a truncated tail, with a later checkpoint", do: func(s *sample) { s.segments = s.segments[:2] }, later: 3,
			kind: archive.Truncated, row: 9, proven: 8},
		{name: "a segment without its checkpoint", do: func(s *sample) { s.segments[2] = s.segments[2][:4] },
			kind: archive.Truncated, segment: 3, row: 9, proven: 8},
		{name: "nothing at all, with a later checkpoint", do: func(s *sample) { s.segments = nil }, later: 3,
			kind: archive.Truncated, row: 1},
		{name: "another log with good signatures, with a later checkpoint", do: func(s *sample) {
			h := archive.NewHead(s.scope, "acme")
			text, _, _ := archive.BuildSegment(s.ring, h, s.scope, noon, false, auditRow(1), auditRow(2))
			s.segments = [][]string{slices.Collect(strings.Lines(text))}
		}, later: 1, kind: archive.Rewritten, segment: 1, row: 2, proven: 0},
		{name: "a key nobody gave", do: func(s *sample) { s.ring = ring(panicker{}, 9) },
			kind: archive.UnknownKey, segment: 1, row: 4},
		{name: "rows of a filtered export", do: func(s *sample) {
			s.segments = [][]string{{string(archive.Row{Row: auditRow(3), Seq: 3}.OpenLine())}}
		}, kind: archive.Filtered},
		{name: "rows behind the checkpoint are missing", do: func(s *sample) {
			s.segments = append(s.segments, []string{string(archive.Row{Row: auditRow(14), Seq: 14}.OpenLine())})
		}, kind: archive.MissingRow, row: 14, proven: 12},
	}
}

// panicker is a testing.TB for what cannot fail.
type panicker struct{ testing.TB }

func (panicker) Helper()                   {}
func (panicker) Errorf(f string, a ...any) { panic(fmt.Sprintf(f, a...)) }
func (panicker) FailNow()                  { panic("failed") }

func TestEveryTamperingIsFoundAndLocated(t *testing.T) {
	for _, c := range tamperings() {
		t.Run(c.name, func(t *testing.T) {
			s := newSample(t, "acme")
			var later *archive.Checkpoint
			if c.later > 0 {
				later = &s.marks[c.later-1]
			}
			require.True(t, s.verify(t, later).Whole())
			c.do(&s)
			r := s.verify(t, later)
			require.NotEmpty(t, r.Findings)
			first := r.Findings[0]
			require.Equal(t, c.kind, first.Kind, "%v", r.Findings)
			require.Equal(t, c.segment, first.Segment, "%v", r.Findings)
			require.Equal(t, c.row, first.Row, "%v", r.Findings)
			require.False(t, r.Whole())
			require.Equal(t, c.proven, r.Proven)
			require.LessOrEqual(t, len(r.Findings), 4, "one thing was done: %v", r.Findings)
		})
	}
}

// TestEveryByteCounts changes each byte of a log, one after another.
func TestEveryByteCounts(t *testing.T) {
	s := newSample(t, "acme")
	s.segments = s.segments[:1] // every kind of line is in it
	text := []byte(s.text())
	keys := s.keys()
	for i := range text {
		was, with := text[i], []byte{text[i] ^ 1, ' ', text[i] ^ 32}[i%3]
		if was == with {
			with = '0'
		}
		text[i] = with
		r, err := archive.Verify(strings.NewReader(string(text)), keys, nil)
		require.NoError(t, err)
		require.False(t, r.Whole(), "byte %d, %q for %q", i, with, was)
		text[i] = was
	}
}

// TestATruncatedTailWithoutALaterCheckpointSaysHowFarItProves: nothing can show
// that more was there, so the report says up to where it goes.
func TestATruncatedTailWithoutALaterCheckpointSaysHowFarItProves(t *testing.T) {
	s := newSample(t, "acme")
	s.segments = s.segments[:2]
	r := s.verify(t, nil)
	require.True(t, r.Whole())
	require.Equal(t, uint64(8), r.Proven)
	require.Equal(t, noon.Add(8*time.Second), r.ProvenAt)
	require.True(t, s.verify(t, &s.marks[0]).Whole(), "an earlier checkpoint still holds")
}

func TestALogMayBeginBehindWhatRetentionRemoved(t *testing.T) {
	s := newSample(t, "acme")
	s.segments = s.segments[1:]
	r := s.verify(t, &s.marks[2])
	require.True(t, r.Whole(), "%v", r.Findings)
	require.Equal(t, uint64(5), r.Begins)
	r = s.verify(t, &s.marks[0])
	require.Equal(t, archive.Truncated, r.Findings[0].Kind)
}

// TestSignersMayChange: old checkpoints are checked with the key of their time.
func TestSignersMayChange(t *testing.T) {
	scope := ledger.ScopeOf("acme")
	h := archive.NewHead(scope, "acme")
	one, _, h := archive.BuildSegment(ring(t, 1), h, scope, noon, false, auditRow(1))
	two, _, _ := archive.BuildSegment(ring(t, 2, 1), h, scope, noon, false, auditRow(2))
	keys := ring(t, 2, 1).SigningKeys()
	r, err := archive.Verify(strings.NewReader(one+two), archive.NewKeys(keys...), nil)
	require.NoError(t, err)
	require.True(t, r.Whole(), "%v", r.Findings)
	r, err = archive.Verify(strings.NewReader(one+two), archive.NewKeys(keys[0]), nil)
	require.NoError(t, err)
	require.Equal(t, archive.UnknownKey, r.Findings[0].Kind)
	require.Equal(t, uint64(1), r.Findings[0].Segment)
}

func TestAFinalSegmentMayBeEmpty(t *testing.T) {
	scope := ledger.ScopeOf("acme")
	h := archive.NewHead(scope, "acme")
	one, _, h := archive.BuildSegment(ring(t, 1), h, scope, noon, false, auditRow(1))
	end, mark, _ := archive.BuildSegment(ring(t, 1), h, scope, noon.Add(time.Hour), true)
	r, err := archive.Verify(strings.NewReader(one+end), archive.NewKeys(ring(t, 1).SigningKeys()...), &mark)
	require.NoError(t, err)
	require.True(t, r.Whole(), "%v", r.Findings)
	require.True(t, r.Final)
}

func TestARowThatCannotBeReadIsKeptAsItIs(t *testing.T) {
	scope := ledger.ScopeOf("acme")
	rows := []ledger.Row{{Cursor: "1", At: noon, Data: []byte("torn\n\x00")}, {Cursor: "2", At: noon, Data: []byte{}}, {Cursor: "3", At: noon, Data: []byte(`{"v":2}`)}}
	text, _, _ := archive.BuildSegment(ring(t, 1), archive.NewHead(scope, "acme"), scope, noon, false, rows...)
	require.Equal(t, 5, strings.Count(text, "\n"))
	r, err := archive.Verify(strings.NewReader(text), archive.NewKeys(ring(t, 1).SigningKeys()...), nil)
	require.NoError(t, err)
	require.True(t, r.Whole(), "%v", r.Findings)
	got, err := archive.ParseRows([]byte(text))
	require.NoError(t, err)
	for i := range rows {
		require.Equal(t, rows[i].Data, got[i].Data)
		require.Equal(t, rows[i].Cursor, got[i].Cursor)
		require.True(t, rows[i].At.Equal(got[i].At))
	}
}

func TestKeysAndCheckpointsInTextForm(t *testing.T) {
	key := ring(t, 1).SigningKeys()[0]
	again, err := archive.ParseKey(archive.FormatKey(key) + "\n")
	require.NoError(t, err)
	require.Equal(t, key, again)
	for _, bad := range []string{"", "x", archive.FormatKey(ed25519.PublicKey("short")), archive.FormatKey(key)[1:]} {
		_, err := archive.ParseKey(bad)
		require.Error(t, err)
	}
	s := newSample(t, "acme")
	mark, err := archive.ParseCheckpoint(s.marks[0].Line())
	require.NoError(t, err)
	require.Equal(t, s.marks[0], mark)
	require.NoError(t, mark.Check(s.keys()))
	for _, bad := range []string{"", "{}", strings.Replace(string(mark.Line()), `,"final"`, ` ,"final"`, 1)} {
		_, err := archive.ParseCheckpoint([]byte(bad))
		require.Error(t, err)
	}
}

// TestLinesOfAnyLength: long ones are read, those longer than any are passed over.
func TestLinesOfAnyLength(t *testing.T) {
	s := newSample(t, "acme")
	h := archive.NewHead(s.scope, "acme")
	large := auditRow(1)
	large.Data = []byte(strings.Repeat("x", 300_000))
	text, _, _ := archive.BuildSegment(s.ring, h, s.scope, noon, false, large, auditRow(2))
	r, err := archive.Verify(strings.NewReader(text), s.keys(), nil)
	require.NoError(t, err)
	require.True(t, r.Whole(), "%v", r.Findings)
	for _, more := range []string{strings.Repeat("y", 3<<20) + "\n", strings.Repeat("y", 3<<20)} {
		r, err = archive.Verify(strings.NewReader(text+more), s.keys(), nil)
		require.NoError(t, err)
		require.Len(t, r.Findings, 1)
		require.Equal(t, archive.Unreadable, r.Findings[0].Kind)
		require.Equal(t, 5, r.Findings[0].Line)
		require.Equal(t, uint64(2), r.Proven)
	}
}

// FuzzVerify: whatever is read, the verifier ends, keeps within its bounds, and
// calls whole only what is made of lines that a gateway signed.
func FuzzVerify(f *testing.F) {
	s := newSample(f, "acme")
	f.Add([]byte(s.text()))
	for _, c := range tamperings() {
		t := newSample(f, "acme")
		c.do(&t)
		f.Add([]byte(t.text()))
	}
	keys := s.keys()
	genuine := map[string]bool{}
	for _, lines := range s.segments {
		for _, l := range lines {
			genuine[strings.TrimSuffix(l, "\n")] = true
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := archive.Verify(strings.NewReader(string(text)), keys, &s.marks[0])
		require.NoError(t, err)
		require.LessOrEqual(t, len(r.Findings), 100)
		if r.Whole() {
			for line := range strings.Lines(string(text)) {
				line = strings.TrimSuffix(line, "\n")
				require.True(t, genuine[line] || !strings.Contains(line, `"hash":"`) && strings.HasPrefix(line, `{"type":"row"`), "%q", line)
			}
		}
		_, _ = archive.ParseRows(text)
	})
}

// TestTheFormIsKept: logs outlive releases, so what is written, hashed and signed
// must not change by accident.
func TestTheFormIsKept(t *testing.T) {
	s := newSample(t, "acme")
	for line, want := range map[int]string{
		0: `{"type":"segment","v":1,"tenant":"acme","scope":"aa899763c9d5c6e72c52d33b59be0978","number":2,"first":5,"prev":"a883a7d4281edc2c00ee0479c8b4d0cb4619df0b0b10a8f16a017efe3443f66f","from":"2026-03-01T12:00:05.000Z"}`,
		1: `{"type":"row","seq":5,"at":"2026-03-01T12:00:05.000Z","cursor":"0000000000000005","hash":"566adece59ae134ef3784815e0e3752eaeb64cdd758ba632048e31a3f10dea81","row":{"v":1,"event":"claimed","at":"2026-03-01T12:00:05.000Z","tenant":"acme","actor":{"kind":""},"action_id":"act_5"}}`,
		5: `{"type":"checkpoint","tenant":"acme","scope":"aa899763c9d5c6e72c52d33b59be0978","segment":2,"seq":8,"head":"cedb36563cb9a69c241cd640a33b9063b6af6557e3a04bf6af66ff906a1f5484","at":"2026-03-01T13:00:00.000Z","final":false,"key_id":"defc17c8aaf2b7ed","signature":"/nxB0isSbPSKgLVEXHrCOzIo3oVgWbcC0M8NT8SQ8ahxY3eQnCxwujseihDMVqYNrcazBpDNwUCVSlTMBIM5Cg=="}`,
	} {
		require.Equal(t, want+"\n", s.segments[1][line])
	}
}
