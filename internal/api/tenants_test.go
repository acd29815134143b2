package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/trail"
)

func TestTenants(t *testing.T) {
	g := newGateway(t)
	acme := tenants.Tenant{Ref: tenants.Ref{Tenant: "acme", TenantID: "incarnation-inside", Scope: ledger.ScopeOf("incarnation-inside")},
		Name: "Acme", Limits: tenants.Limits{MaxBody: 10}, CreatedAt: created, UpdatedAt: created}
	const acmeJSON = `{"id":"acme","name":"Acme","limits":{"max_body":10},"suspended":false,"created_at":"2026-11-29T16:04:05.678Z","updated_at":"2026-11-29T16:04:05.678Z"}`
	g.people.create = func(c audit.Caller, n tenants.NewTenant) (tenants.Tenant, error) {
		require.Equal(t, audit.Actor{Kind: "platform"}, c.Actor)
		require.Equal(t, tenants.NewTenant{ID: "acme", Name: "Acme", Limits: tenants.Limits{MaxBody: 10}}, n)
		return acme, nil
	}
	a := g.send("POST", "/v1/tenants", `{"id":"acme","name":"Acme","limits":{"max_body":10}}`, as(platformKey))
	require.Equal(t, 201, a.status)
	require.Equal(t, "/v1/tenants/acme", a.header.Get("Location"))
	require.Equal(t, acmeJSON, string(a.body))

	g.people.list = func(string, int) ([]tenants.Tenant, string, error) { return []tenants.Tenant{acme}, "", nil }
	require.Equal(t, `{"data":[`+acmeJSON+`]}`, string(g.send("GET", "/v1/tenants", "", as(platformKey)).body))
	g.people.get = func(id string) (tenants.Tenant, error) {
		require.Equal(t, "acme", id)
		return acme, nil
	}
	require.Equal(t, acmeJSON, string(g.send("GET", "/v1/tenants/acme", "", as(platformKey)).body))

	var patch tenants.Patch
	g.people.update = func(_ string, p tenants.Patch) (tenants.Tenant, error) {
		patch = p
		return acme, nil
	}
	require.Equal(t, 200, g.send("PATCH", "/v1/tenants/acme", `{"suspended":true}`, as(platformKey)).status)
	yes := true
	require.Equal(t, tenants.Patch{Suspended: &yes}, patch)
	require.Equal(t, 200, g.send("PATCH", "/v1/tenants/acme", `{"name":"","limits":{}}`, as(platformKey)).status)
	empty := ""
	require.Equal(t, tenants.Patch{Name: &empty, Limits: &tenants.Limits{}}, patch)

	g.people.remove = func(string) error { return nil }
	require.Equal(t, 204, g.send("DELETE", "/v1/tenants/acme", "", as(platformKey)).status)

	for _, row := range []struct {
		err  error
		code string
	}{
		{tenants.ErrExists, "already_exists"},
		{&tenants.InvalidError{Problems: []tenants.Problem{{Pointer: "/id", Reason: "r"}}}, "invalid_request"},
	} {
		g.people.create = func(audit.Caller, tenants.NewTenant) (tenants.Tenant, error) { return tenants.Tenant{}, row.err }
		require.Equal(t, row.code, g.send("POST", "/v1/tenants", `{"id":"acme"}`, as(platformKey)).code())
	}
	g.people.remove = func(string) error { return tenants.ErrUnsettled }
	require.Equal(t, "unsettled_writes", g.send("DELETE", "/v1/tenants/acme", "", as(platformKey)).code())
	g.people.get = func(string) (tenants.Tenant, error) { return tenants.Tenant{}, tenants.ErrNotFound }
	require.Equal(t, "not_found", g.send("GET", "/v1/tenants/gone", "", as(platformKey)).code())
}

