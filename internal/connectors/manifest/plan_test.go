package manifest_test

import (
	"bufio"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

func makeOp(params string) connectors.Op {
	return connectors.Op{
		Action: "make", Params: []byte(params), Marker: marker, VendorKey: "key-1",
		Started: time.Date(2026, 5, 4, 3, 2, 1, 5e8, time.FixedZone("", 7200)),
	}
}

// requestTo is a manifest with one action and this request.
func requestTo(place string) string {
	return `apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: acme, version: 1.0.0}
base_url: {allow: ["https://api.acme.example/base"]}
auth: {type: bearer, secret: token}
config: {type: object, additionalProperties: false, properties: {site: {type: string}}}
actions:
  make:
    effect: create
    input: {type: object}
    request: {method: POST, ` + place + `}
    outcomes: [{when: "status == 200", is: succeeded}]
    check: []
`
}

func plan(t testing.TB, c connectors.Connector, params string) (connectors.Request, error) {
	t.Helper()
	op := makeOp(params)
	if c.Spec().Actions["make"].Idempotency == nil {
		op.VendorKey = ""
	}
	return c.Plan(t.Context(), op)
}

// hostile are values that have meant something else to some server.
var hostile = []string{
	"..", ".", "", "%2e%2e", "%2E%2e", "%252e%252e", "%2f", "%2F..", "%252F", "%5c", "%00", "a%0d%0ab", "/", "//", "a/b", "../../admin",
	"?", "?x=1", "#", "#x", ";", ";x=1", `\`, `..\`, "\r\n", "a\r\nX-Evil: 1", "\n", "\x00", "a\x00b", "\x7f", "\u0085", "\u2028",
	" ", "a b", "+", "&x=1", "=", "a=b&c=d", "@evil.example", "http://evil.example/", ":8080", "é", "日本", "\u202e", "a,b", "\"", "'", "<>", "{x}", "%zz", "%",
}

func quoted(t testing.TB, s string) string {
	t.Helper()
	raw := `{"v":"`
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			raw += `\` + string(r)
		case r < ' ':
			raw += `\u00` + string("0123456789abcdef"[r>>4]) + string("0123456789abcdef"[r&15])
		default:
			raw += string(r)
		}
	}
	return raw + `"}`
}

// received is the request as a server reads it.
func received(t testing.TB, r connectors.Request) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.Method, r.URL, strings.NewReader(string(r.Body)))
	require.NoError(t, err)
	req.Header = r.Header.Clone()
	var b strings.Builder
	require.NoError(t, req.Write(&b))
	got, err := http.ReadRequest(bufio.NewReader(strings.NewReader(b.String())))
	require.NoError(t, err)
	return got
}

func TestPathValuesStayInsideTheirSegment(t *testing.T) {
	c := mustCompile(t, requestTo(`path: "/v1/{params.v}/end"`))
	refused := 0
	for _, v := range hostile {
		r, err := plan(t, c, quoted(t, v))
		if err != nil {
			var bad *connectors.InputError
			require.ErrorAs(t, err, &bad, "%q", v)
			require.Equal(t, "/v", bad.Problems[0].Pointer)
			refused++
			continue
		}
		got := received(t, r)
		require.Equal(t, "api.acme.example", got.Host)
		require.Empty(t, got.URL.RawQuery)
		segments := strings.Split(got.RequestURI, "/")
		require.Len(t, segments, 5, "%q gave %q", v, got.RequestURI)
		require.Equal(t, []string{"", "base", "v1"}, segments[:3])
		require.Equal(t, "end", segments[4])
		back, err := url.PathUnescape(segments[3])
		require.NoError(t, err)
		require.Equal(t, v, back)
	}
	require.Positive(t, refused)
}

