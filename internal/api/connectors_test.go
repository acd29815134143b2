package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connectors"
)

func stripe(version string) connectors.Spec {
	schema, err := connectors.CompileSchema([]byte(`{"type": "object", "required": ["customer"]}`))
	if err != nil {
		panic(err)
	}
	return connectors.Spec{
		Name: "stripe", Version: version, Docs: "https://docs.stripe.com/api", VendorAPI: "basil",
		Auth:    connectors.Auth{Type: connectors.Bearer, Secret: "api_key"},
		BaseURL: connectors.BaseURL{Allow: []string{"https://api.stripe.com"}},
		Actions: map[string]connectors.ActionSpec{
			"create_invoice": {Name: "create_invoice", Effect: "create", Input: schema, Timeout: 30 * time.Second,
				Ignore: []string{"/nonce"}, ExposeHeaders: []string{"Request-Id"},
				Idempotency: &connectors.Idempotency{In: "header", Name: "Idempotency-Key", Retention: 24 * time.Hour, Documented: true},
				Checks: []connectors.CheckRule{{Kind: connectors.Resend, Within: 23 * time.Hour},
					{Kind: connectors.Lookup, Settle: time.Minute, Match: "m", Absent: connectors.StillUnknown}}},
			"create_customer": {Name: "create_customer", Description: "d", Effect: "create", Window: 90 * time.Second},
		},
	}
}

const stripeJSON = `{"connector":"stripe@1","name":"stripe","version":"1.2.0","docs":"https://docs.stripe.com/api","vendor_api":"basil",` +
	`"auth":{"type":"bearer","credentials":["api_key"]},"config":{"type":"object","additionalProperties":false},"base_url":{"allow":["https://api.stripe.com"]},"actions":[` +
	`{"name":"create_customer","description":"d","effect":"create","input":{"type":"object","additionalProperties":false},"timeout":"30s","replay":{"window":"90s","ignore":[],"check":[]},"expose_headers":[]},` +
	`{"name":"create_invoice","effect":"create","input":{"type": "object", "required": ["customer"]},"timeout":"30s","replay":{"window":"24h","ignore":["/nonce"],` +
	`"vendor_key":{"in":"header","name":"Idempotency-Key","strength":"documented","retention":"24h"},` +
	`"check":[{"how":"resend","within":"23h"},{"how":"lookup","settle":"60s","match":"m","absent":"still_unknown"}]},"expose_headers":["Request-Id"]}]}`

func TestConnectors(t *testing.T) {
	g := newGateway(t)
	g.specs = func() []connectors.Spec { return []connectors.Spec{stripe("1.2.0")} }
	require.Equal(t, `{"data":[`+stripeJSON+`]}`, string(g.send("GET", "/v1/connectors", "", as(readKey)).body))
	require.Equal(t, stripeJSON, string(g.send("GET", "/v1/connectors/stripe@1", "").body))
	require.Equal(t, stripeJSON, string(g.send("GET", "/v1/connectors/stripe", "").body))
	require.Equal(t, "not_found", g.send("GET", "/v1/connectors/stripe@2", "").code())
	require.Equal(t, "not_found", g.send("GET", "/v1/connectors/slack", "").code())

	g.specs = func() []connectors.Spec {
		return []connectors.Spec{stripe("2.0.0"), stripe("10.0.0"), stripe("9.1.0")}
	}
	require.Equal(t, "10.0.0", g.send("GET", "/v1/connectors/stripe", "").json()["version"], "the newest major, by number")
	require.Equal(t, "9.1.0", g.send("GET", "/v1/connectors/stripe@9", "").json()["version"])
}

func TestConnectorsAreRegistered(t *testing.T) {
	g := newGateway(t)
	const manifest = "name: acme\n"
	yaml := with("Content-Type", "application/yaml")
	created := true
	g.register = func(c audit.Caller, name, version string, raw []byte) (connectors.Spec, bool, error) {
		require.Equal(t, "acme 1.0.0 "+manifest, name+" "+version+" "+string(raw))
		require.NotEmpty(t, c.RequestID)
		return stripe("1.0.0"), created, nil
	}
	put := func(options ...func(*http.Request)) answer {
		return g.send("PUT", "/v1/connectors/acme/1.0.0", manifest, append([]func(*http.Request){yaml, as(platformKey)}, options...)...)
	}
	got := put()
	require.Equal(t, 201, got.status)
	require.Equal(t, "stripe@1", got.json()["connector"])
	created = false
	require.Equal(t, 200, put().status)

	require.Equal(t, "forbidden", put(as(tenantKey)).code(), "operators install, tenants bind")
	require.Equal(t, "unsupported_media_type", put(with("Content-Type", "application/json")).code())
	require.Equal(t, "too_large", g.send("PUT", "/v1/connectors/acme/1.0.0", strings.Repeat("#", connectors.MaxManifest+1), yaml, as(platformKey)).code())

	g.register = func(audit.Caller, string, string, []byte) (connectors.Spec, bool, error) {
		return connectors.Spec{}, false, fmt.Errorf("register: %w", &connectors.ManifestError{
			Problems: []connectors.ManifestProblem{{Line: 7, Pointer: "/auth", Reason: "type is missing"}}})
	}
	bad := put()
	require.Equal(t, "invalid_request", bad.code())
	require.Equal(t, []any{map[string]any{"pointer": "/auth", "detail": "line 7: type is missing"}}, bad.json()["errors"])
	g.register = func(audit.Caller, string, string, []byte) (connectors.Spec, bool, error) {
		return connectors.Spec{}, false, fmt.Errorf("register: %w", connectors.ErrTaken)
	}
	require.Equal(t, "already_exists", put().code())
}

func TestRegisteredConnectorsAreDeleted(t *testing.T) {
	g := newGateway(t)
	for err, code := range map[error]string{connectors.ErrInUse: "connector_in_use", connectors.ErrUnknownConnector: "not_found"} {
		g.unregister = func(name, version string) error {
			require.Equal(t, "acme 1.0.0", name+" "+version)
			return fmt.Errorf("unregister: %w", err)
		}
		require.Equal(t, code, g.send("DELETE", "/v1/connectors/acme/1.0.0", "", as(platformKey)).code())
	}
	g.unregister = func(string, string) error { return nil }
	require.Equal(t, 204, g.send("DELETE", "/v1/connectors/acme/1.0.0", "", as(platformKey)).status)
}