// The host sees one tenant's lists with that tenant's scope and nothing more.
func TestHostsView(t *testing.T) {
	g := newGateway(t)
	ref := tenants.Ref{Tenant: "acme", TenantID: "i1", Scope: ledger.ScopeOf("i1")}
	g.people.life = func(id, incarnation string) (tenants.Ref, error) {
		require.Equal(t, "acme", id)
		if incarnation == "gone" {
			return tenants.Ref{}, tenants.ErrNotFound
		}
		return ref, nil
	}
	g.list = func(p tenants.Principal, _ actions.ListFilter, _ string, _ int) ([]actions.View, string, error) {
		require.Equal(t, ref, p.Ref())
		require.True(t, p.Can(tenants.ScopeRead))
		require.False(t, p.Can(tenants.ScopeDo) || p.Can(tenants.ScopeResolve) || p.Can(tenants.ScopeManage))
		return nil, "", nil
	}
	g.query = func(s ledger.Scope, _ audit.Filter, _ trail.Page) ([]audit.Entry, string, error) {
		require.Equal(t, ref.Scope, s)
		return nil, "", nil
	}
	require.Equal(t, 200, g.send("GET", "/v1/tenants/acme/actions", "", as(platformKey)).status)
	require.Equal(t, 200, g.send("GET", "/v1/tenants/acme/audit", "", as(platformKey)).status)
	for _, path := range []string{"actions", "audit"} {
		require.Equal(t, 200, g.send("GET", "/v1/tenants/acme/"+path+"?life=i1", "", as(platformKey)).status)
		require.Equal(t, "not_found", g.send("GET", "/v1/tenants/acme/"+path+"?life=gone", "", as(platformKey)).code())
		require.Equal(t, "invalid_request", g.send("GET", "/v1/tenants/acme/"+path+"?live=i1", "", as(platformKey)).code())
	}
}

func TestKeys(t *testing.T) {
	key := tenants.APIKey{ID: "pub", Label: "agent", Scopes: []tenants.KeyScope{"do", "read"},
		Grants: []tenants.Grant{{Connection: "billing", Actions: []string{"a"}}, {Connection: "chat"}}, ExpiresAt: created, CreatedAt: created,
		CreatedBy: audit.Actor{Kind: "key", KeyID: "k1"}}
	const keyMembers = `{"id":"pub","label":"agent","scopes":["do","read"],"grants":[{"connection":"billing","actions":["a"]},{"connection":"chat"}],` +
		`"expires_at":"2026-11-29T16:04:05.678Z","created_at":"2026-11-29T16:04:05.678Z","created_by":{"kind":"key","key_id":"k1"}`
	for _, who := range []string{tenantKey, platformKey} {
		g := newGateway(t)
		ref := someTenant().Ref()
		g.people.get = func(string) (tenants.Tenant, error) { return tenants.Tenant{Ref: ref}, nil }
		g.people.newKey = func(got tenants.Ref, n tenants.NewKey) (string, tenants.APIKey, error) {
			require.Equal(t, ref, got)
			require.Equal(t, tenants.NewKey{Label: "agent", Scopes: []tenants.KeyScope{"do", "read"},
				Grants: []tenants.Grant{{Connection: "billing", Actions: []string{"a"}}}, ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}, n)
			return "hf_sentinel", key, nil
		}
		a := g.send("POST", "/v1/tenants/acme/keys",
			`{"label":"agent","scopes":["do","read"],"grants":[{"connection":"billing","actions":["a"]}],"expires_at":"2027-01-01T00:00:00Z"}`, as(who))
		require.Equal(t, 201, a.status)
		require.Equal(t, keyMembers+`,"key":"hf_sentinel"}`, string(a.body))
		require.NotContains(t, g.logs.String(), "sentinel")

		g.people.keys = func(got tenants.Ref) ([]tenants.APIKey, string, error) {
			require.Equal(t, ref, got)
			return []tenants.APIKey{key}, "n", nil
		}
		require.Equal(t, `{"data":[`+keyMembers+`}],"next_cursor":"n"}`, string(g.send("GET", "/v1/tenants/acme/keys", "", as(who)).body))
		g.people.revoke = func(got tenants.Ref, id string) error {
			require.Equal(t, ref, got)
			require.Equal(t, "pub", id)
			return nil
		}
		require.Equal(t, 204, g.send("DELETE", "/v1/tenants/acme/keys/pub", "", as(who)).status)
	}
	g := newGateway(t)
	for body, pointer := range map[string]string{
		`{"scopes":["do"],"expires_at":"tomorrow"}`: "/expires_at",
		`{"scopes":["do"],"expires_at":""}`:         "/expires_at",
		`{"scopes":null}`:                           "/scopes",
		`{"scopes":["do"],"grants":null}`:           "/grants",
		`{"scopes":["do"],"grants":[{"conn":"a"}]}`: "/grants/0/conn",
	} {
		require.Equal(t, []string{pointer}, pointersOf(g.send("POST", "/v1/tenants/acme/keys", body)))
	}
}
