package actions

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestAnAnswerReadsAsItWasWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &Answer{
			Kind:        rapid.SampledFrom([]AnswerKind{ResultJSON, ResultBinary, ResultOmitted, ResultNone}).Draw(t, "kind"),
			ContentType: rapid.String().Draw(t, "type"),
			Headers:     rapid.MapOfN(rapid.String(), rapid.String(), 1, 4).Draw(t, "headers"),
			Reason:      rapid.String().Draw(t, "reason"),
			Bytes:       rapid.Int64().Draw(t, "bytes"),
			SHA256:      rapid.String().Draw(t, "sha"),
			Data:        rapid.SliceOf(rapid.Byte()).Draw(t, "data"),
		}
		data, err := a.encode()
		require.NoError(t, err)
		got, err := decodeAnswer(data)
		require.NoError(t, err)
		require.Equal(t, string(a.Data), string(got.Data))
		got.Data = a.Data
		require.Equal(t, a, got)
	})
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

func FuzzDecodeAnswer(f *testing.F) {
	for _, a := range []Answer{
		{Kind: ResultJSON, Data: []byte(`{"a":1.10}`)},
		{Kind: ResultBinary, ContentType: "text/plain", Data: []byte{0xff}},
		{Kind: ResultOmitted, Reason: "too_large", Bytes: 7, SHA256: "00"},
		{Kind: ResultNone, Headers: map[string]string{"X-A": "b"}},
	} {
		data, err := a.encode()
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := decodeAnswer(data)
		if err != nil {
			require.ErrorIs(t, err, errAnswerForm)
			return
		}
		again, err := a.encode()
		require.NoError(t, err)
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
