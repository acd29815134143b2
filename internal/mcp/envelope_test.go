package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnvelope(t *testing.T) {
	for message, fine := range map[string]bool{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"do","arguments":{"a":1,"a":2}}}`: true, // the API's to refuse
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{},"arguments":{}}}`:         false,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{},"ARGUMENTS":{}}}`:         false,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":{},"\u0061rguments":{}}}`:    false,
		`{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}`:                                           false,
		`{"jsonrpc":"2.0","id":1,"Method":"m"}`:                                                  false,
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":1},"params":{}}`:                     false,
		`not json`: true, // the SDK's to refuse
		`[]`:       true,
		`[{"id":1},{"id":2,"params":{"name":"do","name":"x"}}]`: false,
		`[{"id":1},{"id":2,"params":{"name":"do"}}]`:            true,
	} {
		require.Equal(t, fine, checkEnvelope([]byte(message)) == nil, message)
	}
}

func TestRefusalHasTheIDOfTheMessage(t *testing.T) {
	for message, id := range map[string]string{`{"id":7}`: "7", `{"id":"x"}`: `"x"`, `{"id":1,"id":2}`: "null", `{}`: "null"} {
		var out struct{ ID json.RawMessage }
		require.NoError(t, json.Unmarshal([]byte(refusal([]byte(message), codeInvalidRequest, errTwice)), &out))
		require.Equal(t, id, string(out.ID), message)
	}
}

// A pipe hands on the lines that are messages and answers the others.
func TestLines(t *testing.T) {
	const good = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	long := `{"jsonrpc":"2.0","id":2,"method":"` + strings.Repeat("x", 10_000) + `"}` + "\n"
	var out bytes.Buffer
	in := &checkedLines{from: io.NopCloser(strings.NewReader(good + `{"id":3,"id":3}` + "\n" + long + "{}")), out: &out}
	got, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, good+long+"{}", string(got))
	require.Equal(t, 1, strings.Count(out.String(), "-32600"))
}

func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"do","arguments":{}}}`))
	f.Add([]byte(`{"id":1,"params":{"arguments":1,"arguments":2}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := checkEnvelope(raw)
		var out map[string]any
		require.NoError(t, json.Unmarshal([]byte(refusal(raw, codeInvalidRequest, errTwice)), &out))
		if err != nil {
			require.ErrorIs(t, err, errTwice)
		}
	})
}
