package strictjson_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

func canonical(t *testing.T, raw string) string {
	t.Helper()
	c, err := strictjson.Canonical([]byte(raw))
	require.NoError(t, err, raw)
	return string(c)
}

// Worked out by hand from RFC 8785: the names' UTF-16 units in order are
// 000d, 0031, 0080, 00f6, 20ac, d83d de00, fb33 (section 3.2.3). By code point,
// or by UTF-8 byte, the last two would change places.
func TestMemberOrderIsByUTF16Unit(t *testing.T) {
	require.Equal(t,
		"{\"\\r\":2,\"1\":4,\"\u0080\":6,\"\u00f6\":7,\"\u20ac\":1,\"\U0001f600\":5,\"\ufb33\":3}",
		canonical(t, `{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}`))

	for name, c := range map[string]struct{ first, second string }{
		"astral before private use":     {"\U00010000", "\ue000"},     // d800 dc00 < e000
		"last astral before U+FFFF":     {"\U0010ffff", "\uffff"},     // dbff dfff < ffff
		"U+D7FF before astral":          {"\ud7ff", "\U00010000"},     // d7ff < d800
		"astral by its second unit":     {"\U00010000", "\U00010001"}, // dc00 < dc01
		"a prefix before the longer":    {"a", "aa"},
		"the empty name first":          {"", "\x00"},
		"upper case before lower":       {"B", "a"}, // 0042 < 0061
		"digits as text":                {"10", "9"},
		"astral inside, then private":   {"a\U0001f600z", "a\ue000"},
		"NFD before NFC":                {"e\u0301", "\u00e9"}, // 0065 < 00e9
		"U+FFFD after astral, as units": {"\U0001f600\U0001f600", "\ufffd"},
	} {
		want := "{" + quote(c.first) + ":1," + quote(c.second) + ":2}"
		require.Equal(t, want, canonical(t, "{"+quote(c.first)+":1,"+quote(c.second)+":2}"), name)
		require.Equal(t, want, canonical(t, "{"+quote(c.second)+":2,"+quote(c.first)+":1}"), name)
	}
	require.Equal(t, `{"a":{"x":{},"y":[{"b":1,"c":2},3]},"b":[]}`, canonical(t, ` { "b":[ ], "a":{"y":[{"c":2,"b":1}, 3],"x":{ }} } `))
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, "\x00", `\u0000`) + `"` }

// RFC 8785 appendix B: the bits of a double and what it prints. Each of these
// texts passes the exact-number rule and is its own canonical form.
func TestNumberForms(t *testing.T) {
	for bits, text := range map[uint64]string{
		0x0000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		require.Equal(t, text, canonical(t, text))
		double, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		require.Equal(t, bits, math.Float64bits(double), text)
	}
}

// One value, one form.
func TestEqualNumbersShareAForm(t *testing.T) {
	for want, forms := range map[string][]string{
		"0":      {"0", "-0", "0.0", "-0.0", "0e0", "-0e-9", "0.000e+99999"},
		"1":      {"1", "1.0", "1e0", "1E+0", "10e-1", "0.1e1", "1.000"},
		"-1":     {"-1", "-1.0", "-10E-01"},
		"100":    {"100", "1e2", "1.0E2", "1000e-1", "100.00"},
		"0.1":    {"0.1", "0.10", "1e-1", "100e-3"},
		"1e+21":  {"1e21", "1000000000000000000000", "10e20", "0.1e22"},
		"4.5":    {"4.50", "45e-1"},
		"0.002":  {"2e-3", "0.0020"},
		"1e-27":  {"0.000000000000000000000000001"},
		"1e+30":  {"1E30"},
		"1e-7":   {"0.0000001", "1e-7", "0.1e-6"},
		"5e-324": {"5e-324", "0.5e-323", "50e-325"},
	} {
		for _, form := range forms {
			require.Equal(t, want, canonical(t, form), form)
		}
	}
}

