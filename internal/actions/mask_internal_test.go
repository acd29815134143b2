package actions

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// spelled lists what a mask hides of one credential, in plain words.
func spelled(v string) []string {
	all := []string{v, url.QueryEscape(v), url.PathEscape(v), html.EscapeString(v)}
	for _, escaped := range all[1:3] {
		for _, digits := range regexp.MustCompile("%..").FindAllString(escaped, -1) {
			escaped = strings.ReplaceAll(escaped, digits, strings.ToLower(digits))
		}
		all = append(all, escaped)
	}
	quoted, _ := json.Marshal(v)
	inside := string(quoted[1 : len(quoted)-1])
	all = append(all, inside, strings.ReplaceAll(inside, "/", `\/`))
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		all = append(all, encoding.EncodeToString([]byte(v)))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Every spelling is hidden, none twice, and longer ones come before shorter ones.
func FuzzSpellings(f *testing.F) {
	for _, v := range []string{secret, "plain0", "sk_live_51HxYzAb", "a/b+c?d", "???>>>~~~", "\u2028 line", "\xff\xfe\xfd%41", "%%%%%%", "tab\tand\x7f"} {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		hidden := newMask(map[string]string{"token": v}).hidden
		if len(v) < shortest {
			require.Empty(t, hidden)
			return
		}
		require.ElementsMatch(t, spelled(v), hidden)
		require.True(t, slices.IsSortedFunc(hidden, func(a, b string) int { return len(b) - len(a) }))
	})
}

const secret = `s3cr/t+"<&>é=value`

func TestASecretIsHiddenInEverySpelling(t *testing.T) {
	m := newMask(map[string]string{"token": secret, "user": "someone"})
	quoted, err := json.Marshal(secret)
	require.NoError(t, err)
	for name, spelling := range map[string]string{
		"as it is":             secret,
		"JSON":                 string(quoted[1 : len(quoted)-1]),
		"query":                url.QueryEscape(secret),
		"query, lower case":    strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(secret), "%2F", "%2f"), "%2B", "%2b"),
		"path":                 url.PathEscape(secret),
		"HTML":                 `s3cr/t+&#34;&lt;&amp;&gt;é=value`,
		"base64":               base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64, no padding":   base64.RawStdEncoding.EncodeToString([]byte(secret)),
		"base64url":            base64.URLEncoding.EncodeToString([]byte(secret)),
		"base64url, raw":       base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"Basic":                base64.StdEncoding.EncodeToString([]byte("someone:" + secret)),
		"Basic, no padding":    base64.RawStdEncoding.EncodeToString([]byte("someone:" + secret)),
		"Basic, the other way": base64.StdEncoding.EncodeToString([]byte(secret + ":someone")),
	} {
		if name == "query, lower case" {
			spelling = lowerPercent(url.QueryEscape(secret))
			require.NotEqual(t, url.QueryEscape(secret), spelling)
		}
		require.Equal(t, "<[redacted]>", m.text("<"+spelling+">"), name)
		require.Equal(t, "<[redacted]>", string(m.bytes([]byte("<"+spelling+">"))), name)
	}
}

// What a mask costs grows with the spellings, not with their square: a connection may
// have many long credentials that are nearly the same, and one of its calls must not
// keep a core from others for seconds.
func TestManyLongCredentialsAreMaskedInTime(t *testing.T) {
	fastest := func(n int) (best time.Duration) {
		creds := map[string]string{}
		for i := range n {
			creds[strconv.Itoa(i)] = fmt.Sprintf("%04096d", i)
		}
		for range 3 {
			began := time.Now()
			_ = newMask(creds)
			if took := time.Since(began); best == 0 || took < best {
				best = took
			}
		}
		return best
	}
	few, many := fastest(8), fastest(32)
	require.Less(t, many, 80*few, "16 times as many spellings")
}

func TestShortValuesAreLeft(t *testing.T) {
	m := newMask(map[string]string{"pin": "12345", "token": "123456"})
	require.Equal(t, "12345 [redacted]", m.text("12345 123456"))
	require.Equal(t, "MTIzNDU=", m.text("MTIzNDU="), "nor as base64")
}

func TestALongerSecretIsHiddenWhole(t *testing.T) {
	m := newMask(map[string]string{"a": "prefix", "b": "prefix-and-more"})
	require.Equal(t, "[redacted] [redacted]", m.text("prefix-and-more prefix"))
}

func TestBytesThatAreMaskedAreCopied(t *testing.T) {
	m := newMask(map[string]string{"a": "secret-value"})
	in := []byte("secret-value and more")
	require.Equal(t, "[redacted] and more", string(m.bytes(in)))
	require.Equal(t, "secret-value and more", string(in))
}

func TestMaskedJSONStaysJSONOrIsLeftOut(t *testing.T) {
	m := newMask(map[string]string{"a": "123456", "b": `n"quote`, "c": "nested/value"})
	for in, want := range map[string]string{
		`{"a":"123456"}`:                `{"a":"[redacted]"}`,
		`{"123456":1}`:                  `{"[redacted]":1}`,
		`{"a":1234567}`:                 "", // inside a number
		`{"a":123456}`:                  "",
		`["n\"quote"]`:                  `["[redacted]"]`,
		`["\n\"quote"]`:                 "",               // tears an escape
		`["\u006e\u0022quote"]`:         `["[redacted]"]`, // every character may be escaped
		`["nested\/value"]`:             `["[redacted]"]`,
		`{"nested\u002fvalue":[]}`:      `{"[redacted]":[]}`,
		`["\\","\"", "plain"]`:          `["\\","\"", "plain"]`,
		`[1.10,"\u00e9\\\"","x\\"]`:     `[1.10,"\u00e9\\\"","x\\"]`,
		`{"a":[],"b":9007199254740993}`: `{"a":[],"b":9007199254740993}`,
	} {
		a := m.json([]byte(in))
		if want == "" {
			require.Equal(t, ResultOmitted, a.Kind, in)
			require.Equal(t, "credential_in_result", a.Reason)
			require.Empty(t, a.Data)
			continue
		}
		require.Equal(t, ResultJSON, a.Kind, in)
		require.Equal(t, want, string(a.Data))
	}
	require.Equal(t, "not_json", m.json([]byte("\"\xff\"")).Reason)
	require.Equal(t, "not_json", mask{}.json([]byte(`{`)).Reason)
}

// FuzzMaskedJSON: whatever a vendor sends, a result shown as JSON is JSON, and
// nobody who reads it finds the secret.
func FuzzMaskedJSON(f *testing.F) {
	for _, seed := range []string{
		`{"a":"secret-value"}`, `"\u0073ecret-value"`, `["secret\u002dvalue",{"x":null}]`, `{`, "\"\xff\"", `"\\"`, `"a\"b"`, ``,
	} {
		f.Add([]byte(seed))
	}
	m := newMask(map[string]string{"a": "secret-value"})
	f.Fuzz(func(t *testing.T, data []byte) {
		a := m.json(data)
		if a.Kind != ResultJSON {
			return
		}
		require.True(t, soundJSON(a.Data))
		var v any
		if json.Unmarshal(a.Data, &v) == nil {
			require.False(t, holds(v, "secret-value"))
		}
	})
}

func holds(v any, secret string) bool {
	switch v := v.(type) {
	case string:
		return strings.Contains(v, secret)
	case []any:
		for _, e := range v {
			if holds(e, secret) {
				return true
			}
		}
	case map[string]any:
		for k, e := range v {
			if strings.Contains(k, secret) || holds(e, secret) {
				return true
			}
		}
	}
	return false
}
