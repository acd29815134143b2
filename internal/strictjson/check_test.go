package strictjson_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

// refusal asserts that Check refuses raw, and returns why.
func refusal(t *testing.T, raw string) *strictjson.Error {
	t.Helper()
	err := strictjson.Check([]byte(raw))
	require.Error(t, err)
	var refused *strictjson.Error
	require.ErrorAs(t, err, &refused)
	return refused
}

func TestCheckAccepts(t *testing.T) {
	for _, raw := range []string{
		`{}`, `[]`, `null`, `true`, `false`, `""`, `0`, `-0`, `"a"`,
		" \t\r\n{ \t\r\n} \t\r\n", "\n[ 1 ,\t2 ]\r", `{ "a" : { "b" : [ ] } , "c" : [ { } ] }`,
		`"\"\\\/\b\f\n\r\t\u0000\u00e9\u20AC"`,
		`"\ud83d\ude00"`, `"\uD83D\uDE00\uDBFF\uDFFF"`, // surrogates in pairs
		`"\\ud800"`, // an escaped backslash, no surrogate
		"\"\xf0\x9f\x98\x80 \xef\xbb\xbf \xef\xbf\xbd \x7f \xe2\x80\xa8\"", // U+FEFF inside is a character
		`"\ufeff\ufffd\uffff\ud7ff\ue000"`,
		`{"a":1,"A":2,"a ":3,"":4}`,
		`[{"a":1},{"a":1},{"a":{"a":{"a":1}}}]`, // the same name in different objects
		"{\"\xc3\xa9\":1,\"e\xcc\x81\":2}",      // NFC and NFD are two names
	} {
		require.NoError(t, strictjson.Check([]byte(raw)), raw)
	}
}

