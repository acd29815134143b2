package builtin_test

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/builtin"
	"holdfast.dev/gateway/internal/connectors/connectortest"
	"holdfast.dev/gateway/internal/connectors/manifest"
	"holdfast.dev/gateway/internal/connectors/workbench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func registry(t testing.TB) *connectors.Registry {
	t.Helper()
	compiler, err := manifest.NewCompiler()
	require.NoError(t, err)
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	r, err := connectors.NewRegistry(connectors.Options{Compile: compiler.Compile, Builtin: sources})
	require.NoError(t, err)
	return r
}

func load(t testing.TB, pin string) connectors.Connector {
	t.Helper()
	found, err := registry(t).Lookup(t.Context(), pin)
	require.NoError(t, err)
	require.True(t, found.Claimable)
	return found.Connector
}

func TestBuiltinsAreLoadedUnderTheirSum(t *testing.T) {
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	require.Len(t, sources, 8)
	r := registry(t)
	require.Len(t, r.Specs(), 8)
	for _, s := range sources {
		c, err := r.Exact(t.Context(), sha256.Sum256(s.Manifest))
		require.NoError(t, err)
		require.Contains(t, s.File, c.Spec().Name)
	}
}

func answer(status int, body string) connectors.Answer {
	return connectors.Answer{Status: status, Body: []byte(body), Header: http.Header{"Content-Type": {"application/json"}}}
}

// TestEveryBuiltinConforms is the suite that gateway connectors lint and test
// run over any folder: sound, every rule and look-up shown by a fixture, the
// fixtures hold, and in every fault of a vendor at most one request arrives and
// only allowed outcomes are given.
func TestEveryBuiltinConforms(t *testing.T) {
	bench, err := workbench.New()
	require.NoError(t, err)
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	for _, s := range sources {
		t.Run(s.File, func(t *testing.T) {
			t.Parallel()
			c, err := bench.Compile(s.Manifest)
			require.NoError(t, err)
			raw, err := builtin.Fixtures(c.Spec().Name)
			require.NoError(t, err)
			subject := workbench.Subject{File: s.File, Manifest: s.Manifest, FixturesFile: "fixtures", Fixtures: raw}
			require.Empty(t, bench.Lint(t.Context(), subject))
			require.Empty(t, bench.Test(t.Context(), subject))

			fixtures, err := workbench.ReadFixtures("fixtures", raw)
			require.NoError(t, err)
			for name, f := range fixtures.Actions {
				op, err := workbench.OpOf(c.Spec(), name, f.Params, or(f.Config), f.BaseURL)
				require.NoError(t, err)
				t.Run(name, func(t *testing.T) { connectortest.Conform(t, c, op) })
			}
		})
	}
}

func or(config []byte) []byte {
	if len(config) == 0 {
		return []byte("{}")
	}
	return config
}

// Each vendor has the actions and the handle against repeats that its class of
// CONNECTORS 4 says.
func TestVendorsAndTheirClasses(t *testing.T) {
	r := registry(t)
	for name, want := range map[string]struct {
		actions  int
		resend   bool
		strength string // of create's key: documented, weak, none
	}{
		"stripe": {4, true, "documented"}, "linear": {3, false, "weak"}, "slack": {4, false, "weak"},
		"github": {4, false, "none"}, "notion": {4, false, "none"}, "twilio": {4, false, "none"},
		"http-json": {4, false, "weak"}, "sandbox": {1, false, "none"},
	} {
		c, err := r.Lookup(t.Context(), name+"@1")
		require.NoError(t, err)
		spec := c.Spec()
		require.Len(t, spec.Actions, want.actions, name)
		for _, a := range spec.Actions {
			if a.Effect != "create" {
				continue
			}
			resend := false
			for _, step := range a.Checks {
				resend = resend || step.Kind == connectors.Resend
			}
			require.Equal(t, want.resend, resend, "%s %s", name, a.Name)
		}
		for _, a := range spec.Actions {
			if k := a.Idempotency; k != nil {
				require.Equal(t, want.strength == "documented", k.Documented, "%s %s", name, a.Name)
			} else {
				require.True(t, want.strength == "none" || a.Effect != "create" || name == "slack", "%s %s", name, a.Name)
			}
		}
	}
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

// TestNoBuiltinNeedsTheMarker: where correlation is off, nothing of it is sent.
func TestNoBuiltinNeedsTheMarker(t *testing.T) {
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	planted := 0
	for _, s := range sources {
		bench, err := workbench.New()
		require.NoError(t, err)
		c, err := bench.Compile(s.Manifest)
		require.NoError(t, err)
		raw, err := builtin.Fixtures(c.Spec().Name)
		require.NoError(t, err)
		fixtures, err := workbench.ReadFixtures(s.File, raw)
		require.NoError(t, err)
		for name, f := range fixtures.Actions {
			require.False(t, c.Spec().Actions[name].MarkerFixed, "%s %s", s.File, name)
			op, err := workbench.OpOf(c.Spec(), name, or(f.Params), or(f.Config), f.BaseURL)
			require.NoError(t, err)
			op.Marker = strings.Repeat("f00d", 8) // as nothing else in a fixture
			sent := func() string {
				r, err := c.Plan(t.Context(), op)
				require.NoError(t, err)
				return fmt.Sprint(r.URL, r.Header, string(r.Body))
			}
			if strings.Contains(sent(), op.Marker) {
				planted++
			}
			op.Uncorrelated = true
			require.NotContains(t, sent(), op.Marker, "%s %s", s.File, name)
			require.NotContains(t, sent(), "gw_op", "%s %s", s.File, name)
			require.NotContains(t, sent(), "gw:", "%s %s", s.File, name)
		}
	}
	require.Greater(t, planted, 8)
}
