package connections

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is sealed is an object of strings; whatever else opens is damage, and no
// part of it is a credential.
func TestCredentialsAreAnObjectOfStrings(t *testing.T) {
	for text, want := range map[string]map[string]string{
		`{}`:                            {},
		`{"token":"t"}`:                 {"token": "t"},
		`{"pass\u0077ord":"a\"\u00e4"}`: {"password": `a"ä`},
		`{"a":"1","b":""}`:              {"a": "1", "b": ""},
	} {
		creds, err := Credentials(want).plain()
		require.NoError(t, err)
		for _, plain := range []string{text, string(creds)} {
			got, sound := textsOf([]byte(plain))
			require.True(t, sound, plain)
			require.Equal(t, want, got)
		}
	}
	for _, text := range []string{
		``, `null`, `[]`, `"t"`, `{"token":1}`, `{"token":null}`, `{"a":1,"b":"2"}`, `{"a":"1","b":2}`, `{"token":{}}`,
		`{"token":"t","token":"t"}`, `{"token":"t"`, `{"token":"t"} {}`, "{\"token\":\"\xff\"}", `{"token":"\ud800"}`,
	} {
		_, sound := textsOf([]byte(text))
		require.False(t, sound, text)
	}
}