func TestStringForms(t *testing.T) {
	// RFC 8785 section 3.2.2.2: short escapes where JSON has them, \u00xx in
	// lower case for the other controls, everything else as itself.
	require.Equal(t, "\"\u20ac$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"", canonical(t, `"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/"`))
	require.Equal(t, `"\b\t\n\f\r\u0000\u001f`+"\x7f\u0080\u2028</script>\"", canonical(t, `"\u0008\u0009\u000A\u000C\u000D\u0000\u001F\u007f\u0080\u2028\u003c/script\u003E"`))
	require.Equal(t, "\"\U0001f600\"", canonical(t, `"\uD83D\uDE00"`))
}

func TestDifferentStaysDifferent(t *testing.T) {
	for _, pair := range [][2]string{
		{"\"\u00e9\"", "\"e\u0301\""}, // NFC, NFD
		{"{\"\u00e9\":1}", "{\"e\u0301\":1}"},
		{`{"a":null}`, `{}`},
		{`{"a":null}`, `{"a":false}`},
		{`{"a":1}`, `{"a":"1"}`},
		{`[]`, `{}`},
		{`[1,2]`, `[2,1]`},
		{`[[1],2]`, `[1,[2]]`},
		{`"a"`, `"A"`},
		{`"\ufeffa"`, `"a"`},
		{`1e23`, `9.999999999999997e22`},
		{`9007199254740992`, `9007199254740994`},
		{`0.3`, `0.30000000000000004`},
	} {
		require.NotEqual(t, canonical(t, pair[0]), canonical(t, pair[1]), pair)
	}
}

func TestCanonicalRefusesWhatCheckRefuses(t *testing.T) {
	for _, raw := range []string{"", "{", `{"a":1,"a":1}`, "9007199254740993", "\xef\xbb\xbf{}"} {
		_, err := strictjson.Canonical([]byte(raw))
		require.Equal(t, strictjson.Check([]byte(raw)), err)
		_, err = strictjson.AppendCanonicalWithout(nil, []byte(raw), []string{"/a"})
		require.Equal(t, strictjson.Check([]byte(raw)), err)
	}
	_, err := strictjson.Canonical(nil)
	require.Error(t, err)
}

func TestCanonicalWithout(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		ignore    []string
		want      string
	}{
		{"nothing to ignore", `{"b":1,"a":2}`, nil, `{"a":2,"b":1}`},
		{"first", `{"a":1,"b":2,"c":3}`, []string{"/a"}, `{"b":2,"c":3}`},
		{"middle", `{"a":1,"b":2,"c":3}`, []string{"/b"}, `{"a":1,"c":3}`},
		{"last", `{"a":1,"b":2,"c":3}`, []string{"/c"}, `{"a":1,"b":2}`},
		{"several", `{"a":1,"b":2,"c":3}`, []string{"/c", "/a"}, `{"b":2}`},
		{"all", `{"a":1}`, []string{"/a"}, `{}`},
		{"null is a member like others", `{"a":null,"b":1}`, []string{"/a"}, `{"b":1}`},
		{"white space", " { \"a\" : 1 , \"b\" : [ 2 ] } ", []string{"/a"}, `{"b":[2]}`},
		{"nested", `{"a":{"b":{"c":1,"d":2}},"b":3}`, []string{"/a/b/c"}, `{"a":{"b":{"d":2}},"b":3}`},
		{"nested leaves the empty object", `{"a":{"b":1}}`, []string{"/a/b"}, `{"a":{}}`},
		{"a member and one below it", `{"a":{"b":1,"c":2}}`, []string{"/a/b", "/a"}, `{}`},
		{"the same the other way round", `{"a":{"b":1,"c":2}}`, []string{"/a", "/a/b"}, `{}`},
		{"twice the same", `{"a":1,"b":2}`, []string{"/a", "/a"}, `{"b":2}`},
		{"absent", `{"a":1}`, []string{"/x", "/x/y", "/a/x"}, `{"a":1}`},
		{"only there, not deeper", `{"a":{"t":1},"t":2}`, []string{"/t"}, `{"a":{"t":1}}`},
		{"an array on the way", `{"a":[{"t":1}]}`, []string{"/a/0/t", "/a/t", "/a/0", "/a/-"}, `{"a":[{"t":1}]}`},
		{"a digit as a name", `{"a":{"0":1,"1":2}}`, []string{"/a/0"}, `{"a":{"1":2}}`},
		{"an array itself", `{"a":[1],"b":1}`, []string{"/a"}, `{"b":1}`},
		{"a scalar on the way", `{"a":"t"}`, []string{"/a/t"}, `{"a":"t"}`},
		{"an array as document", `[{"a":1}]`, []string{"/0/a", "/a"}, `[{"a":1}]`},
		{"a scalar as document", `"a"`, []string{"/a"}, `"a"`},
		{"written with escapes", `{"\u0061":1,"b":2}`, []string{"/a"}, `{"b":2}`},
		{"case counts", `{"A":1,"b":2}`, []string{"/a"}, `{"A":1,"b":2}`},
		{"pointer escapes", `{"x/y":1,"x~y":2,"x~1y":3,"":4,"z":5}`, []string{"/x~1y", "/x~0y", "/x~01y", "/"}, `{"z":5}`},
		{"no percent decoding", `{"x y":1,"x%20y":2}`, []string{"/x%20y"}, `{"x y":1}`},
		{"below the empty name", `{"":{"":1,"a":2}}`, []string{"//"}, `{"":{"a":2}}`},
		{"brackets in strings", `{"a":"}],{\"","b":{"c":"\\"}}`, []string{"/b/c"}, `{"a":"}],{\"","b":{}}`},
	} {
		got, err := strictjson.AppendCanonicalWithout(nil, []byte(c.raw), c.ignore)
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, string(got), c.name)
	}
}

func TestCanonicalWithoutChecksWhatItLeavesOut(t *testing.T) {
	_, err := strictjson.AppendCanonicalWithout(nil, []byte(`{"a":9007199254740993,"b":1}`), []string{"/a"})
	require.ErrorContains(t, err, inexact)
}

func TestPointersThatAreNone(t *testing.T) {
	for _, p := range []string{"", "a", "#/a", " /a", "/~", "/a~", "/~2", "/~~01", "/a/b~x"} {
		_, err := strictjson.ParsePointer(p)
		require.ErrorIs(t, err, strictjson.ErrPointer, p)
		_, err = strictjson.AppendCanonicalWithout(nil, []byte(`{}`), []string{"/ok", p})
		require.ErrorIs(t, err, strictjson.ErrPointer, p)
	}
	got, err := strictjson.ParsePointer("/a~1b/~01//~00")
	require.NoError(t, err)
	require.Equal(t, []string{"a/b", "~1", "", "~0"}, got)
}