func TestPathValuesThatAreRefused(t *testing.T) {
	c := mustCompile(t, requestTo(`path: "/v1/{params.v}/end"`))
	for _, v := range []string{
		"", ".", "..", "%2e%2e", "%2E%2e", "%252e%252e", "%2f", "%2F..", "%252F", "%5c", "%00", "a%0d%0ab", "%zz%2f",
		"/", "a/b", "../../admin", `\`, `..\`, "\r\n", "a\r\nX-Evil: 1", "\n", "\x00", "a\x00b", "\x7f", "\u0085",
	} {
		_, err := plan(t, c, quoted(t, v))
		var bad *connectors.InputError
		require.ErrorAs(t, err, &bad, "%q", v)
	}
	for _, raw := range []string{`null`, `1.5`, `1e2`, `[]`, `{}`, `["a"]`} {
		_, err := plan(t, c, `{"v":`+raw+`}`)
		var bad *connectors.InputError
		require.ErrorAs(t, err, &bad, raw)
		require.Equal(t, "/v", bad.Problems[0].Pointer)
	}
	_, err := plan(t, c, `{}`)
	var bad *connectors.InputError
	require.ErrorAs(t, err, &bad)
}

func TestPathValuesThatAreSent(t *testing.T) {
	c := mustCompile(t, requestTo(`path: "/v1/{params.v}/end"`))
	for raw, segment := range map[string]string{
		`"a b"`: "a%20b", `"é"`: "%C3%A9", `"a?b#c;d"`: "a%3Fb%23c%3Bd", `"..."`: "...", `15947634569000323`: "15947634569000323", `-1`: "-1", `true`: "",
	} {
		r, err := plan(t, c, `{"v":`+raw+`}`)
		if segment == "" {
			require.Error(t, err)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, "https://api.acme.example/base/v1/"+segment+"/end", r.URL)
	}
}

func TestPiecesOfAPathCannotJoinIntoADotSegment(t *testing.T) {
	c := mustCompile(t, requestTo(`path: "/v1/.{params.v}"`))
	for _, v := range []string{".", ""} {
		_, err := plan(t, c, quoted(t, v))
		var bad *connectors.InputError
		require.ErrorAs(t, err, &bad)
	}
	r, err := plan(t, c, quoted(t, "x"))
	require.NoError(t, err)
	require.Equal(t, "https://api.acme.example/base/v1/.x", r.URL)
}

func TestQueryValuesStayInsideTheirParameter(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, query: {a: "1", v: {$: params.v}, z: "2"}`))
	for _, v := range hostile {
		r, err := plan(t, c, quoted(t, v))
		require.NoError(t, err, "%q", v)
		got := received(t, r)
		require.Equal(t, "/base/v1", got.URL.Path)
		query, err := url.ParseQuery(got.URL.RawQuery)
		require.NoError(t, err)
		require.Equal(t, url.Values{"a": {"1"}, "v": {v}, "z": {"2"}}, query)
	}
}

func TestQueryThatCannotSayAValueIsRefused(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, query: {v: {$: params.v}}`))
	for _, raw := range []string{`null`, `[]`, `{}`, `{"a]":1}`} {
		_, err := plan(t, c, `{"v":`+raw+`}`)
		var bad *connectors.InputError
		require.ErrorAs(t, err, &bad, raw)
		require.Equal(t, "/v", bad.Problems[0].Pointer)
	}
	r, err := plan(t, c, `{"v":["a",1.10]}`)
	require.NoError(t, err)
	require.Equal(t, "https://api.acme.example/base/v1?v%5B%5D=a&v%5B%5D=1.10", r.URL)
}

func TestFormValuesStayInsideTheirField(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, encoding: form, body: {a: "1", v: {$: params.v}, n: {m: {$: params.v}}}`))
	for _, v := range hostile {
		r, err := plan(t, c, quoted(t, v))
		require.NoError(t, err, "%q", v)
		form, err := url.ParseQuery(string(r.Body))
		require.NoError(t, err)
		require.Equal(t, url.Values{"a": {"1"}, "v": {v}, "n[m]": {v}}, form)
		require.Equal(t, "application/x-www-form-urlencoded", r.Header.Get("Content-Type"))
	}
}

