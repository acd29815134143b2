package mcp

import (
	"bytes"
	"encoding/json"
	"errors"
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
		`[]`:       true, // the SDK's to refuse
		`[[1]]`:    true,
		`not json`: false,
		`1`:        false,
		// The SDK reads the first value and passes over the rest.
		`{"jsonrpc":"2.0","id":1,"method":"m"}{"jsonrpc":"2.0","id":2,"method":"m"}`: false,
		`{"jsonrpc":"2.0","id":1,"method":"m","method":"n"} x`:                       false,
		// The SDK holds a numeric id as a double and cuts its fraction off.
		`{"id":9007199254740991}`:        true,
		`{"id":-9007199254740991}`:       true,
		`{"id":9007199254740993}`:        false,
		`{"id":12345678901234567890123}`: false,
		`{"id":1.5}`:                     false,
		`{"id":1e0}`:                     false,
		`{"id":-0}`:                      false,
		`{"id":"9007199254740993"}`:      true,
		`{"id":null}`:                    true, // the SDK's to refuse
		`[{"id":1},{"id":1}]`:            false,
		`[{"id":"a"},{"id":"\u0061"}]`:   false,
		`[{"id":1},{"id":"1"},{"method":"m"},{"method":"m"}]`:   true,
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
	const last = `{"jsonrpc":"2.0","method":"m"}` // ends without a line feed
	in := &checkedLines{from: io.NopCloser(strings.NewReader(good + `{"id":3,"id":3}` + "\n" + long + last)), out: &out}
	got, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Equal(t, good+long+last, string(got))
	require.Equal(t, 1, strings.Count(out.String(), "-32600"))
}

// A client that writes one bad line is told so, and keeps its session with the
// calls that run in it.
func TestABadLineDoesNotEndASession(t *testing.T) {
	const good = `{"jsonrpc":"2.0","id":1,"method":"ping"}` + "\n"
	deep := `{"jsonrpc":"2.0","id":4,"method":"m","params":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + "}\n"
	for bad, code := range map[string]string{
		"garbage\n": "-32700", good[:len(good)-1] + good: "-32700", "[\n": "-32700", "7\n": "-32600", deep: "-32600",
		`{"jsonrpc":"2.0","id":[1],"method":"m"}` + "\n": "-32600", "\r\n": "", "  \n": "",
	} {
		var out bytes.Buffer
		got, err := io.ReadAll(&checkedLines{from: io.NopCloser(strings.NewReader(bad + good)), out: &out})
		require.NoError(t, err)
		require.Equal(t, good, string(got), bad)
		if code == "" {
			require.Empty(t, out.String())
			continue
		}
		require.Contains(t, out.String(), code, bad)
	}
}

func FuzzEnvelope(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"name":"do","arguments":{}}}`))
	f.Add([]byte(`{"id":1,"params":{"arguments":1,"arguments":2}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := checkEnvelope(raw)
		var out map[string]any
		require.NoError(t, json.Unmarshal([]byte(refusal(raw, codeInvalidRequest, errTwice)), &out))
		if err != nil {
			require.True(t, errors.Is(err, errTwice) || errors.Is(err, errNoMessage) || errors.Is(err, errBadID))
		}
	})
}
