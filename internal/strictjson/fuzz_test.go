package strictjson_test

import (
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

var numberGrammar = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

var seeds = []string{
	`{}`, ` [1, 2.50, -0, 1e2, 5e-324] `, `{"a":{"b":[{},[],null,true,false,""]},"c":"\ud83d\ude00\n"}`,
	`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"~":{"/":1},"":2}`, `"\ud800"`, `"\\ud800"`, "\"\xff\"", "\xef\xbb\xbf1",
	`9007199254740993`, `1e400`, `01`, `[1,]`, `{"a":1,}`, `{"a" 1}`, `[[[[[[[[[[`, `{"a":[}]}`, `"a\`, `{"`, `{"a":"\`, "[\x00]",
	"{\"\u20ac\":1,\"\\r\":2,\"\ufb33\":3,\"1\":4,\"\U0001f600\":5,\"\u0080\":6,\"\u00f6\":7}",
	`{"id":"x","n":1,"tags":["a",null],"inner":{"n":-3}}`, `{"ID":"x"}`, strings.Repeat("[", 64) + strings.Repeat("]", 64),
}

func addSeeds(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
}

// FuzzCheck compares Check with an oracle made of encoding/json. Check accepts
// what json.Valid accepts, except: invalid UTF-8, duplicate names, lone
// surrogates, more than the limits, and inexact or overlong numbers.
func FuzzCheck(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		err := strictjson.Check(raw)
		want := json.Valid(raw) && utf8.Valid(raw) && !loneSurrogate(raw) && sound(raw)
		require.Equal(t, want, err == nil, "%q: %v", raw, err)
	})
}

var (
	escapedBackslash = regexp.MustCompile(`\\\\`)
	surrogatePair    = regexp.MustCompile(`\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}`)
	surrogateHalf    = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
)

func loneSurrogate(raw []byte) bool {
	rest := surrogatePair.ReplaceAll(escapedBackslash.ReplaceAll(raw, []byte("..")), nil)
	return surrogateHalf.Match(rest)
}

// sound walks the tokens of a valid document and applies the rules on names,
// limits and numbers, recursively and plainly.
func sound(raw []byte) bool {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return soundValue(d, 0)
}

func soundValue(d *json.Decoder, depth int) bool {
	token, err := d.Token()
	if err != nil {
		return false
	}
	switch token := token.(type) {
	case json.Number:
		n := string(token)
		if len(n) > strictjson.MaxNumber {
			return false
		}
		if _, e, _ := strings.Cut(strings.ToLower(n), "e"); len(strings.TrimLeft(e, "+-0")) > 5 {
			// No rational of that size: only zero is exact.
			return strings.Trim(strings.ToLower(n)[:strings.IndexAny(n, "eE")], "-0.") == ""
		}
		return oracle(n)
	case json.Delim:
		names := map[string]bool{}
		count := 0
		for ; d.More(); count++ {
			if token == '{' {
				name, _ := d.Token()
				s, ok := name.(string)
				if !ok || names[s] {
					return false
				}
				names[s] = true
			}
			if !soundValue(d, depth+1) {
				return false
			}
		}
		_, err := d.Token()
		return err == nil && depth < strictjson.MaxDepth && count <= strictjson.MaxMembers
	}
	return true
}

// FuzzCanonical: the canonical form is its own canonical form, is sound, means
// the same as the original, and does not depend on order or white space.
func FuzzCanonical(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := strictjson.Canonical(raw)
		if strictjson.Check(raw) != nil {
			require.Error(t, err)
			return
		}
		require.NoError(t, err, "%q", raw)
		twice, err := strictjson.Canonical(once)
		require.NoError(t, err)
		require.Equal(t, string(once), string(twice))
		require.Equal(t, decode(t, raw), decode(t, once))

		shuffled, err := strictjson.Canonical(shuffle(t, raw))
		require.NoError(t, err)
		require.Equal(t, string(once), string(shuffled))

		without, err := strictjson.AppendCanonicalWithout(nil, raw, []string{"/no such member/a"})
		require.NoError(t, err)
		require.Equal(t, string(once), string(without))
	})
}

// FuzzCanonicalOracle compares with gowebpki/jcs, a canonicaliser of its own
// kind: what Check accepts has the same form there, byte for byte.
func FuzzCanonicalOracle(f *testing.F) {
	addSeeds(f)
	for _, n := range []string{"1e21", "1e20", "123456789012345680000", "0.000001", "0.0000001", "-1.5e-7", "1.0", "10", "-0", "-0.0e5", "0.10",
		"1.7976931348623157e308", "2.2250738585072014e-308", "5e-324", "123e-20", "4.50E+1", "100e-2", "0.00100", "333333333.33333329", "1E23", "9007199254740992"} {
		f.Add([]byte(`{"n":[` + n + `]}`))
	}
	f.Add([]byte(`{"\u005c\u0022\/\b\f\n\r\t\u0000\u001f\u007f\u2028\ud83d\ude00é":"\u005c\u0022\/\b\f\n\r\t\u0000\u001f\u007f\u2028\ud83d\ude00é"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		ours, err := strictjson.AppendCanonical([]byte("before"), raw)
		require.Equal(t, strictjson.Check(raw), err, "%q", raw)
		if err != nil {
			return
		}
		theirs, err := jcs.Transform(raw)
		require.NoError(t, err, "%q", raw)
		require.Equal(t, "before"+string(theirs), string(ours), "%q", raw)
	})
}