func TestHeaderValuesStayInsideTheirHeader(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, headers: {X-V: {$: params.v}}`))
	for _, v := range hostile {
		r, err := plan(t, c, quoted(t, v))
		plain := strings.TrimSpace(v) == v
		for _, b := range []byte(v) {
			plain = plain && b >= ' ' && b <= '~'
		}
		if !plain {
			var bad *connectors.InputError
			require.ErrorAs(t, err, &bad, "%q", v)
			require.Equal(t, "/v", bad.Problems[0].Pointer)
			require.NotContains(t, err.Error(), "Evil")
			continue
		}
		require.NoError(t, err, "%q", v)
		got := received(t, r)
		require.Equal(t, []string{v}, got.Header.Values("X-V"))
		require.Len(t, got.Header, 4) // X-V, and Accept, Content-Length, User-Agent
	}
	_, err := plan(t, c, `{"v":["a"]}`)
	require.Error(t, err)
	_, err = plan(t, c, quoted(t, strings.Repeat("x", 9<<10)))
	require.Error(t, err)
}

func TestConfigIsEncodedLikeParams(t *testing.T) {
	c := mustCompile(t, requestTo(`path: "/v1/{config.site}", query: {s: {$: config.site}}, headers: {X-Site: {$: config.site}}`))
	op := makeOp(`{}`)
	op.VendorKey = ""
	op.Config = []byte(`{"site":"evil.example#@x"}`)
	r, err := c.Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "https://api.acme.example/base/v1/evil.example%23%40x?s=evil.example%23%40x", r.URL)

	op.Config = []byte(`{"site":"../x"}`)
	_, err = c.Plan(t.Context(), op)
	require.ErrorIs(t, err, connectors.ErrPlan)
	var bad *connectors.InputError
	require.NotErrorAs(t, err, &bad, "a config is not the agent's to mend")
}

func TestFormNamesCannotMakeOtherFields(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, encoding: form, body: {m: {$: params.v}}`))
	for raw, body := range map[string]string{
		`{"a":"b"}`:                    "m%5Ba%5D=b",
		`{"a&x=1":"b"}`:                "m%5Ba%26x%3D1%5D=b",
		`[1,2]`:                        "m%5B%5D=1&m%5B%5D=2",
		`[{"p":1.10},{"p":true}]`:      "m%5B0%5D%5Bp%5D=1.10&m%5B1%5D%5Bp%5D=true",
		`{"a":{"b":["x y",false,-0]}}`: "m%5Ba%5D%5Bb%5D%5B%5D=x%20y&m%5Ba%5D%5Bb%5D%5B%5D=false&m%5Ba%5D%5Bb%5D%5B%5D=-0",
		`"s"`:                          "m=s",
	} {
		r, err := plan(t, c, `{"v":`+raw+`}`)
		require.NoError(t, err, raw)
		require.Equal(t, body, string(r.Body))
	}
	for _, raw := range []string{`{"a]":1}`, `{"a][b":1}`, `{"[":1}`, `{"":1}`, `null`, `[]`, `{}`, `[null]`, `{"a":[]}`, `{"a":null}`} {
		_, err := plan(t, c, `{"v":`+raw+`}`)
		var bad *connectors.InputError
		require.ErrorAs(t, err, &bad, raw)
		require.Equal(t, "/v", bad.Problems[0].Pointer)
	}
}

func TestKeyIsPlantedWhereTheRuleSays(t *testing.T) {
	op := makeOp(`{"id":"x"}`)
	const rule = "{in: header, name: Idempotency-Key"

	r, err := mustCompile(t, small).Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "key-1", r.Header.Get("Idempotency-Key"))

	r, err = mustCompile(t, vary(t, rule, "{in: query, name: requestid")).Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "https://api.acme.example/v1/things?requestid=key-1", r.URL)

	r, err = mustCompile(t, vary(t, rule, "{in: body, name: request_key")).Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, `{"id":"x","request_key":"key-1"}`, string(r.Body))

	deeper := strings.Replace(vary(t, rule, "{in: body, name: input.id"), "{id: {$: params.id}}", "{input: {id: {$: op.vendor_key}, n: {$: params.id}}}", 1)
	r, err = mustCompile(t, deeper).Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, `{"input":{"id":"key-1","n":"x"}}`, string(r.Body))

	op.VendorKey = ""
	_, err = mustCompile(t, small).Plan(t.Context(), op)
	require.ErrorIs(t, err, connectors.ErrPlan, "a write without its key must not be planned")
}

