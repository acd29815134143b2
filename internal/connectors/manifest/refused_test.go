package manifest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

// Each row breaks one rule of a manifest. The line is where an author is sent.
func TestManifestsThatAreRefused(t *testing.T) {
	mustCompile(t, small) // the rows below differ from it in one thing

	for _, row := range []struct {
		name, old, changed string
		line               int
		says               string
	}{
		// YAML
		{"anchor", "{name: acme, version: 1.2.3}", "&a {name: acme, version: 1.2.3}", 3, "anchors"},
		{"alias", "name: acme, version: 1.2.3", "name: &n acme, version: *n", 3, "anchors"},
		{"tag", "name: acme", "name: !!str acme", 3, "tags"},
		{"merge key", "{name: acme, version: 1.2.3}", "{<<: {name: acme}, version: 1.2.3}", 3, "must be a string"},
		{"duplicate member", "{name: acme, version", "{name: acme, name: acme, version", 3, "twice"},
		{"duplicate action", "  make:\n", "  make: {effect: create}\n  make:\n", 9, "twice"},
		{"two documents", "apiVersion: connectors/v1\n", "apiVersion: connectors/v1\n---\na: b\n", 2, "one connector"},
		{"member name that is a number", "{name: acme, version", "{1: x, name: acme, version", 3, "must be a string"},
		{"number JSON does not have", "max_len: 64", "max_len: 0x40", 11, "as JSON has it"},
		{"number with a plus", "max_len: 64", "max_len: +64", 11, "as JSON has it"},
		{"not a number", "max_len: 64", "max_len: .nan", 11, "as JSON has it"},
		{"shouted boolean", "note: true", "note: TRUE", 10, "true or false"},
		{"date", "1.2.3", "2026-01-01", 3, "quote this value"},
		{"empty value", "secret: token", "secret: ", 5, "missing"},
		{"tilde for null", "secret: token", "secret: ~", 5, "missing"},
		{"broken YAML", "{when: status == 201, is", "{when: params.?x, is", 20, "not YAML"},
		{"test of a write", "actions:\n", "test: {request: {method: GET, path: /self, query: {m: {$: op.marker}}}}\nactions:\n", 7, "no write"},
		{"test that posts", "actions:\n", "test: {request: {method: POST, path: /self}}\nactions:\n", 7, "only reads"},
		{"test with a misspelt setting", "actions:\n", "test: {request: {method: GET, path: \"/{config.nothing}\"}}\nactions:\n", 7, "no member"},
		{"byte-order mark", "apiVersion", "\ufeffapiVersion", 0, "byte-order"},
		{"invalid UTF-8", "name: acme", "name: ac\xffme", 0, "UTF-8"},
		{"nested too deeply", "note: true", "note: " + strings.Repeat("[", 60) + strings.Repeat("]", 60), 10, "nested too deeply"},

		// shape
		{"unknown member", "kind: HTTPConnector", "kind: HTTPConnector\nkindness: 1", 3, "no such member"},
		{"unknown action member", "effect: create", "effect: create\n    retries: 3", 10, "no such member"},
		{"missing member", "    effect: create\n", "", 8, "missing"},
		{"other kind", "HTTPConnector", "MCPConnector", 2, "HTTPConnector"},
		{"other API version", "connectors/v1", "connectors/v2", 1, "connectors/v1"},
		{"version of two numbers", "1.2.3", `"1.2"`, 3, "pattern"},
		{"version with a leading zero", "1.2.3", "1.02.3", 3, "pattern"},
		{"name in capitals", "name: acme", "name: Acme", 3, "pattern"},
		{"action name in capitals", "  make:\n", "  Make:\n", 1, `"Make" is not allowed`},
		{"effect read", "effect: create", "effect: read", 9, "one of"},
		{"no outcomes", "      - {when: status == 201, is: succeeded}\n      - {when: 'status == 400', is: refused, code: body.code}\n      - {when: 'status == 429', is: retryable}\n", "      []\n", 19, "at least 1"},

		// auth and hosts
		{"auth of an unknown type", "type: bearer", "type: digest", 5, "one of"},
		{"auth with a member of another type", "secret: token}", "secret: token, username: u}", 5, "no such member"},
		{"credential in a connection header", "{type: bearer, secret: token}", "{type: api_key, in: header, name: Host, secret: token}", 5, "connection"},
		{"base URL with a path pattern", "https://api.acme.example", "https://api.acme.example/{x}", 4, "pattern"},
		{"base URL with a user", "https://api.acme.example", "https://user@api.acme.example", 4, "pattern"},
		{"base URL over plain http", "https://api.acme.example", "http://api.acme.example", 4, "plain http"},
		{"wildcard for a whole domain", "https://api.acme.example", "https://*.example", 4, "registered domain"},
		{"wildcard for addresses", "https://api.acme.example", "https://*.0.0.1", 4, "registered domain"},
		{"wildcard in the middle", "https://api.acme.example", "https://api.*.example", 4, "pattern"},
		{"default outside the list", `allow: ["https`, `default: "https://evil.example", allow: ["https`, 4, "not allowed"},

		// expressions
		{"CEL that does not parse", "{$: params.id}", "{$: 'params.id +'}", 16, "CEL"},
		{"unknown variable", "{$: params.id}", "{$: parms.id}", 16, "undeclared"},
		{"unknown member of op", "{$: params.id}", "{$: op.makrer}", 16, "undeclared"},
		{"unknown function", "{$: params.id}", "{$: 'shout(params.id)'}", 16, "undeclared"},
		{"answer in a request", "{$: params.id}", "{$: body.id}", 16, "undeclared"},
		{"member the input does not have", "{$: params.id}", "{$: params.idd}", 16, "no member"},
		{"member the input does not have, in a rule", "'status == 400'", "'status == 400 && params.idd == 1'", 21, "no member"},
		{"member the config does not have", "path: /v1/things\n", "path: '/v1/{config.region}'\n", 14, "no member"},
		{"rule that is not a condition", "'status == 400'", "'status'", 21, "true or false"},
		{"rule that compares apples", "'status == 400'", `'status == "400"'`, 21, "overload"},
		{"match that is not a list", "'body.data.filter(x, x.m == op.marker)'", "'status == 200'", 26, "list"},
		{"optional under $", "{$: params.id}", "{$: 'params.?id'}", 16, "$opt"},
		{"required under $opt", "{$: params.id}", "{$opt: '\"x\"'}", 16, "use $"},
		{"expression with a neighbour", "{$: params.id}", "{$: params.id, x: 1}", 16, "stands alone"},
		{"expression that is a number", "{$: params.id}", "{$: 5}", 16, "is a string"},
		{"bad regular expression", "'status == 400'", `'status == 400 && headers["x"].matches("(")'`, 21, "matches"},
		{"expression too long", "'status == 400'", "'status == 400" + strings.Repeat(" || status == 400", 150) + "'", 21, "at most 2000"},

		// requests
		{"write by GET", "method: POST", "method: GET", 13, "GET"},
		{"path without a slash", "path: /v1/things\n", "path: v1/things\n", 14, "pattern"},
		{"path with a dot segment", "path: /v1/things\n", "path: /v1/../things\n", 14, "dot segment"},
		{"path with an empty segment", "path: /v1/things\n", "path: /v1//things\n", 14, "empty segment"},
		{"path with a query", "path: /v1/things\n", "path: '/v1/things?x=1'\n", 14, "character"},
		{"path with an escape", "path: /v1/things\n", "path: '/v1/%2e'\n", 14, "character"},
		{"path with a computed value", "path: /v1/things\n", "path: '/v1/{params.id + \"x\"}'\n", 14, "plain selection"},
		{"path with a whole body", "path: /v1/things\n", "path: '/v1/{params}'\n", 14, "plain selection"},
		{"path with an unpaired brace", "path: /v1/things\n", "path: '/v1/{params.id'\n", 14, "character"},
		{"authorization header", "      encoding: json\n", "      encoding: json\n      headers: {authorization: x}\n", 16, "auth"},
		{"host header", "      encoding: json\n", "      encoding: json\n      headers: {HOST: x}\n", 16, "connection"},
		{"content-length header", "      encoding: json\n", "      encoding: json\n      headers: {Content-Length: '1'}\n", 16, "connection"},
		{"transfer-encoding header", "      encoding: json\n", "      encoding: json\n      headers: {transfer-encoding: chunked}\n", 16, "connection"},
		{"cookie header", "      encoding: json\n", "      encoding: json\n      headers: {Cookie: a=b}\n", 16, "connection"},
		{"cookie header for all requests", "actions:\n", "headers: {cookie: a=b}\nactions:\n", 7, "connection"},
		{"header twice", "      encoding: json\n", "      encoding: json\n      headers: {X-A: a, x-a: b}\n", 16, "twice"},
		{"header twice for all requests", "actions:\n", "headers: {X-A: a, x-a: b}\nactions:\n", 7, "twice"},
		{"header name with a colon", "      encoding: json\n", "      encoding: json\n      headers: {'X:Y': z}\n", 16, "not the name"},
		{"header value with a line break", "actions:\n", "headers: {X-A: \"a\\r\\nb: c\"}\nactions:\n", 7, "line break"},
		{"header that is a list", "      encoding: json\n", "      encoding: json\n      headers: {X-A: [a]}\n", 16, "string, a number"},
		{"content type against the encoding", "      encoding: json\n", "      encoding: json\n      headers: {Content-Type: text/xml}\n", 16, "Content-Type"},
		{"config in a body", "{$: params.id}", "{$: config.site}", 16, "config"},
		{"encoding without a body", "      body: {id: {$: params.id}}\n", "", 12, "needs a body"},
		{"body without an encoding", "encoding: json", "encoding: none", 16, "no body"},
		{"null in a form", "encoding: json\n      body: {id: {$: params.id}}", "encoding: form\n      body: {id: null}", 16, "null"},
		{"empty list in a form", "encoding: json\n      body: {id: {$: params.id}}", "encoding: form\n      body: {id: []}", 16, "empty list"},
		{"form that is a list", "encoding: json\n      body: {id: {$: params.id}}", "encoding: form\n      body: [1]", 16, "an object"},

		// keys, windows, checks
		{"key too short for its format", "max_len: 64", "max_len: 31", 11, "does not fit"},
		{"uuid that does not fit", "format: hex, max_len: 64", "format: uuid, max_len: 35", 11, "does not fit"},
		{"key where there is no body", "in: header, name: Idempotency-Key", "in: body, name: id", 16, "set to something else"},
		{"key over another header", "      encoding: json\n", "      encoding: json\n      headers: {idempotency-key: x}\n", 16, "set to something else"},
		{"key in a forbidden header", "name: Idempotency-Key", "name: Authorization", 12, "auth"},
		{"key without a rule", "    idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 24h, strength: documented}\n    request:\n      method: POST\n      path: /v1/things\n      encoding: json\n      body: {id: {$: params.id}}",
			"    request:\n      method: POST\n      path: /v1/things\n      encoding: json\n      body: {id: {$: op.vendor_key}}", 15, "needs an idempotency rule"},
		{"timeout too long", "timeout: 30s", "timeout: 11m", 17, "at most 10m"},
		{"timeout of zero", "timeout: 30s", "timeout: 0s", 17, "longer than zero"},
		{"timeout without a unit", "timeout: 30s", "timeout: 30", 17, "type string"},
		{"window too short", "window: 1h", "window: 59s", 18, "60s to 720h"},
		{"window too long", "window: 1h", "window: 721h", 18, "60s to 720h"},
		{"window below two timeouts", "timeout: 30s\n    window: 1h", "timeout: 31s\n    window: 61s", 18, "twice"},
		{"window out of range", "window: 1h", "window: 999999999h", 18, "out of range"},
		{"resend after the retention", "within: 23h", "within: 24h", 25, "shorter than the retention"},
		{"resend on a weak key", "strength: documented", "strength: weak", 25, "strength documented"},
		{"resend on a key kept for who knows how long", "retention: 24h", "retention: unknown", 25, "promises"},
		{"lookup that writes", "{request: {method: GET,", "{request: {method: DELETE,", 26, "only reads"},
		{"absence believed too soon", "settle: 10s, match: 'body.data.filter(x, x.m == op.marker)', absent: still_unknown", "settle: 10ms, match: 'body.data.filter(x, x.m == op.marker)', absent: not_performed", 26, "too short"},
		{"reason on a refusal", "is: refused, code", "is: refused, reason: credential, code", 21, "only a retryable"},
		{"retry-after on a refusal", "is: refused, code", "is: refused, retry_after: '5', code", 21, "only a retryable"},
		{"refusal on a timeout of the vendor", "'status == 400'", "'status in [400, 408]'", 21, "408"},
		{"refusal on anything from 400", "'status == 400'", "'status >= 400'", 21, "408"},
		{"refusal on a server error that the body explains", "'status == 400'", "'status == 500 && body.done == false'", 21, "500"},
		{"refusal on a server error nobody knows", "'status == 400'", "'status == 561'", 21, "561"},
		{"retry on a server error", "'status == 429'", "'status == 503'", 22, "503"},
		{"header that is never shown", "    window: 1h", "    window: 1h\n    expose_headers: [X-Id, Set-Cookie]", 19, "never shown"},
		{"ignored member that does not exist", "    window: 1h", "    window: 1h\n    identity: {ignore: [/nte]}", 19, "no such member"},
		{"ignore of everything", "    window: 1h", "    window: 1h\n    identity: {ignore: ['']}", 19, "pattern"},
		{"input that is no schema", "note: true", "note: {type: thing}", 10, "schema"},
		{"input that reaches out", "note: true", "note: {$ref: 'https://evil.example/x.json'}", 10, "schema"},
		{"input that reads a file", "note: true", "note: {$ref: 'file:///etc/passwd'}", 10, "schema"},
		{"input with a bad pattern", "note: true", "note: {type: string, pattern: '('}", 10, "schema"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := compile(t, vary(t, row.old, row.changed))
			var bad *connectors.ManifestError
			require.ErrorAs(t, err, &bad)
			require.Contains(t, err.Error(), row.says)
			require.Equal(t, row.line, bad.Problems[0].Line, err.Error())
		})
	}
}