// TestCanonicalOracle is the same over many documents made at random: objects of
// all sizes in all orders, names and texts with escapes, numbers in all forms.
func TestCanonicalOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	checked := 0
	for range 20_000 {
		raw := randomDocument(r, 0)
		ours, err := strictjson.Canonical(raw)
		if err != nil {
			continue // a number that is not exact, or a name that came twice
		}
		checked++
		theirs, err := jcs.Transform(raw)
		require.NoError(t, err, "%q", raw)
		require.Equal(t, string(theirs), string(ours), "%q", raw)
	}
	require.Greater(t, checked, 5_000)
}

func randomDocument(r *rand.Rand, depth int) []byte {
	space := []string{"", "", "", " ", "\n\t"}[r.IntN(5)]
	kind := r.IntN(8)
	if depth > 5 {
		kind = r.IntN(4)
	}
	n := []int{0, 1, 2, 3, 5, 40}[r.IntN(6)]
	if n == 40 && depth > 1 {
		n = 4
	}
	var b bytes.Buffer
	b.WriteString(space)
	switch kind {
	case 0:
		b.WriteString([]string{"true", "false", "null", "0", "-0", "1"}[r.IntN(6)])
	case 1, 2:
		b.WriteString(randomNumber(r))
	case 3:
		b.WriteString(randomText(r))
	case 4, 5:
		b.WriteByte('[')
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.Write(randomDocument(r, depth+1))
		}
		b.WriteByte(']')
	default:
		b.WriteByte('{')
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(space + randomText(r) + space + ":")
			b.Write(randomDocument(r, depth+1))
		}
		b.WriteByte('}')
	}
	b.WriteString(space)
	return b.Bytes()
}

func randomNumber(r *rand.Rand) string {
	whole := strconv.FormatUint(r.Uint64()>>r.IntN(64), 10)
	n := []string{"", "-"}[r.IntN(2)] + whole
	if r.IntN(2) == 0 {
		n = []string{"", "-"}[r.IntN(2)] + strconv.Itoa(r.IntN(1000)) + "." + strings.Repeat("0", r.IntN(8)) + strconv.Itoa(r.IntN(100_000))
	}
	if r.IntN(3) == 0 {
		n += []string{"e", "E", "e+", "E-", "e-"}[r.IntN(5)] + strconv.Itoa(r.IntN(30))
	}
	if r.IntN(8) == 0 {
		return strconv.FormatFloat(math.Float64frombits(r.Uint64()&^(0x7ff<<52)|uint64(r.IntN(0x7ff))<<52), 'g', -1, 64)
	}
	return n
}

func randomText(r *rand.Rand) string {
	pieces := []string{"a", "b", "A", "Z", "0", "\u00e9", "\u20ac", "\ue000", "\uffff", "\U00010000", "\U0010ffff", "\x7f",
		`\"`, `\\`, `\/`, `\b`, `\n`, `\u0000`, `\u001F`, `\u0041`, `\u00E9`, `\ud83d\ude00`, `\uFB33`, `\u2028`}
	var b strings.Builder
	for range r.IntN(6) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return `"` + b.String() + `"`
}