func TestCheckRefuses(t *testing.T) {
	const (
		empty     = "the text is empty; send one JSON value"
		more      = "there is more text after the JSON value; send exactly one"
		early     = "the JSON ends too early: "
		wrong     = "this is not JSON: "
		duplicate = "this member name occurs more than once in its object"
		surrogate = "this escape is half of a surrogate pair; send the whole character"
		escape    = "this is not an escape that JSON has"
		utf8      = "this is not valid UTF-8"
		number    = "this is not a number that JSON has"
		control   = "a control character in a string must be written as an escape"
	)
	for _, c := range []struct {
		raw, pointer string
		offset       int
		reason       string
	}{
		{"", "", 0, empty},
		{" \n", "", 2, empty},
		{"\xef\xbb\xbf{}", "", 0, "remove the byte-order mark; send plain UTF-8"},
		{"\xfe\xff\x00{\x00}", "", 0, wrong + "a JSON value was expected here"},
		{"{}{}", "", 2, more},
		{"{} x", "", 3, more},
		{"1 2", "", 2, more},
		{"nullnull", "", 4, more},
		{"{}\x00", "", 2, more},
		{"\x00", "", 0, wrong + "a JSON value was expected here"},
		{"\f1", "", 0, wrong + "a JSON value was expected here"},
		{"\xc2\xa01", "", 0, wrong + "a JSON value was expected here"}, // no-break space
		{"tru", "", 0, wrong + "a JSON value was expected here"},
		{"True", "", 0, wrong + "a JSON value was expected here"},
		{"NaN", "", 0, wrong + "a JSON value was expected here"},
		{"Infinity", "", 0, wrong + "a JSON value was expected here"},
		{"'a'", "", 0, wrong + "a JSON value was expected here"},
		{"// c\n1", "", 0, wrong + "a JSON value was expected here"},
		{"[", "/0", 1, early + "a JSON value was expected"},
		{"[1", "", 2, early + "a comma or the end of the array was expected"},
		{"[1,", "/1", 3, early + "a JSON value was expected"},
		{"[1,]", "/1", 3, wrong + "a JSON value was expected here"},
		{"[,1]", "/0", 1, wrong + "a JSON value was expected here"},
		{"[1 2]", "", 3, wrong + "a comma or the end of the array was expected here"},
		{"[1}", "", 2, wrong + "a comma or the end of the array was expected here"},
		{"]", "", 0, wrong + "a JSON value was expected here"},
		{"{", "", 1, early + "a member name in double quotes was expected"},
		{"{]", "", 1, wrong + "a member name in double quotes was expected here"},
		{`{a:1}`, "", 1, wrong + "a member name in double quotes was expected here"},
		{`{1:1}`, "", 1, wrong + "a member name in double quotes was expected here"},
		{`{"a"}`, "/a", 4, wrong + "a colon after the member name was expected here"},
		{`{"a":}`, "/a", 5, wrong + "a JSON value was expected here"},
		{`{"a":1,}`, "", 7, wrong + "a member name in double quotes was expected here"},
		{`{"a":1 "b":2}`, "", 7, wrong + "a comma or the end of the object was expected here"},
		{`{"a":1`, "", 6, early + "a comma or the end of the object was expected"},
		{`{"a":[1,{"b":tru}]}`, "/a/1/b", 13, wrong + "a JSON value was expected here"},
		{`"a`, "", 2, early + "the closing quote of a string was expected"},
		{`{"a`, "", 3, early + "the closing quote of a string was expected"},
		{"\"a\nb\"", "", 2, control},
		{"\"\x00\"", "", 1, control},
		{"\"\x1f\"", "", 1, control},
		{`"\x"`, "", 1, escape},
		{`"\`, "", 1, escape},
		{`"\U0041"`, "", 1, escape},
		{`"\u00g0"`, "", 1, escape},
		{`"\u+041"`, "", 1, escape},
		{`"\u12"`, "", 1, escape},
		{`{"k":"\'"}`, "/k", 6, escape},
		{`"\ud800"`, "", 1, surrogate},
		{`"\udc00"`, "", 1, surrogate},
		{`"\ud800\ud800"`, "", 1, surrogate},
		{`"\udc00\ud800"`, "", 1, surrogate},
		{`"\udc00\udc00"`, "", 1, surrogate},
		{`"\ud800\ue000"`, "", 1, surrogate},
		{`"\udbff"`, "", 1, surrogate},
		{`"\udfff"`, "", 1, surrogate},
		{`"\ud800x"`, "", 1, surrogate},
		{`"\ud800\u0041"`, "", 1, surrogate},
		{`"\ud800\n"`, "", 1, surrogate},
		{`"\ud800\\udc00"`, "", 1, surrogate},
		{`{"\udead":1}`, "", 2, surrogate},
		{"\"\xff\"", "", 1, utf8},
		{"\"\xc0\x80\"", "", 1, utf8},           // overlong NUL
		{"\"\xed\xa0\x80\"", "", 1, utf8},       // a surrogate as UTF-8
		{"\"\xf4\x90\x80\x80\"", "", 1, utf8},   // beyond U+10FFFF
		{"\"a\xe2\x82\"", "", 2, utf8},          // cut short
		{"{\"a\":{\"\xff\":1}}", "/a", 7, utf8}, // a name that cannot be in a pointer
		{`{"a":1,"a":1}`, "/a", 7, duplicate},
		{`{"a":1,"\u0061":2}`, "/a", 7, duplicate},
		{`{"\u0061":1,"a":2}`, "/a", 12, duplicate},
		{`{"\/":1,"/":2}`, "/~1", 8, duplicate},
		{`{"":1,"":2}`, "/", 6, duplicate},
		{"{\"\\ud83d\\ude00\":1,\"\xf0\x9f\x98\x80\":2}", "/\xf0\x9f\x98\x80", 18, duplicate},
		{`{"a":{"b":1},"a":2}`, "/a", 13, duplicate},
		{`[0,{"x~/y":{"b":1,"c":2,"b":3}}]`, "/1/x~0~1y/b", 24, duplicate},
		{`01`, "", 0, number}, {`-01`, "", 0, number}, {`00`, "", 0, number},
		{`-`, "", 0, number}, {`1.`, "", 0, number}, {`1.e1`, "", 0, number}, {`1e`, "", 0, number},
		{`1e+`, "", 0, number}, {`-a`, "", 0, number}, {`[1,-]`, "/1", 3, number},
		{`.5`, "", 0, wrong + "a JSON value was expected here"},
		{`+1`, "", 0, wrong + "a JSON value was expected here"},
		{`1_000`, "", 1, more}, {`0x10`, "", 1, more}, {`1.5.5`, "", 3, more}, {`1e5e5`, "", 3, more},
	} {
		got := refusal(t, c.raw)
		require.Equal(t, strictjson.Error{Pointer: c.pointer, Reason: c.reason, Offset: c.offset}, *got, "%q", c.raw)
	}
}

func TestDepth(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	require.NoError(t, strictjson.Check([]byte(nest(strictjson.MaxDepth))))
	got := refusal(t, nest(strictjson.MaxDepth+1))
	require.Equal(t, "this is nested deeper than 64 levels", got.Reason)
	require.Equal(t, strictjson.MaxDepth, got.Offset)
	require.Equal(t, strings.Repeat("/0", strictjson.MaxDepth), got.Pointer)

	mixed := strings.Repeat(`{"a":[`, 32) + "1" + strings.Repeat(`]}`, 32)
	require.NoError(t, strictjson.Check([]byte(mixed)))
	require.Error(t, strictjson.Check([]byte(`[`+mixed+`]`)))
	// A million brackets are refused at the 65th.
	require.Equal(t, strictjson.MaxDepth, refusal(t, strings.Repeat("[", 1<<20)).Offset)
}

func TestMembersPerContainer(t *testing.T) {
	array := func(n int) string { return "[" + strings.TrimSuffix(strings.Repeat("0,", n), ",") + "]" }
	object := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,"` + strconv.Itoa(i) + `":0`)
		}
		return "{" + b.String()[1:] + "}"
	}
	const reason = "there are more than 10000 members or elements in one container"
	for name, make := range map[string]func(int) string{"array": array, "object": object} {
		require.NoError(t, strictjson.Check([]byte(make(strictjson.MaxMembers))), name)
		got := refusal(t, `{"x":`+make(strictjson.MaxMembers+1)+`}`)
		require.Equal(t, reason, got.Reason, name)
		require.Equal(t, "/x", got.Pointer, name)
	}
	// The limit is for one container, not for the document.
	require.NoError(t, strictjson.Check([]byte("["+array(9000)+","+object(9000)+"]")))
}

