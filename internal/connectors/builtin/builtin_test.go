package builtin_test

import (
	"crypto/sha256"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/builtin"
	"holdfast.dev/gateway/internal/connectors/connectortest"
	"holdfast.dev/gateway/internal/connectors/manifest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func registry(t *testing.T) *connectors.Registry {
	t.Helper()
	compiler, err := manifest.NewCompiler()
	require.NoError(t, err)
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	r, err := connectors.NewRegistry(connectors.Options{Compile: compiler.Compile, Builtin: sources})
	require.NoError(t, err)
	return r
}

func load(t *testing.T, pin string) connectors.Connector {
	t.Helper()
	found, err := registry(t).Lookup(t.Context(), pin)
	require.NoError(t, err)
	require.True(t, found.Claimable)
	return found.Connector
}

func TestBuiltinsAreLoadedUnderTheirSum(t *testing.T) {
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	require.Len(t, sources, 2)
	r := registry(t)
	require.Len(t, r.Specs(), 2)
	for _, s := range sources {
		c, err := r.Exact(t.Context(), sha256.Sum256(s.Manifest))
		require.NoError(t, err)
		require.Contains(t, s.File, c.Spec().Name)
	}
}

func answer(status int, body string) connectors.Answer {
	return connectors.Answer{Status: status, Body: []byte(body), Header: http.Header{"Content-Type": {"application/json"}}}
}

func stripeCases(action, params, object, result string) []connectortest.Case {
	say := func(name string, status int, body string, o connectors.Outcome, rule int, code string) connectortest.Case {
		return connectortest.Case{Name: name, Action: action, Params: params, Answer: answer(status, body), Outcome: o, Rule: rule, Code: code}
	}
	done := say("done", 200, object, connectors.Succeeded, 0, "")
	done.Result = result
	return []connectortest.Case{
		done,
		say("key used for another request", 400, `{"error":{"type":"idempotency_error","message":"m"}}`, connectors.Unknown, 1, "idempotency_error"),
		say("key still at work", 409, `{"error":{"type":"idempotency_error"}}`, connectors.Unknown, 2, "idempotency_error"),
		say("rate limit", 429, `{"error":{"code":"rate_limit"}}`, connectors.Retryable, 3, "rate_limit"),
		say("bad key", 401, `{"error":{"type":"invalid_request_error"}}`, connectors.Retryable, 4, "invalid_request_error"),
		say("key without the right", 403, `{"error":{"type":"invalid_request_error"}}`, connectors.Retryable, 4, "invalid_request_error"),
		say("bad parameter", 400, `{"error":{"type":"invalid_request_error","code":"parameter_invalid_empty"}}`, connectors.Refused, 5, "parameter_invalid_empty"),
		say("refusal without a code", 400, `{"error":{"type":"invalid_request_error"}}`, connectors.Refused, 5, "invalid_request_error"),
		say("card declined", 402, `{"error":{"type":"card_error","code":"card_declined"}}`, connectors.Refused, 5, "card_declined"),
		say("no such customer", 404, `{"error":{"type":"invalid_request_error","code":"resource_missing"}}`, connectors.Refused, 5, "resource_missing"),
		say("refusal by a proxy", 400, `"no"`, connectors.Unknown, 1, ""),
		say("another object", 200, `{"object":"list"}`, connectors.Unknown, connectors.NoRule, ""),
		say("dependency failed", 424, `{"error":{"type":"api_error"}}`, connectors.Unknown, connectors.NoRule, ""),
		say("stored server error", 500, `{"error":{"type":"api_error"}}`, connectors.Unknown, connectors.NoRule, ""),
		say("timeout", 504, `{}`, connectors.Unknown, connectors.NoRule, ""),
	}
}

const key = "01" + "00000000000000000000000000000000000000000000000000000000" + "000002"

func TestStripe(t *testing.T) {
	invoices := stripeCases("create_invoice", `{"customer":"cus_1","description":"a & b","days_until_due":30}`,
		`{"id":"in_1","object":"invoice","customer":"cus_1","status":"draft","total":0,"currency":"eur","hosted_invoice_url":null}`,
		`{"id":"in_1","customer":"cus_1","status":"draft","total":0,"currency":"eur","url":null}`)
	invoices[0].Request = &connectors.Request{
		Method: "POST", URL: "https://api.stripe.com/v1/invoices",
		Header: http.Header{"Idempotency-Key": {key}, "Stripe-Version": {"2025-03-31.basil"}, "Content-Type": {"application/x-www-form-urlencoded"}},
		Body:   []byte("customer=cus_1&description=a%20%26%20b&days_until_due=30&collection_method=send_invoice&auto_advance=false&metadata%5Bgw_op%5D=" + connectortest.Marker),
	}
	customers := stripeCases("create_customer", `{"email":"a@b.example"}`,
		`{"id":"cus_1","object":"customer","email":"a@b.example","created":1777856521,"livemode":false}`,
		`{"id":"cus_1","email":"a@b.example","created":1777856521,"livemode":false}`)
	customers[0].Request = &connectors.Request{
		Method: "POST", URL: "https://api.stripe.com/v1/customers",
		Header: http.Header{"Idempotency-Key": {key}},
		Body:   []byte("email=a%40b.example&metadata%5Bgw_op%5D=" + connectortest.Marker),
	}
	connectortest.Run(t, load(t, "stripe@1"), "", append(invoices, customers...))
}