// decode is for comparing; exact numbers make float64 harmless here. It turns
// -0 into 0, which the canonical form does too.
func decode(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	require.NoError(t, json.Unmarshal(raw, &v))
	return unsigned(v)
}

func unsigned(v any) any {
	switch v := v.(type) {
	case float64:
		return v + 0
	case []any:
		for i := range v {
			v[i] = unsigned(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = unsigned(v[k])
		}
	}
	return v
}

// shuffle writes the same document with its members in another order and white
// space around everything. It goes through Members and Elements.
func shuffle(t *testing.T, raw []byte) []byte {
	t.Helper()
	raw = bytes.TrimSpace(raw)
	var parts [][]byte
	var brackets string
	switch raw[0] {
	case '{':
		brackets = "{}"
		members, err := strictjson.Members(raw)
		require.NoError(t, err)
		for _, m := range members {
			name, err := json.Marshal(m.Name)
			require.NoError(t, err)
			parts = append(parts, bytes.Join([][]byte{name, shuffle(t, m.Value)}, []byte(" :\n")))
		}
		r := rand.New(rand.NewPCG(1, uint64(len(raw))))
		r.Shuffle(len(parts), func(i, j int) { parts[i], parts[j] = parts[j], parts[i] })
	case '[':
		brackets = "[]"
		elements, err := strictjson.Elements(raw)
		require.NoError(t, err)
		for _, e := range elements {
			parts = append(parts, shuffle(t, e))
		}
	default:
		return raw
	}
	return []byte(brackets[:1] + "\t" + string(bytes.Join(parts, []byte("\r,  "))) + "\n" + brackets[1:])
}

// FuzzMembers: of sound text the tokens are those encoding/json sees; of any
// text nothing panics and every token is a part of it.
func FuzzMembers(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		members, err := strictjson.Members(raw)
		elements, err2 := strictjson.Elements(raw)
		_, _ = strictjson.Get(raw, "a", "0", "b")
		whole, ok := strictjson.Get(raw)
		if strictjson.Check(raw) != nil {
			return
		}
		require.True(t, ok)
		require.Equal(t, string(bytes.Trim(raw, " \t\r\n")), string(whole))
		require.Equal(t, whole[0] == '{', err == nil)
		require.Equal(t, whole[0] == '[', err2 == nil)

		want := map[string]json.RawMessage{}
		if err == nil {
			require.NoError(t, json.Unmarshal(raw, &want))
		}
		require.Len(t, members, len(want))
		for _, m := range members {
			require.Equal(t, string(want[m.Name]), string(m.Value))
			got, ok := strictjson.Get(raw, m.Name)
			require.True(t, ok)
			require.Equal(t, string(m.Value), string(got))
		}
		var list []json.RawMessage
		if err2 == nil {
			require.NoError(t, json.Unmarshal(raw, &list))
		}
		require.Len(t, elements, len(list))
		for i := range list {
			require.Equal(t, string(list[i]), string(elements[i]))
		}
	})
}

// FuzzUnmarshal: what Unmarshal accepts, encoding/json reads the same way.
func FuzzUnmarshal(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var got, want fuzzed
		err := strictjson.Unmarshal(raw, &got)
		if err != nil {
			require.Equal(t, fuzzed{}, got, "changed although refused")
			return
		}
		plain := json.NewDecoder(bytes.NewReader(raw))
		plain.DisallowUnknownFields()
		plain.UseNumber()
		require.NoError(t, plain.Decode(&want), "%q", raw)
		require.True(t, reflect.DeepEqual(want, got), "%q: %+v %+v", raw, want, got)
	})
}

type fuzzed struct {
	ID    string                     `json:"id"`
	N     *int64                     `json:"n"`
	A     any                        `json:"a"`
	B     map[string]json.RawMessage `json:"b"`
	C     json.Number                `json:"c"`
	Tags  []*string                  `json:"tags"`
	Inner *fuzzed                    `json:"inner"`
}