// Duplicates must be found whatever the size of the object and wherever they
// stand, also when objects open and close in between.
func TestDuplicateInObjectsOfEverySize(t *testing.T) {
	for _, size := range []int{2, 3, 31, 32, 33, 34, 64, 65, 500} {
		for _, first := range []int{0, (size - 1) / 2, size - 2} {
			var b strings.Builder
			for i := range size {
				name := "n" + strconv.Itoa(i)
				if i == size-1 {
					name = "n" + strconv.Itoa(first)
				}
				b.WriteString(`,"` + name + `":{"n` + strconv.Itoa(i) + `":0,"z":[{"n0":1}]}`)
			}
			got := refusal(t, "{"+b.String()[1:]+"}")
			require.Equal(t, "/n"+strconv.Itoa(first), got.Pointer, size)
		}
	}
}

func TestErrorHoldsNoValueAndBoundedNames(t *testing.T) {
	long := strings.Repeat("n", 1000)
	got := refusal(t, `{"a":{"`+long+`":{"b":1,"b":"secret"}}}`)
	require.Equal(t, "/a", got.Pointer, "the nearest container that fits")
	require.NotContains(t, got.Error(), "secret")

	tildes := strings.Repeat("~", 200) // 400 bytes once escaped
	require.Empty(t, refusal(t, `{"`+tildes+`":[}`).Pointer)

	deep := strings.Repeat(`{"0123456789":`, 60) + "x"
	require.Equal(t, strings.Repeat("/0123456789", 23), refusal(t, deep).Pointer)

	got = refusal(t, `{"a\nlevel=error":12345678901234567890}`)
	require.Equal(t, "/a\nlevel=error", got.Pointer)
	require.Equal(t, `refuse JSON at "/a\nlevel=error" (byte 18): this number cannot be represented exactly; send it as a string`, got.Error())
}

// Hostile megabytes: each is a case in which a careless reader is quadratic.
// The test is here to be seen hanging.
func TestHostileInputsAreCheap(t *testing.T) {
	const size = 1 << 20
	var names, escaped strings.Builder
	for i := range strictjson.MaxMembers {
		names.WriteString(`,"` + strings.Repeat("p", 90) + strconv.Itoa(i) + `":0`)
		escaped.WriteString(`,"` + strings.Repeat(`\u0070`, 15) + strconv.Itoa(i) + `":0`)
	}
	for name, raw := range map[string]string{
		"digits":            strings.Repeat("9", size),
		"zeros":             "1" + strings.Repeat("0", size),
		"fraction":          "0." + strings.Repeat("0", size) + "1",
		"exponent":          "1e" + strings.Repeat("9", size),
		"negative exponent": "1e-" + strings.Repeat("9", size),
		"exponent of zeros": "1e" + strings.Repeat("0", size) + "1",
		"back to one":       "1" + strings.Repeat("0", size) + "e-" + strconv.Itoa(size),
		"open string":       `"` + strings.Repeat("a", size),
		"backslashes":       `"` + strings.Repeat(`\\`, size/2),
		"space":             strings.Repeat(" ", size),
		"open objects":      strings.Repeat(`{"a":`, size/5),
		"long names":        "{" + names.String()[1:] + "}x",
		"escaped names":     "{" + escaped.String()[1:] + "}x",
		"many objects":      "[" + strings.Repeat(`{"a":0},`, strictjson.MaxMembers-1) + "{}]x",
	} {
		require.Error(t, strictjson.Check([]byte(raw)), name)
	}
}
