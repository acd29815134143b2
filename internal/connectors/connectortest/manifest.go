package connectortest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/manifest"
)

// StatusManifest is a connector named "acme" whose rules look at the status
// alone, as the vendor faults of the acceptance tests want it: 2xx succeeded;
// 400, 404, 409 and 422 refused; 429, 401 and 403 retryable; all else unknown.
// need_body asks the body too, delete_thing sends none and carries the headers
// that make net/http repeat requests by itself. Its base URL is a loopback one that a connection
// names, its credential is called token.
const StatusManifest = `apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: acme, version: 1.0.0}
base_url: {allow: ["http://127.0.0.1"]}
auth: {type: bearer, secret: token}
actions:
  create_thing:
    effect: create
    input: {type: object}
    request: {method: POST, path: /things, encoding: json, body: {$: params}}
    timeout: 5s
    outcomes:
      - {when: "status >= 200 && status < 300", is: succeeded}
      - {when: "status in [400, 404, 409, 422]", is: refused}
      - {when: "status in [401, 403, 429]", is: retryable}
    check: []
  need_body:
    effect: create
    input: {type: object}
    request: {method: POST, path: /things, encoding: json, body: {$: params}}
    timeout: 5s
    outcomes:
      - {when: "status >= 200 && status < 300 && body.ok == true", is: succeeded}
      - {when: "status in [400, 404, 409, 422]", is: refused}
      - {when: "status in [401, 403, 429]", is: retryable}
    check: []
  delete_thing:
    effect: delete
    input: {type: object, additionalProperties: false, required: [id], properties: {id: {type: string}}}
    request: {method: DELETE, path: "/things/{params.id}", headers: {Idempotency-Key: {$: op.marker}, X-Idempotency-Key: {$: op.marker}}}
    timeout: 5s
    outcomes:
      - {when: "status >= 200 && status < 300", is: succeeded}
      - {when: "status in [400, 404, 409, 422]", is: refused}
      - {when: "status in [401, 403, 429]", is: retryable}
    check: []
`

// Compile compiles a manifest and fails the test if it is refused.
func Compile(t testing.TB, yaml string) connectors.Connector {
	t.Helper()
	compiler, err := manifest.NewCompiler()
	require.NoError(t, err)
	c, err := compiler.Compile([]byte(yaml))
	require.NoError(t, err)
	return c
}

// Marker is the marker of every Op made here.
const Marker = "0123456789abcdef0123456789abcdef"

// Op returns an op of an action with a vendor key if the action has a rule for
// one, claimed at a fixed time.
func Op(t testing.TB, c connectors.Connector, action, params string) connectors.Op {
	t.Helper()
	spec, ok := c.Spec().Actions[action]
	require.True(t, ok, "the connector has no action %s", action)
	key, err := spec.VendorKey([32]byte{0: 1, 31: 2})
	require.NoError(t, err)
	return connectors.Op{
		Action: action, Params: []byte(params), Marker: Marker, VendorKey: key,
		Started: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC),
	}
}
