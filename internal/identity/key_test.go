package identity_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/identity"
)

func printableASCII() string {
	var all strings.Builder
	for b := byte(0x21); b <= 0x7e; b++ {
		all.WriteByte(b)
	}
	return all.String()
}

func TestCheckKey(t *testing.T) {
	for _, k := range []string{"a", "0", "a b", "a  b", printableASCII(), strings.Repeat("k", 255), `"a"`, `\`, "~", "!"} {
		require.NoError(t, identity.CheckKey(k), k)
	}
	for k, reason := range map[string]string{
		"":                       "the key is empty; leave it out to have one derived",
		strings.Repeat("k", 256): "the key is longer than 255 characters",
		" a":                     "the key begins or ends with a blank",
		"a ":                     "the key begins or ends with a blank",
		" ":                      "the key begins or ends with a blank",
		"a\tb":                   "the key holds a character that is not printable ASCII",
		"\ta":                    "the key holds a character that is not printable ASCII",
		"a\n":                    "the key holds a character that is not printable ASCII",
		"a\x00":                  "the key holds a character that is not printable ASCII",
		"a\x1fb":                 "the key holds a character that is not printable ASCII",
		"a\x7f":                  "the key holds a character that is not printable ASCII",
		"a\x80":                  "the key holds a character that is not printable ASCII",
		"é":                      "the key holds a character that is not printable ASCII",
		"a\u00a0":                "the key holds a character that is not printable ASCII",
	} {
		err := identity.CheckKey(k)
		var refused *identity.KeyError
		require.ErrorAs(t, err, &refused, "%q", k)
		require.Equal(t, reason, refused.Reason, "%q", k)
		require.Equal(t, "refuse idempotency key: "+reason, err.Error())
	}
}

func TestParseKeyHeader(t *testing.T) {
	for value, want := range map[string]string{
		"abc":                                "abc",
		" abc\t":                             "abc",
		"a b":                                "a b",
		`"abc"`:                              "abc",
		"\t \"abc\" ":                        "abc",
		`"a b"`:                              "a b",
		`"a\"b"`:                             `a"b`,
		`"a\\b"`:                             `a\b`,
		`"\\\""`:                             `\"`,
		`"\"a\""`:                            `"a"`, // a key that begins with a quote
		`"a;x=1"`:                            "a;x=1",
		"a;x=1":                              "a;x=1", // bare: byte for byte
		"a, b":                               "a, b",
		"a,a,b":                              "a,a,b",
		",,":                                 ",,",
		`a"b`:                                `a"b`,
		`a"`:                                 `a"`,
		`a\"b`:                               `a\"b`,
		`\a`:                                 `\a`,
		"8e03978e-40d5-43e8":                 "8e03978e-40d5-43e8",
		`"` + strings.Repeat("k", 255) + `"`: strings.Repeat("k", 255),
		strings.Repeat(`"`, 1) + strings.Repeat(`\"`, 255) + `"`: strings.Repeat(`"`, 255),
	} {
		got, err := identity.ParseKeyHeader([]string{value})
		require.NoError(t, err, value)
		require.Equal(t, want, got, value)
	}
	for _, none := range [][]string{nil, {}} {
		got, err := identity.ParseKeyHeader(none)
		require.NoError(t, err)
		require.Empty(t, got)
	}
}

func TestParseKeyHeaderRefuses(t *testing.T) {
	const (
		follows   = "something follows the quoted key; send the key alone, without parameters"
		unclosed  = "the quoted key has no closing quote"
		backslash = `in a quoted key a backslash stands only before " or \`
		ascii     = "the key holds a character that is not printable ASCII"
		empty     = "the key is empty; leave it out to have one derived"
		blank     = "the key begins or ends with a blank"
		repeated  = "the Idempotency-Key header was sent more than once"
		long      = "the key is longer than 255 characters"
	)
	for _, c := range []struct {
		values []string
		reason string
	}{
		{[]string{"a", "b"}, repeated},
		{[]string{"a", "a"}, repeated},
		{[]string{"", ""}, repeated},
		{[]string{"k1, k1"}, repeated}, // joined on the way
		{[]string{"k1,k1"}, repeated},
		{[]string{"k1 ,\tk1, k1"}, repeated},
		{[]string{""}, empty},
		{[]string{" \t"}, empty},
		{[]string{`""`}, empty},
		{[]string{`" a"`}, blank},
		{[]string{`"a "`}, blank},
		{[]string{`"a";x=1`}, follows},
		{[]string{`"a" ;x`}, follows},
		{[]string{`"a", "b"`}, follows},
		{[]string{`"a"b`}, follows},
		{[]string{`"a""`}, follows},
		{[]string{`"a""b"`}, follows},
		{[]string{`"`}, unclosed},
		{[]string{`"a`}, unclosed},
		{[]string{`"a\"`}, unclosed},
		{[]string{`"a\`}, backslash},
		{[]string{`"a\b"`}, backslash},
		{[]string{`"a\ "`}, backslash},
		{[]string{"\"a\tb\""}, ascii},
		{[]string{"\"é\""}, ascii},
		{[]string{"a\x00"}, ascii},
		{[]string{"a\tb"}, ascii},
		{[]string{"é"}, ascii},
		{[]string{strings.Repeat("k", 256)}, long},
		{[]string{`"` + strings.Repeat("k", 256) + `"`}, long},
	} {
		got, err := identity.ParseKeyHeader(c.values)
		var refused *identity.KeyError
		require.ErrorAs(t, err, &refused, "%q", c.values)
		require.Equal(t, c.reason, refused.Reason, "%q", c.values)
		require.Empty(t, got)
	}
}

// FuzzParseKeyHeader: what is accepted is a sound key, and the quoted form of a
// sound key is read back as that key.
func FuzzParseKeyHeader(f *testing.F) {
	for _, s := range []string{"abc", `"abc"`, `"a\"b\\"`, `"a";x=1`, `"`, ` "a" `, "é", `a"b`, "-,-", "a, b", ""} {
		f.Add(s)
	}
	escapes := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := identity.ParseKeyHeader([]string{s})
		if err == nil {
			require.NoError(t, identity.CheckKey(got))
			trimmed := strings.Trim(s, " \t")
			require.True(t, got == trimmed && trimmed[0] != '"' || `"`+escapes.Replace(got)+`"` == trimmed, "%q %q", s, got)
		}
		if identity.CheckKey(s) != nil {
			return
		}
		got, err = identity.ParseKeyHeader([]string{`"` + escapes.Replace(s) + `"`})
		require.NoError(t, err)
		require.Equal(t, s, got)
		got, err = identity.ParseKeyHeader([]string{s})
		if s[0] == '"' {
			require.True(t, err != nil || got != s, "a leading quote is never part of a bare key")
			return
		}
		if first, rest, _ := strings.Cut(s, ","); rest != "" && strings.HasPrefix(strings.TrimLeft(rest, " \t"), strings.Trim(first, " \t")) && err != nil {
			return // one key that was sent twice and joined
		}
		require.NoError(t, err)
		require.Equal(t, s, got)
	})
}
