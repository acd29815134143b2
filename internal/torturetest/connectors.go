package torturetest

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const manifestForm = `apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: torture-%[1]s, version: 1.0.0}
base_url: {allow: ["https://shop.example"]}
auth: {type: bearer, prefix: Bearer, secret: token}
actions:
  buy:
    effect: create
    input: {type: object, additionalProperties: false, required: [op], properties: {op: {type: string}}}
    idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 24h, strength: %[2]s}
    request: {method: POST, path: /%[1]s/things, encoding: json, body: {op: {$: params.op}, marker: {$: op.marker}}}
    timeout: %[4]s
    outcomes:
      - {when: 'status == 201', is: succeeded}
      - {when: 'status == 409', is: unknown}
      - {when: 'status == 422', is: refused}
      - {when: 'status == 429', is: retryable, retry_after: 'headers["retry-after"]'}
    check: %[3]s
`

// classes are the vendors of a run, by what they offer against repeats.
func classes() []string { return []string{"a", "c", "d"} }

// writeConnectors puts a connector for each class of vendor into a folder.
func writeConnectors(dir string) error {
	for class, offers := range map[string]struct{ strength, check string }{
		"a": {"documented", "[{resend: {within: 23h}}]"},
		"c": {"weak", `[{lookup: {request: {method: GET, path: /c/things, query: {marker: {$: op.marker}}}, settle: 2s, match: 'body.data.filter(x, x.marker == op.marker)', absent: still_unknown}}]`},
		"d": {"weak", "[]"},
	} {
		folder := filepath.Join(dir, "torture-"+class, "1.0.0")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return fmt.Errorf("write connectors: %w", err)
		}
		manifest := fmt.Sprintf(manifestForm, class, offers.strength, offers.check, vendorTimeout.Round(time.Millisecond))
		if err := os.WriteFile(filepath.Join(folder, "connector.yaml"), []byte(manifest), 0o644); err != nil {
			return fmt.Errorf("write connectors: %w", err)
		}
	}
	return nil
}
