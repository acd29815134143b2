package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
