package strictjson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

// FuzzSound compares Sound with the two it stands for.
func FuzzSound(f *testing.F) {
	addSeeds(f)
	for _, s := range []string{`"\ud800"`, `"\ud800\u0041"`, `{"a":1e400,"a":1}`, `tru`, `nullx`, `-`, `1 2`, `{"a":1 "b":2}`, `{,}`, `[1,,2]`, `{"a":{}}`, ` {"a" : [ ] } `, "\"0123456\x7f\"", "\"01234567\x1f\""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		depth, ok := strictjson.Sound(raw)
		require.Equal(t, json.Valid(raw) && utf8.Valid(raw), ok, "%q", raw)
		if ok {
			require.Equal(t, nesting(t, raw), depth, "%q", raw)
		}
	})
}

// nesting is the depth of a sound document, by its tokens.
func nesting(t *testing.T, raw []byte) int {
	deepest, depth := 0, 0
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	for {
		token, err := d.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			deepest = max(deepest, depth)
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
}

func TestSoundDepth(t *testing.T) {
	for _, n := range []int{0, 1, 31, 32, 33, 100, 10_000, 10_001} {
		raw := []byte(strings.Repeat(`{"a":[`, n/2) + strings.Repeat("[", n%2) + "1" + strings.Repeat("]", n%2) + strings.Repeat("]}", n/2))
		depth, ok := strictjson.Sound(raw)
		require.Equal(t, json.Valid(raw), ok, n)
		if ok {
			require.Equal(t, n, depth)
		}
	}
}

// A string is looked at eight bytes at a time: each byte counts wherever it stands.
func TestEveryByteAtEveryPlace(t *testing.T) {
	for b := range 256 {
		for before := range 17 {
			for _, behind := range []int{0, 8} {
				for _, fill := range []string{"x", "\x7f", "!"} {
					raw := []byte(`"` + strings.Repeat(fill, before) + string([]byte{byte(b)}) + strings.Repeat(fill, behind) + `"`)
					want := json.Valid(raw) && utf8.Valid(raw)
					_, sound := strictjson.Sound(raw)
					checked := strictjson.Check(raw) == nil
					text, ok := strictjson.Text(raw)
					var said string
					decoded := json.Unmarshal(raw, &said) == nil
					if sound != want || checked != want || ok != decoded || string(text) != said {
						t.Fatalf("%q: %v %v %v %q", raw, sound, checked, ok, text)
					}
					elements, err := strictjson.Elements([]byte("[" + string(raw) + ", 1]"))
					if want && (err != nil || len(elements) != 2 || string(elements[0]) != string(raw)) {
						t.Fatalf("%q: %q %v", raw, elements, err)
					}
				}
			}
		}
	}
}
