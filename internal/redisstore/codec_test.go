package redisstore

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

func TestFrees(t *testing.T) {
	k := ledger.Key{Kind: ledger.Action, ID: "a"}
	held := ledger.Expect{Key: k, Version: ledger.Version{1}}
	for _, c := range []struct {
		name string
		step ledger.Step
		want bool
	}{
		{"nothing", ledger.Step{}, false},
		{"a row", ledger.Step{Rows: [][]byte{{1}}}, false},
		{"a count and a row", ledger.Step{Add: []ledger.Add{{Key: k}}, Rows: [][]byte{{1}}}, false},
		{"an index entry", ledger.Step{Index: []ledger.Entry{{}}}, false},
		{"a claim", ledger.Step{
			Expect: []ledger.Expect{{Key: ledger.Key{Kind: ledger.Binding}}},
			Put:    []ledger.Put{{Key: ledger.Key{Kind: ledger.Binding}}, {Key: k}},
		}, false},
		{"a claim over an old binding", ledger.Step{
			Expect: []ledger.Expect{{Key: ledger.Key{Kind: ledger.Binding}, Version: ledger.Version{1}}},
			Put:    []ledger.Put{{Key: ledger.Key{Kind: ledger.Binding}}, {Key: k}},
			Delete: []ledger.Key{k},
		}, false},
		{"something new", ledger.Step{Expect: []ledger.Expect{{Key: k}}, Put: []ledger.Put{{Key: k}}}, false},
		{"a change", ledger.Step{Expect: []ledger.Expect{held}, Put: []ledger.Put{{Key: k}}}, true},
		{"a release", ledger.Step{Delete: []ledger.Key{k}, Rows: [][]byte{{1}}}, true},
		{"a void", ledger.Step{Void: []ledger.Nonce{{1}}}, true},
		{"leaving an index", ledger.Step{Unindex: []ledger.Entry{{}}}, true},
	} {
		require.Equal(t, c.want, frees(c.step), c.name)
	}
}

// head is what stands in front of a value's data.
func head(v ledger.Version, expires time.Time) []byte {
	return binary.BigEndian.AppendUint64(v[:], uint64(millis(expires)))
}

