package manifest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// Tokens whose spelling a decoder would lose.
var tokens = []string{
	`1.10`, `1e2`, `-0`, `15947634569000323`, `18446744073709551615`, `184467440737095516160001`, `0.10000000000000000555`, `1E400`, `-1.0e-3`,
	`[]`, `{}`, `[ 1.10 , [] ]`, `{"b":1.0,"a":2}`, `"\u00e9\/"`, `""`, `null`, `true`,
}

func TestPlainSelectionCopiesTheToken(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, encoding: json, body: {a: {$: params.v}, b: {$opt: "params.?v"}, c: {$: "params['v']"}, d: {$: "params.deep.list[1].v"}, e: {$opt: "params.?deep.list[?1].v"}}`))
	for _, token := range tokens {
		r, err := plan(t, c, fmt.Sprintf(`{"v": %[1]s , "deep":{"list":[0,{"v":%[1]s}]}}`, token))
		require.NoError(t, err, token)
		require.Equal(t, fmt.Sprintf(`{"a":%[1]s,"b":%[1]s,"c":%[1]s,"d":%[1]s,"e":%[1]s}`, token), string(r.Body))
	}
}

func TestWholeParamsAreCopied(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, encoding: json, body: {$: params}`))
	r, err := plan(t, c, `{"b":1.10, "a":[ ]}`)
	require.NoError(t, err)
	require.Equal(t, `{"b":1.10, "a":[ ]}`, string(r.Body))
}

func TestResultCopiesTheToken(t *testing.T) {
	c := mustCompile(t, vary(t, "result: {id: {$: body.id}}", "result: {id: {$: body.id}, last: {$opt: 'body.?list[?0]'}}"))
	for _, token := range tokens {
		v, err := c.Judge(t.Context(), makeOp(`{"id":"x"}`), connectors.Answer{Status: 201, Whole: true, Body: []byte(`{"list":[` + token + `],"id" : ` + token + `}`)})
		require.NoError(t, err)
		require.Equal(t, connectors.Succeeded, v.Outcome)
		require.Equal(t, `{"id":`+token+`,"last":`+token+`}`, string(v.Result))
	}
}

func TestComputedNumbers(t *testing.T) {
	for _, row := range []struct{ cel, v, want string }{
		{"params.v + 0", `1e2`, `100`}, // as the same write spelt 100 would
		{"params.v + 0", `1.0`, `1`},
		{"params.v + 0", `-0`, `0`},
		{"params.v + 0", `9223372036854775807`, `9223372036854775807`},
		{"params.v + 0u", `18446744073709551615`, `18446744073709551615`},
		{"params.v + 0.0", `1.10`, `1.1`},
		{"params.v * 2.0", `1e-7`, `2e-07`},
		{"params.v + 0.0", `1e20`, `100000000000000000000`},
		{"has(params.v) ? params.v : 0", `15947634569000323`, `15947634569000323`},
		{"has(params.v) ? params.v : []", `[1.10,[ ],{"a":1.0}]`, `[1.10,[ ],{"a":1.0}]`}, // untouched text
		{"[params.v, 1]", `{"b":1e2}`, `[{"b":1e2},1]`},
		{`{"z": params.v, "a": [1.5, "<&>", null, true]}`, `1`, `{"a":[1.5,"<&>",null,true],"z":1}`},
		{"params.v == 1 ? 'one' : 'other'", `1.0`, `"one"`},
		{"1.5 + params.v", `184467440737095516160001`, ""},                                   // does not survive
		{"has(params.v) ? params.v : 0", `0.10000000000000000555`, `0.10000000000000000555`}, // passed on, not computed with
		{"has(params.v) ? params.v : 0", `1E400`, `1E400`},
		{"params.v + 1", `9223372036854775807`, ""}, // overflow
		{"1.0 / double(params.v)", `0`, ""},         // no infinity in JSON
		{"b'x'", `0`, ""},
		{"timestamp('2026-01-01T00:00:00Z')", `0`, ""},
		{"{1: params.v}", `0`, ""},
	} {
		c := mustCompile(t, requestTo(`path: /v1, encoding: json, body: {r: {$: '`+doubled(row.cel)+`'}}`))
		r, err := plan(t, c, `{"v":`+row.v+`}`)
		if row.want == "" {
			require.Error(t, err, "%s of %s", row.cel, row.v)
			continue
		}
		require.NoError(t, err, "%s of %s", row.cel, row.v)
		require.Equal(t, `{"r":`+row.want+`}`, string(r.Body), "%s of %s", row.cel, row.v)
	}
}

