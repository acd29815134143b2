package api_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// Whatever is wrong with a credential, the answer is the same to the byte.
func TestUnauthenticatedTellsNothing(t *testing.T) {
	g := newGateway(t)
	var bodies []string
	for _, values := range [][]string{
		nil, {""}, {"Bearer"}, {"Bearer "}, {"Bearer unknown"}, {"Basic " + tenantKey}, {tenantKey},
		{"Bearer " + tenantKey, "Bearer " + tenantKey}, {"Bearer  "}, {"Bearer\t" + tenantKey}, {"Bearer " + tenantKey + " x"},
	} {
		a := g.send("GET", "/v1/actions", "", with("Authorization", values...))
		require.Equal(t, 401, a.status, "%q", values)
		require.Equal(t, `Bearer realm="holdfast"`, a.header.Get("WWW-Authenticate"))
		bodies = append(bodies, strings.Replace(string(a.body), a.header.Get("Request-Id"), "", 1))
	}
	for _, body := range bodies {
		require.Equal(t, bodies[0], body)
	}
}

func TestSchemeIsReadInAnyCase(t *testing.T) {
	g := newGateway(t)
	g.list = func(tenants.Principal, actions.ListFilter, string, int) ([]actions.View, string, error) {
		return nil, "", nil
	}
	for _, value := range []string{"Bearer " + tenantKey, "bearer " + tenantKey, "BEARER  " + tenantKey} {
		require.Equal(t, 200, g.send("GET", "/v1/actions", "", with("Authorization", value)).status, value)
	}
}

// A store that cannot be asked is no reason to call a key bad.
func TestStoreDownIsNotUnauthenticated(t *testing.T) {
	g := newGateway(t)
	g.authenticate = func(string) (tenants.Principal, error) { return tenants.Principal{}, ledger.ErrUnavailable }
	a := g.send("POST", "/v1/do", smallest)
	require.Equal(t, "store_unavailable", a.code())
	require.Equal(t, "1", a.header.Get("Retry-After"))
}

// Every call, and who may make it: the contract's column, written out by hand.
func TestWhoMayCallWhat(t *testing.T) {
	const (
		do, read, resolve, manage = "do", "read", "resolve", "manage"
		admin                     = "platform"
	)
	all := []string{do, read, resolve, manage, admin}
	for _, row := range []struct{ method, path, may string }{
		{"POST", "/v1/do", do},
		{"GET", "/v1/actions", do + " " + read},
		{"GET", "/v1/actions/act_x", do + " " + read},
		{"POST", "/v1/actions/act_x/check", resolve},
		{"POST", "/v1/actions/act_x/resolve", resolve},
		{"POST", "/v1/tenants", admin},
		{"GET", "/v1/tenants", admin},
		{"GET", "/v1/tenants/acme", admin},
		{"PATCH", "/v1/tenants/acme", admin},
		{"DELETE", "/v1/tenants/acme", admin},
		{"GET", "/v1/tenants/acme/actions", admin},
		{"GET", "/v1/tenants/acme/audit", admin},
		{"GET", "/v1/tenants/acme/usage", admin},
		{"GET", "/v1/tenants/acme/audit/verify", admin},
		{"GET", "/v1/tenants/acme/audit/checkpoints", admin},
		{"POST", "/v1/tenants/acme/keys", admin + " " + manage},
		{"GET", "/v1/tenants/acme/keys", admin + " " + manage},
		{"DELETE", "/v1/tenants/acme/keys/k", admin + " " + manage},
		{"GET", "/v1/connections", do + " " + read + " " + manage},
		{"GET", "/v1/connections/c", do + " " + read + " " + manage},
		{"PUT", "/v1/connections/c", manage},
		{"DELETE", "/v1/connections/c", manage},
		{"POST", "/v1/connections/c/test", manage},
		{"GET", "/v1/tools", do + " " + read + " " + resolve + " " + manage},
		{"GET", "/v1/connectors", do + " " + read + " " + resolve + " " + manage},
		{"GET", "/v1/connectors/c", do + " " + read + " " + resolve + " " + manage},
		{"GET", "/v1/audit", admin + " " + read},
		{"GET", "/v1/usage", read},
		{"GET", "/v1/audit/verify", admin + " " + read},
		{"GET", "/v1/audit/checkpoints", admin + " " + read},
		{"POST", "/mcp", do + " " + read + " " + resolve + " " + manage},
	} {
		for _, scope := range all {
			g := newGateway(t)
			g.authenticate = func(string) (tenants.Principal, error) {
				if scope == admin {
					return tenants.Principal{Platform: true}, nil
				}
				return someTenant(tenants.KeyScope(scope)), nil
			}
			// The stub panics where a handler gets through: 500 means let in.
			a := g.send(row.method, row.path, "")
			may := strings.Contains(" "+row.may+" ", " "+scope+" ")
			require.Equal(t, !may, a.status == http.StatusForbidden, "%s %s with %s: %s", row.method, row.path, scope, a.body)
			if !may {
				require.Equal(t, "forbidden", a.code())
			}
		}
		g := newGateway(t)
		require.Equal(t, 401, g.send(row.method, row.path, "", with("Authorization")).status, "%s %s without a key", row.method, row.path)
	}
}