func encodeCounter(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func TestRowIDs(t *testing.T) {
	ids := []rowID{{}, {0, 1}, {1, 0}, {1, 9}, {1, 10}, {9, 0}, {10, 0}, {1_760_000_000_000, 3}, {math.MaxInt64, math.MaxUint64}}
	for i, id := range ids {
		back, ok := parseCursor(id.cursor())
		require.True(t, ok)
		require.Equal(t, id, back)
		back, ok = parseRowID(id.String())
		require.True(t, ok)
		require.Equal(t, id, back)
		if i > 0 {
			require.True(t, ids[i-1].less(id))
			require.Less(t, ids[i-1].cursor(), id.cursor(), "bytes sort as rows do")
		}
	}
	for _, bad := range []string{
		"", "-", "1-1", "x", strings.Repeat("f", 16) + "-" + strings.Repeat("0", 16),
		strings.Repeat("0", 15) + "A-" + strings.Repeat("0", 16), " " + rowID{}.cursor(), rowID{}.cursor() + "0",
	} {
		_, ok := parseCursor(bad)
		require.False(t, ok, bad)
	}
}

func TestMillis(t *testing.T) {
	at := time.UnixMilli(5)
	require.Equal(t, int64(5), millis(at.Add(999*time.Microsecond)))
	require.Equal(t, int64(0), millis(time.Time{}))
	require.Equal(t, int64(5), ceilMillis(at))
	require.Equal(t, int64(6), ceilMillis(at.Add(1)))
	require.Equal(t, int64(-5), ceilMillis(time.UnixMilli(-5)))
	require.Equal(t, int64(0), before(time.Time{}))
	require.Equal(t, int64(5), before(at))
	require.Equal(t, int64(6), before(at.Add(1)), "no whole millisecond in between has reached it")
	require.Equal(t, "6", score(at.Add(1), "-inf"))
	require.Equal(t, "-inf", score(time.Time{}, "-inf"))
}

func TestRowBounds(t *testing.T) {
	ms := func(n int64) time.Time { return time.UnixMilli(n) }
	cursor := func(n uint64) string { return rowID{n, 7}.cursor() }
	for _, c := range []struct {
		r           ledger.RowRange
		first, last string
	}{
		{ledger.RowRange{}, "-", "+"},
		{ledger.RowRange{From: ms(5), To: ms(9)}, "5-0", "(9-0"},
		{ledger.RowRange{From: ms(5).Add(1), To: ms(9).Add(1)}, "6-0", "(10-0"},
		{ledger.RowRange{From: ms(-5), To: ms(-1)}, "0-0", "(0-0"},
		{ledger.RowRange{After: cursor(6)}, "(6-7", "+"},
		{ledger.RowRange{After: cursor(6), From: ms(5), To: ms(9)}, "(6-7", "(9-0"},
		{ledger.RowRange{After: cursor(3), From: ms(5)}, "5-0", "+"},
		{ledger.RowRange{Newest: true, After: cursor(6)}, "-", "(6-7"},
		{ledger.RowRange{Newest: true, After: cursor(6), From: ms(5), To: ms(9)}, "5-0", "(6-7"},
		{ledger.RowRange{Newest: true, After: cursor(12), To: ms(9)}, "-", "(9-0"},
	} {
		first, last, err := rowBounds(c.r)
		require.NoError(t, err)
		require.Equal(t, []string{c.first, c.last}, []string{first, last}, c.r)
	}
	_, _, err := rowBounds(ledger.RowRange{After: "x"})
	require.ErrorIs(t, err, errBadCursor)
}

func TestDecodeValue(t *testing.T) {
	v, err := decodeValue(string(head(ledger.Version{1}, time.UnixMilli(5))) + "data")
	require.NoError(t, err)
	require.Equal(t, ledger.Value{Version: ledger.Version{1}, Data: []byte("data")}, v)
	counter := string(head(ledger.Version{}, time.Time{})) + string(encodeCounter(-7))
	v, err = decodeValue(counter)
	require.NoError(t, err)
	require.Equal(t, ledger.Value{Data: []byte("-7")}, v)
	for _, torn := range []string{"", "torn", counter[:headSize], counter[:headSize+7], counter + "x"} {
		_, err := decodeValue(torn)
		require.ErrorIs(t, err, ledger.ErrCorrupt)
	}
}

func TestOnlyAFreshAnswerTeachesTheClock(t *testing.T) {
	now := string(encodeCounter(5))
	for mark, want := range map[string]bool{"A": true, "R": false, "V": true} {
		res, fresh, err := decodeResult(keysOf(ledger.Platform), mark+now)
		require.NoError(t, err)
		require.Equal(t, want, fresh, mark)
		require.Equal(t, mark != "V", res.Applied)
		require.Equal(t, mark == "V", res.Voided)
	}
}

// A command may be sent after its caller has given up and used its bytes anew.
func TestEncodedStepKeepsItsBytes(t *testing.T) {
	row, data := []byte("row"), []byte("data")
	step := ledger.Step{
		Nonce: ledger.Nonce{1}, Rows: [][]byte{row}, Put: []ledger.Put{{Data: data}},
		Expect: []ledger.Expect{{Version: ledger.Version{2}}},
	}
	c := encodeStep(keysOf(ledger.Platform), step, 0)
	before := wordsOf(c)
	copy(row, "XXX")
	copy(data, "XXXX")
	step.Expect[0].Version[0] = 3
	require.Equal(t, before, wordsOf(c))
	require.Contains(t, before, "row")
}

// wordsOf is what a call says behind what all calls say.
func wordsOf(c call) (words []string) {
	for _, w := range c.words[lead:] {
		words = append(words, *w.(*string))
	}
	return words
}

// A call that was sent by the sum of its script is sent by its text with the same
// words, and the first is left as it was: it may still lie in a queue.
func TestByTextLeavesTheCallBySumAlone(t *testing.T) {
	sc := newScript("#!lua", "return 1")
	c := encodeStep(keysOf(ledger.Platform), ledger.Step{Nonce: ledger.Nonce{1}}, 0)
	bySum := sc.bySum(c)
	byText := sc.byText(c)
	require.Equal(t, []any{"evalsha", sc.sum, c.keys}, bySum[:lead])
	require.Equal(t, []any{"eval", sc.text, c.keys}, byText[:lead])
	require.Equal(t, bySum[lead:], byText[lead:])
}

// A step that fetches just what it has conditions on names these keys once; any
// other names all that it fetches.
func TestFetchesNamedOnce(t *testing.T) {
	a, b := ledger.Key{Kind: ledger.Action, ID: "a"}, ledger.Key{Kind: ledger.Action, ID: "b"}
	for _, c := range []struct {
		expect []ledger.Expect
		fetch  []ledger.Fetch
		keys   int
	}{
		{nil, nil, 0},
		{[]ledger.Expect{{Key: a}}, nil, 1},
		{nil, []ledger.Fetch{{Key: a}}, 1},
		{[]ledger.Expect{{Key: a}, {Key: b}}, []ledger.Fetch{{Key: a}, {Key: b, Follow: []ledger.Kind{ledger.Answer}}}, 2},
		{[]ledger.Expect{{Key: a}, {Key: b}}, []ledger.Fetch{{Key: b}, {Key: a}}, 4},
		{[]ledger.Expect{{Key: a}, {Key: b}}, []ledger.Fetch{{Key: a}}, 3},
	} {
		got := encodeStep(keysOf(ledger.Platform), ledger.Step{Nonce: ledger.Nonce{1}, Expect: c.expect, Fetch: c.fetch}, 0)
		require.Equal(t, 2+c.keys, got.keys)
	}
}

func TestErrorCodes(t *testing.T) {
	for text, want := range map[string]string{
		"LOADING Redis is loading": "LOADING", "OOM": "OOM", "": "an error", "secret": "an error",
		"SECRET-1 x": "an error", "AVERYLONGWORDTHATMAYBEDATA": "an error",
	} {
		require.Equal(t, want, code(text))
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add(rowID{1_760_000_000_000, 3}.cursor())
	f.Add("0-0")
	f.Fuzz(func(t *testing.T, s string) {
		if id, ok := parseCursor(s); ok && id.cursor() != s {
			t.Errorf("%q", s)
		}
	})
}

func FuzzDecodeValue(f *testing.F) {
	f.Add(string(head(ledger.Version{1}, time.UnixMilli(5))) + "data")
	f.Add(string(head(ledger.Version{}, time.Time{})) + string(encodeCounter(-7)))
	f.Add("torn")
	f.Fuzz(func(t *testing.T, raw string) {
		v, err := decodeValue(raw)
		if err != nil {
			require.ErrorIs(t, err, ledger.ErrCorrupt)
			return
		}
		if v.Version != (ledger.Version{}) {
			require.Equal(t, raw[headSize:], string(v.Data))
		}
	})
}

// FuzzReplies feeds the decoders lists of every shape two levels deep.
func FuzzReplies(f *testing.F) {
	f.Add("A01234567", "01234567", "k", "v", uint8(0))
	f.Add("N", "01234567", "hf:{AAAAAAAAAAAAAAAAAAAAAA}:ea", "0123456789abcdef", uint8(7))
	f.Fuzz(func(t *testing.T, a, b, c, d string, shape uint8) {
		var inner any = []any{c, d}
		if shape&1 != 0 {
			inner = []any{c, []any{d, b}}
		}
		if shape&2 != 0 {
			inner = c
		}
		replies := []any{nil, a, int64(shape), []any{a, b}, []any{a, b, inner}, []any{b, inner}, []any{inner}, inner}
		ks := keysOf(ledger.Platform)
		for _, r := range replies {
			if res, _, err := decodeResult(ks, r); err == nil && !res.Applied && !res.Voided && res.Values == nil {
				t.Error("no verdict and no error")
			}
			_, _ = decodeSnapshot(ks, r)
			_, _ = decodeEntries(ledger.ByHold, r)
			_, _ = decodeRows(r)
			_, _ = call{echo: "01234567"}.answer(r)
		}
	})
}

// An answer is only that of a call whose echo it carries, at the end of a string or
// of the first thing in a list.
func TestAnAnswerCarriesItsEcho(t *testing.T) {
	c := newCall([]string{"k"}, "argument").withEcho()
	require.Len(t, c.echo, echoSize)
	require.Equal(t, []any{"k", "argument", c.echo}, c.words[lead:])
	require.NotEqual(t, c.echo, newCall([]string{"k"}).withEcho().echo)
	require.NotEqual(t, make([]byte, echoSize), []byte(encodeStep(keysOf(ledger.Platform), ledger.Step{Nonce: ledger.NewNonce()}, 0).echo))

	for _, good := range []struct{ said, meant any }{
		{"text" + c.echo, "text"},
		{[]any{c.echo, []any{"a"}}, []any{"", []any{"a"}}},
		{[]any{"time" + c.echo, "more"}, []any{"time", "more"}},
	} {
		got, err := c.answer(good.said)
		require.NoError(t, err)
		require.Equal(t, good.meant, got)
	}
	for _, bad := range []any{
		nil, int64(1), "", "text", c.echo + "text", []any{}, []any{nil}, []any{int64(1)}, []any{"", c.echo}, []any{[]any{c.echo}},
	} {
		_, err := c.answer(bad)
		require.ErrorIs(t, err, ledger.ErrUnavailable)
	}
}