// doubled doubles single quotes, as YAML wants them inside single quotes.
func doubled(s string) string {
	out := ""
	for _, r := range s {
		if r == '\'' {
			out += "'"
		}
		out += string(r)
	}
	return out
}

func TestNumberThatDoesNotSurviveIsTheAgentsToMend(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, encoding: json, body: {r: {$: "params.a.v * 2.0"}}`))
	_, err := plan(t, c, `{"a":{"v":0.10000000000000000555}}`)
	var bad *connectors.InputError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "/a/v", bad.Problems[0].Pointer)
	require.NotContains(t, err.Error(), "0.1000")
}

func TestNumberThatDoesNotSurviveIsAnEmptyValueInAResult(t *testing.T) {
	c := mustCompile(t, vary(t, "result: {id: {$: body.id}}", "result: {a: {$: body.id}, b: {$: 'body.id + 1'}, c: {$opt: 'optional.of(body.id + 1)'}, d: {$: body.gone}}"))
	v, err := c.Judge(t.Context(), makeOp(`{"id":"x"}`), connectors.Answer{Status: 201, Whole: true, Body: []byte(`{"id":18446744073709551616.5}`)})
	require.NoError(t, err)
	require.Equal(t, connectors.Succeeded, v.Outcome)
	require.Equal(t, `{"a":18446744073709551616.5,"b":null,"d":null}`, string(v.Result))
}

func TestLiteralsKeepTheirDigits(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, encoding: json, body: {b: 1.10, a: 1e2, n: null, t: true, s: "1.10", l: [], o: {}, z: -0.0}`))
	r, err := plan(t, c, `{}`)
	require.NoError(t, err)
	require.Equal(t, `{"b":1.10,"a":1e2,"n":null,"t":true,"s":"1.10","l":[],"o":{},"z":-0.0}`, string(r.Body))
}

func TestOptionalValuesAreLeftOut(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, encoding: json, body: {a: {$opt: "params.?a"}, l: [{$opt: "params.?a"}, 1, {$opt: "params.?b"}], b: {$opt: "params.?b.c"}}`))
	for params, body := range map[string]string{
		`{}`:                             `{"l":[1]}`,
		`{"a":null}`:                     `{"a":null,"l":[null,1]}`,
		`{"a":1,"b":{}}`:                 `{"a":1,"l":[1,1,{}]}`,
		`{"b":{"c":[]}}`:                 `{"l":[1,{"c":[]}],"b":[]}`,
		`{"unrelated":"é","a":"\u0000"}`: `{"a":"\u0000","l":["\u0000",1]}`,
	} {
		r, err := plan(t, c, params)
		require.NoError(t, err)
		require.Equal(t, body, string(r.Body))
	}
	_, err := plan(t, c, `{"b":"text"}`)
	var bad *connectors.InputError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, "/b/c", bad.Problems[0].Pointer)
}

// Of a name that a vendor says twice the last counts, of few members as of many,
// and each counts once.
func TestMembersSaidTwice(t *testing.T) {
	c := mustCompile(t, vary(t, "result: {id: {$: body.id}}", `result: {id: {$: body.id}, n: {$: "size(body)"}, same: {$: "body == {'id': 3} || size(body) > 16"}, first: {$: "body.map(k, k)[0]"}, next: {$opt: "body.?m0"}}`))
	for _, more := range []int{0, 14, 15, 16, 30} {
		body := `{"id":1`
		for i := range more {
			body += fmt.Sprintf(`,"m%d":%d`, i, i)
		}
		body += `,"id":2,"\u0069d":3}`
		v, err := c.Judge(t.Context(), makeOp(`{"id":"x"}`), connectors.Answer{Status: 201, Whole: true, Body: []byte(body)})
		require.NoError(t, err)
		next := ""
		if more > 0 {
			next = `,"next":0`
		}
		require.Equal(t, fmt.Sprintf(`{"id":3,"n":%d,"same":%t,"first":"id"%s}`, 1+more, more == 0 || more > 15, next), string(v.Result), body)
	}
}