// Whoever asks for what its key may not is in the audit, and is not answered if
// that cannot be written.
func TestRefusedCallersAreRecorded(t *testing.T) {
	g := newGateway(t)
	var rows []audit.Row
	g.appendRows = func(s ledger.Scope, r []audit.Row) error {
		require.Equal(t, someTenant().Scope, s)
		rows = append(rows, r...)
		return nil
	}
	a := g.send("DELETE", "/v1/connections/c", "", as(readKey))
	require.Equal(t, "forbidden", a.code())
	require.Len(t, rows, 1)
	require.Equal(t, audit.Denied, rows[0].Event)
	require.Equal(t, "DELETE:/v1/connections/:name", rows[0].Subject)
	require.Equal(t, "forbidden", rows[0].Reason)
	require.Equal(t, audit.Actor{Kind: audit.KindKey, KeyID: "k1"}, rows[0].Actor)
	require.Equal(t, a.header.Get("Request-Id"), rows[0].RequestID)

	g.appendRows = func(ledger.Scope, []audit.Row) error { return ledger.ErrUnavailable }
	require.Equal(t, "store_unavailable", g.send("GET", "/v1/tenants", "").code())
}

// Whoever wants to change something and is refused is in the audit too, whatever
// the reason; one that only reads is not, and one whose write went its way has
// its own rows.
func TestRefusedAttemptsAreRecorded(t *testing.T) {
	held := "/v1/actions/" + actionID
	for _, c := range []struct {
		method, path, body string
		key                string
		reason, action     string
	}{
		{method: "POST", path: "/v1/do", body: `{`, reason: "invalid_json"},
		{method: "POST", path: "/v1/do", body: `{"connection":"x"}`, reason: "invalid_request"},
		{method: "POST", path: "/v1/do", body: `{"connection":"x","action":"y","body":[]}`, reason: "invalid_body"},
		{method: "POST", path: "/v1/do", body: `{"connection":"x","action":"y","idempotency_key":""}`, reason: "invalid_key"},
		{method: "POST", path: "/v1/do", body: strings.Repeat(" ", maxBody+1), reason: "too_large"},
		{method: "POST", path: "/v1/do", reason: "unsupported_media_type"},
		{method: "POST", path: "/v1/do", body: smallest}, // refused by the path of writes
		{method: "POST", path: held + "/check", reason: "not_held", action: actionID},
		{method: "POST", path: held + "/resolve", body: `{"outcome":"succeeded"}`, reason: "not_held", action: actionID},
		{method: "POST", path: held + "/resolve", body: `{}`, reason: "invalid_request", action: actionID},
		{method: "POST", path: "/v1/actions/x/check", reason: "not_found"},
		{method: "GET", path: "/v1/actions/x"},
		{method: "PUT", path: "/v1/connections/c", body: `{}`, reason: "connection_fixed"},
		{method: "DELETE", path: "/v1/connections/c", reason: "unsettled_writes"},
		{method: "POST", path: "/v1/tenants", body: `{}`, key: platformKey, reason: "already_exists"},
		{method: "DELETE", path: "/v1/tenants/x", key: platformKey}, // the store
		{method: "DELETE", path: "/v1/tenants/other/keys/k", reason: "not_found"},
		{method: "POST", path: "/mcp", reason: "unsupported_media_type"},
	} {
		g := newGateway(t)
		g.do = func(context.Context, actions.Request) (actions.Reply, error) {
			return actions.Reply{}, &actions.Error{Code: actions.KeyReused}
		}
		g.check = func(id, _ string) (actions.CheckResult, error) {
			if id == "x" {
				return actions.CheckResult{}, &actions.Error{Code: actions.NotFound}
			}
			return actions.CheckResult{}, &actions.Error{Code: actions.NotHeld}
		}
		g.resolve = func(string, actions.Resolution) (actions.View, error) {
			return actions.View{}, &actions.Error{Code: actions.NotHeld}
		}
		g.get = func(tenants.Principal, string) (actions.View, error) {
			return actions.View{}, &actions.Error{Code: actions.NotFound}
		}
		g.conns.put = func(audit.Caller, string, connections.Spec) (connections.Connection, bool, error) {
			return connections.Connection{}, false, connections.ErrFixed
		}
		g.conns.remove = func(string) error { return connections.ErrUnsettled }
		g.people.create = func(audit.Caller, tenants.NewTenant) (tenants.Tenant, error) {
			return tenants.Tenant{}, tenants.ErrExists
		}
		g.people.remove = func(string) error { return ledger.ErrUnavailable }
		var rows []audit.Row
		g.appendRows = func(_ ledger.Scope, r []audit.Row) error { rows = append(rows, r...); return nil }
		a := g.send(c.method, c.path, c.body, as(or(c.key, tenantKey)), func(r *http.Request) {
			r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		})
		name := c.method + " " + c.path + " " + a.code()
		if c.reason == "" {
			require.Empty(t, rows, name)
			continue
		}
		require.Len(t, rows, 1, name)
		require.Equal(t, audit.Denied, rows[0].Event, name)
		require.Equal(t, c.reason, a.code(), name)
		require.Equal(t, c.reason, rows[0].Reason, name)
		require.Equal(t, c.action, rows[0].ActionID, name)
		require.Equal(t, a.header.Get("Request-Id"), rows[0].RequestID, name)
		require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", rows[0].TraceID, name)
		require.True(t, strings.HasPrefix(rows[0].Subject, c.method+":/"), name)
		require.Equal(t, string(rows[0].Encode()), strings.ReplaceAll(string(rows[0].Encode()), audit.InvalidWord, ""), name)

		g.appendRows = func(ledger.Scope, []audit.Row) error { return ledger.ErrUnavailable }
		require.Equal(t, "store_unavailable", g.send(c.method, c.path, c.body, as(or(c.key, tenantKey))).code(), name)
	}
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// The calls of the table above are all that need a key.
func TestPublicCalls(t *testing.T) {
	g := newGateway(t)
	a := g.send("GET", "/openapi.yaml", "", with("Authorization"))
	require.Equal(t, 200, a.status)
	require.Equal(t, "application/yaml", a.header.Get("Content-Type"))
	require.Contains(t, string(a.body), "openapi: 3.1.0")

	public, _ := g.server.Routes()
	require.Len(t, public, 34)
}

// A tenant's key has no other tenant: a foreign one is not found, whether it
// exists or not, and nobody is asked.
func TestKeysOfAForeignTenantAreNotFound(t *testing.T) {
	g := newGateway(t)
	for _, call := range [][3]string{
		{"POST", "/v1/tenants/other/keys", `{"scopes":["do"]}`},
		{"GET", "/v1/tenants/other/keys", ""},
		{"DELETE", "/v1/tenants/other/keys/k", ""},
	} {
		require.Equal(t, "not_found", g.send(call[0], call[1], call[2]).code(), "%v", call)
	}
}

func TestRightsAreCheckedForReplaysToo(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{}, &actions.Error{Code: actions.Forbidden, Detail: "This key has no grant for it."}
	}
	a := g.send("POST", "/v1/do", smallest)
	require.Equal(t, "forbidden", a.code())
	require.Equal(t, "This key has no grant for it.", a.json()["detail"])
}
