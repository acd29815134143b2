package strictjson_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/strictjson"
)

func TestMembersKeepOrderAndBytes(t *testing.T) {
	raw := []byte(" {\"z\" : 1.10 , \"\\u0061\\n\":[ 1,{\"x\":\"]}\"} ],\n\"\":\"\\u00e9\\\"\" ,\"n\":18446744073709551615,\"e\":{ }} ")
	members, err := strictjson.Members(raw)
	require.NoError(t, err)
	var got [][2]string
	for _, m := range members {
		got = append(got, [2]string{m.Name, string(m.Value)})
	}
	require.Equal(t, [][2]string{
		{"z", "1.10"}, {"a\n", `[ 1,{"x":"]}"} ]`}, {"", `"\u00e9\""`}, {"n", "18446744073709551615"}, {"e", "{ }"},
	}, got)

	// The tokens are parts of raw, and appending to one does not reach raw.
	before := string(raw)
	_ = append(members[0].Value, "XXXX"...)
	require.Equal(t, before, string(raw))
	raw[8] = '9'
	require.Equal(t, "9.10", string(members[0].Value))
}

func TestElementsKeepOrderAndBytes(t *testing.T) {
	elements, err := strictjson.Elements([]byte("\t[ -0,1e2 ,\"a,]\", [[],{}] ,{\"a\":[1]},null ] "))
	require.NoError(t, err)
	var got []string
	for _, e := range elements {
		got = append(got, string(e))
	}
	require.Equal(t, []string{"-0", "1e2", `"a,]"`, "[[],{}]", `{"a":[1]}`, "null"}, got)

	elements, err = strictjson.Elements([]byte(" [ ] "))
	require.NoError(t, err)
	require.Empty(t, elements)
}

func TestMembersAndElementsRefuse(t *testing.T) {
	for _, raw := range []string{
		"", " ", "1", `"a"`, "null", "{", "{]", `{"a"`, `{"a"}`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a":1 "b":2}`,
		`{"a":1}x`, `{a:1}`, `{"a":"}`, `{"a\`, `{"\x":1}`, `{"a":[1}`, "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1]x", `["`, `["\`, "[[]", "[:]", "\x00",
	} {
		if raw != "" && raw[0] != '[' {
			members, err := strictjson.Members([]byte(raw))
			require.Error(t, err, raw)
			require.Nil(t, members)
		}
		if raw != "" && raw[0] != '{' {
			elements, err := strictjson.Elements([]byte(raw))
			require.Error(t, err, raw)
			require.Nil(t, elements)
		}
	}
	_, err := strictjson.Members(nil)
	require.EqualError(t, err, `refuse JSON at "" (byte 0): this is not a JSON object`)
	_, err = strictjson.Elements([]byte(" {}"))
	require.EqualError(t, err, `refuse JSON at "" (byte 1): this is not a JSON array`)
}

func TestGet(t *testing.T) {
	raw := []byte(` {"a":{"b":[10,{"c":15947634569000323},[]]},"amount":1.10,"0":"zero","x\u002fy":-0,"null":null,"twice":1,"twice":{"deep":2}} `)
	for _, c := range []struct {
		path []string
		want string // "" is none
	}{
		{[]string{"amount"}, "1.10"},
		{[]string{"x/y"}, "-0"},
		{[]string{"null"}, "null"},
		{[]string{"0"}, `"zero"`},
		{[]string{"a", "b"}, `[10,{"c":15947634569000323},[]]`},
		{[]string{"a", "b", "0"}, "10"},
		{[]string{"a", "b", "1", "c"}, "15947634569000323"},
		{[]string{"a", "b", "2"}, "[]"},
		{[]string{"a", "b", "3"}, ""},
		{[]string{"a", "b", "-1"}, ""},
		{[]string{"a", "b", "00"}, ""},
		{[]string{"a", "b", "+1"}, ""},
		{[]string{"a", "b", ""}, ""},
		{[]string{"a", "b", "99999999999999999999"}, ""},
		{[]string{"a", "b", "0", "x"}, ""},
		{[]string{"a", "b", "2", "0"}, ""},
		{[]string{"A"}, ""},
		{[]string{"absent"}, ""},
		{[]string{"null", "x"}, ""},
		{[]string{"twice"}, `{"deep":2}`}, // the last counts
		{[]string{"twice", "deep"}, "2"},
	} {
		got, ok := strictjson.Get(raw, c.path...)
		require.Equal(t, c.want != "", ok, c.path)
		require.Equal(t, c.want, string(got), c.path)
	}
	whole, ok := strictjson.Get([]byte(" 1.0\n"))
	require.True(t, ok)
	require.Equal(t, "1.0", string(whole))
	require.Equal(t, 3, cap(whole), "appending to a token does not reach the document")
	for _, bad := range []string{"", " ", "1 2", "{", `{"a":1,`, `{"a":1}}`, "["} {
		_, ok := strictjson.Get([]byte(bad), "a")
		require.False(t, ok, bad)
		_, ok = strictjson.Get([]byte(bad))
		require.False(t, ok, bad)
	}
}