func TestStripeInvoiceWithoutDueDays(t *testing.T) {
	c := load(t, "stripe@1")
	r, err := c.Plan(t.Context(), connectortest.Op(t, c, "create_invoice", `{"customer":"cus_1"}`))
	require.NoError(t, err)
	require.Equal(t, "customer=cus_1&auto_advance=false&metadata%5Bgw_op%5D="+connectortest.Marker, string(r.Body))
}

func TestStripeLookup(t *testing.T) {
	c := load(t, "stripe@1")
	op := connectortest.Op(t, c, "create_invoice", `{"customer":"cus_1"}`)
	steps, err := c.Check(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, connectors.Resend, steps[0].Kind)
	require.Equal(t, "https://api.stripe.com/v1/invoices?customer=cus_1&created%5Bgte%5D=1777863661&limit=100", steps[1].Request.URL)
	a := answer(200, `{"object":"list","data":[{"id":"in_0","metadata":{}},{"id":"in_1","status":"draft","metadata":{"gw_op":"`+connectortest.Marker+`"}}]}`)
	a.Whole = true
	found, err := c.MatchLookup(t.Context(), op, 1, a)
	require.NoError(t, err)
	require.Equal(t, connectors.Found{Kind: connectors.FoundOne, Matches: 1, Result: []byte(`{"id":"in_1","status":"draft"}`)}, found)
}

func TestSandbox(t *testing.T) {
	const params = `{"customer":"c","amount":1e2,"currency":"eur","behave":"slow","delay_ms":5}`
	say := func(name string, status int, body string, o connectors.Outcome, rule int, code, result string) connectortest.Case {
		return connectortest.Case{
			Name: name, Action: "create_invoice", Params: params, Answer: answer(status, body),
			Outcome: o, Rule: rule, Code: code, Result: result,
		}
	}
	made := say("made", 201, `{"id":"inv_000001","object":"invoice","status":"open","customer":"c","amount":100,"currency":"eur","marker":"m","created_at":"t"}`,
		connectors.Succeeded, 0, "", `{"id":"inv_000001","status":"open","customer":"c","amount":100,"currency":"eur"}`)
	made.Request = &connectors.Request{
		Method: "POST", URL: "http://127.0.0.1:4000/v1/invoices",
		Body: []byte(`{"customer":"c","amount":1e2,"currency":"eur","behave":"slow","delay_ms":5,"marker":"` + connectortest.Marker + `"}`),
	}
	c := load(t, "sandbox@1")
	connectortest.Run(t, c, "http://127.0.0.1:4000", []connectortest.Case{
		made,
		say("rate limit", 429, `{"error":{"code":"rate_limited"}}`, connectors.Retryable, 1, "rate_limited", ""),
		say("unauthorized", 401, `{"error":{"code":"unauthorized"}}`, connectors.Retryable, 2, "unauthorized", ""),
		say("refused", 422, `{"error":{"code":"refused"}}`, connectors.Refused, 3, "refused", ""),
		say("failed", 500, `{"error":{"code":"internal"}}`, connectors.Unknown, connectors.NoRule, "", ""),
	})
	require.Error(t, c.Spec().CheckBaseURL("", nil), "a sandbox has no fixed place")
	require.Error(t, c.Spec().CheckBaseURL("http://127.0.0.1:4000", func(string) bool { return false }))
	require.NoError(t, c.Spec().CheckBaseURL("http://127.0.0.1:4000", func(string) bool { return true }))

	op := connectortest.Op(t, c, "create_invoice", params)
	op.BaseURL = "http://127.0.0.1:4000"
	steps, err := c.Check(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:4000/v1/invoices?marker="+connectortest.Marker, steps[0].Request.URL)
}

func TestStatusManifest(t *testing.T) {
	c := connectortest.Compile(t, connectortest.StatusManifest)
	var cases []connectortest.Case
	for action, params := range map[string]string{"create_thing": `{"a":[]}`, "need_body": `{}`, "delete_thing": `{"id":"1"}`} {
		for _, one := range []connectortest.Case{
			{Name: "done", Answer: answer(200, `{"ok":true}`), Outcome: connectors.Succeeded, Rule: 0},
			{Name: "refused", Answer: answer(409, ``), Outcome: connectors.Refused, Rule: 1},
			{Name: "later", Answer: answer(403, ``), Outcome: connectors.Retryable, Rule: 2},
		} {
			one.Action, one.Params = action, params
			one.Answer.Header = http.Header{}
			cases = append(cases, one)
		}
	}
	connectortest.Run(t, c, "http://127.0.0.1:1", cases)
}