func TestManifestThatIsTooLargeIsRefused(t *testing.T) {
	padding := "#" + strings.Repeat("x", connectors.MaxManifest-len(small)-1)
	mustCompile(t, small+padding)
	_, err := compile(t, small+padding+"x")
	require.ErrorContains(t, err, "256 KiB")
}

func TestManifestThatIsEmptyIsRefused(t *testing.T) {
	for _, yaml := range []string{"", "\n", "# nothing\n", "---\n", "null\n", "[]\n", "text\n", "\x00"} {
		_, err := compile(t, yaml)
		var bad *connectors.ManifestError
		require.ErrorAs(t, err, &bad, "%q", yaml)
	}
}

func TestEveryProblemIsReportedAtOnce(t *testing.T) {
	yaml := strings.Replace(vary(t, "{$: params.id}", "{$: parms.id}"), "timeout: 30s", "timeout: 11m", 1)
	_, err := compile(t, yaml)
	var bad *connectors.ManifestError
	require.ErrorAs(t, err, &bad)
	require.Len(t, bad.Problems, 2)
	require.Equal(t, "/actions/make/request/body/id/$", bad.Problems[0].Pointer)
}

func TestRuleOnADoubtfulStatusMayNameThePageThatPromisesIt(t *testing.T) {
	mustCompile(t, vary(t, "{when: 'status == 429', is: retryable}", "{when: 'status == 503', is: retryable, doc: 'https://acme.example/errors'}"))
}