func TestOpIsWhatExpressionsSee(t *testing.T) {
	c := mustCompile(t, requestTo(`path: "/v1/{op.marker}", encoding: json, body: {m: {$: op.marker}, u: {$: op.started_unix - 60}, t: {$: op.started_rfc3339}}`))
	r, err := plan(t, c, `{}`)
	require.NoError(t, err)
	require.Equal(t, "https://api.acme.example/base/v1/"+marker, r.URL)
	require.Equal(t, `{"m":"`+marker+`","u":1777856461,"t":"2026-05-04T01:02:01Z"}`, string(r.Body))
}

func TestBaseURLOfTheConnection(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1`))
	op := makeOp(`{}`)
	op.VendorKey, op.BaseURL = "", "http://127.0.0.1:8080/x"
	r, err := c.Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:8080/x/v1", r.URL)
	for _, base := range []string{"http://evil.example/?x=", "http://u@h", "ftp://h", "https://h/", "//h", "https://h#", "https://h/../x", "https://H"} {
		op.BaseURL = base
		_, err = c.Plan(t.Context(), op)
		require.ErrorIs(t, err, connectors.ErrPlan, base)
	}
}

func TestOpsThatCannotBePlanned(t *testing.T) {
	c := mustCompile(t, small)
	for name, spoil := range map[string]func(*connectors.Op){
		"params not JSON":      func(op *connectors.Op) { op.Params = []byte(`{"id":`) },
		"params not an object": func(op *connectors.Op) { op.Params = []byte(`[]`) },
		"params not UTF-8":     func(op *connectors.Op) { op.Params = []byte("{\"id\":\"\xff\"}") },
		"config not an object": func(op *connectors.Op) { op.Config = []byte(`[]`) },
		"no marker":            func(op *connectors.Op) { op.Marker = "" },
		"marker that escapes":  func(op *connectors.Op) { op.Marker = "-->0123456789abcdef" },
		"other action":         func(op *connectors.Op) { op.Action = "unmake" },
	} {
		op := makeOp(`{"id":"x"}`)
		spoil(&op)
		_, err := c.Plan(t.Context(), op)
		require.Error(t, err, name)
		_, err = c.Check(t.Context(), op)
		require.Error(t, err, name)
		v, err := c.Judge(t.Context(), op, connectors.Answer{Status: 201, Whole: true})
		require.Error(t, err, name)
		require.Equal(t, connectors.Unknown, v.Outcome, name)
		found, err := c.MatchLookup(t.Context(), op, 1, connectors.Answer{Status: 200, Whole: true})
		require.Error(t, err, name)
		require.Equal(t, connectors.Doubtful, found.Kind, name)
	}
}

func TestHeadersOfARequest(t *testing.T) {
	c := mustCompile(t, strings.Replace(vary(t, "      encoding: json\n", "      encoding: json\n      headers: {x-two: {$opt: 'params.?note'}, x-one: b, Content-Type: application/vnd.acme+json}\n"),
		"actions:\n", "headers: {X-One: a, X-Api: '1'}\nactions:\n", 1))
	r, err := c.Plan(t.Context(), makeOp(`{"id":"x"}`))
	require.NoError(t, err)
	require.Equal(t, http.Header{
		"Accept": {"application/json"}, "Content-Type": {"application/vnd.acme+json"}, "Idempotency-Key": {"key-1"},
		"X-One": {"b"}, "X-Api": {"1"},
	}, r.Header)
	r, err = c.Plan(t.Context(), makeOp(`{"id":"x","note":7}`))
	require.NoError(t, err)
	require.Equal(t, "7", r.Header.Get("X-Two"))
}

func TestRequestWithoutABodyHasNone(t *testing.T) {
	c := mustCompile(t, strings.Replace(vary(t, "method: POST", "method: DELETE"), "      encoding: json\n      body: {id: {$: params.id}}\n", "", 1))
	r, err := c.Plan(t.Context(), makeOp(`{"id":"x"}`))
	require.NoError(t, err)
	require.Nil(t, r.Body)
	require.Empty(t, r.Header.Get("Content-Type"))
}

func TestURLThatIsTooLongIsRefused(t *testing.T) {
	c := mustCompile(t, requestTo(`path: /v1, query: {v: {$: params.v}}`))
	_, err := plan(t, c, quoted(t, strings.Repeat("x", 17<<10)))
	var bad *connectors.InputError
	require.ErrorAs(t, err, &bad)
}
