package actions

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnAnswerReadsAsItWasWritten(t *testing.T) {
	for _, a := range []*Answer{
		{Kind: ResultJSON, Data: []byte(`{"n":1.10,"a":[]}`)},
		{Kind: ResultJSON, Data: []byte(strings.Repeat(" ", 300) + "1"), Headers: map[string]string{"X-A": "é\"<\x00"}},
		{Kind: ResultBinary, ContentType: "image/png", Data: []byte{0, 0xff, '{', '}'}},
		{Kind: ResultOmitted, Reason: "too_large", Bytes: math.MaxInt64, SHA256: strings.Repeat("0", 64), Data: []byte{}},
		{Kind: ResultNone, ContentType: strings.Repeat("long", 100), Data: []byte{}},
	} {
		data := a.encode()
		got, err := decodeAnswer(data)
		require.NoError(t, err)
		require.Equal(t, a, got)
	}
}

func TestAStoredAnswerOfAnotherFormIsRefused(t *testing.T) {
	for _, data := range []string{
		"", "\x00", "\x05", "\x02{}", "\x01{", "\x0f{\"kind\":\"what\"}",
		"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		_, err := decodeAnswer([]byte(data))
		require.ErrorIs(t, err, errAnswerForm, "%q", data)
	}
}

func TestAStoredAnswerThatWasCutShortIsRefused(t *testing.T) {
	whole := (&Answer{Kind: ResultNone}).encode()
	for n := range whole {
		_, err := decodeAnswer(whole[:n]) // what was cut off still lies behind it
		require.ErrorIs(t, err, errAnswerForm)
	}
}

func FuzzDecodeAnswer(f *testing.F) {
	for _, a := range []Answer{
		{Kind: ResultJSON, Data: []byte(`{"a":1.10}`)},
		{Kind: ResultBinary, ContentType: "text/plain", Data: []byte{0xff}},
		{Kind: ResultOmitted, Reason: "too_large", Bytes: 7, SHA256: "00"},
		{Kind: ResultNone, Headers: map[string]string{"X-A": "b"}},
	} {
		data := a.encode()
		f.Add(data)
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := decodeAnswer(data)
		if err != nil {
			require.ErrorIs(t, err, errAnswerForm)
			return
		}
		again := a.encode()
		b, err := decodeAnswer(again)
		require.NoError(t, err)
		if len(a.Headers) == 0 {
			a.Headers = nil
		}
		require.Equal(t, string(a.Data), string(b.Data))
		a.Data, b.Data = nil, nil
		require.Equal(t, a, b)
	})
}
