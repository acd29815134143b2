package manifest_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var compiler = sync.OnceValues(manifest.NewCompiler)

func compile(t testing.TB, yaml string) (connectors.Connector, error) {
	t.Helper()
	c, err := compiler()
	require.NoError(t, err)
	return c.Compile([]byte(yaml))
}

func mustCompile(t testing.TB, yaml string) connectors.Connector {
	t.Helper()
	c, err := compile(t, yaml)
	require.NoError(t, err)
	return c
}

func testdata(t testing.TB, name string) string {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	return string(raw)
}

// small is a manifest that the tests vary.
const small = `apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: acme, version: 1.2.3}
base_url: {allow: ["https://api.acme.example"]}
auth: {type: bearer, secret: token}
config: {type: object, additionalProperties: false, properties: {site: {type: string}}}
actions:
  make:
    effect: create
    input: {type: object, additionalProperties: false, required: [id], properties: {id: {type: [string, number]}, note: true, list: {type: array}}}
    idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 24h, strength: documented}
    request:
      method: POST
      path: /v1/things
      encoding: json
      body: {id: {$: params.id}}
    timeout: 30s
    window: 1h
    outcomes:
      - {when: status == 201, is: succeeded}
      - {when: 'status == 400', is: refused, code: body.code}
      - {when: 'status == 429', is: retryable}
    result: {id: {$: body.id}}
    check:
      - resend: {within: 23h}
      - lookup: {request: {method: GET, path: /v1/things}, settle: 10s, match: 'body.data.filter(x, x.m == op.marker)', absent: still_unknown}
`

// vary replaces one line's text in small, which must be there once.
func vary(t testing.TB, old, changed string) string {
	t.Helper()
	require.Equal(t, 1, strings.Count(small, old), "%q", old)
	return strings.Replace(small, old, changed, 1)
}

const marker = "0123456789abcdef0123456789abcdef"
