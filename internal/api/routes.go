package api

import (
	"net/http"

	gateway "holdfast.dev/gateway"
	"holdfast.dev/gateway/internal/tenants"
)

// routes is the one table of the public API: which call, who may make it, what
// answers. openapi.yaml describes each, and a test compares the two.
func (s *handlers) routes() []route {
	const (
		do      = tenants.ScopeDo
		read    = tenants.ScopeRead
		resolve = tenants.ScopeResolve
		manage  = tenants.ScopeManage

		get, post, put, patch, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete
	)
	return []route{
		{method: post, path: "/v1/do", access: tenantKey(do), handle: s.do.do, replays: true},

		{method: get, path: "/v1/actions", access: tenantKey(read, do), handle: s.actions.list},
		{method: get, path: "/v1/actions/:id", access: tenantKey(read, do), handle: s.actions.get},
		{method: post, path: "/v1/actions/:id/check", access: tenantKey(resolve), handle: s.actions.check, bodiless: true},
		{method: post, path: "/v1/actions/:id/resolve", access: tenantKey(resolve), handle: s.actions.resolve},

		{method: post, path: "/v1/tenants", access: platform(), handle: s.tenants.create},
		{method: get, path: "/v1/tenants", access: platform(), handle: s.tenants.list},
		{method: get, path: "/v1/tenants/:tenant", access: platform(), handle: s.tenants.get},
		{method: patch, path: "/v1/tenants/:tenant", access: platform(), handle: s.tenants.update},
		{method: del, path: "/v1/tenants/:tenant", access: platform(), handle: s.tenants.remove},
		{method: get, path: "/v1/tenants/:tenant/actions", access: platform(), handle: s.tenants.listActions},
		{method: get, path: "/v1/tenants/:tenant/audit", access: platform(), handle: s.tenants.listAudit},
		{method: get, path: "/v1/tenants/:tenant/audit/verify", access: platform(), handle: s.tenants.verifyAudit},
		{method: get, path: "/v1/tenants/:tenant/audit/checkpoints", access: platform(), handle: s.tenants.listCheckpoints},
		{method: get, path: "/v1/tenants/:tenant/usage", access: platform(), handle: s.tenants.showUsage},

		{method: post, path: "/v1/tenants/:tenant/keys", access: platformOr(manage), handle: s.keys.create},
		{method: get, path: "/v1/tenants/:tenant/keys", access: platformOr(manage), handle: s.keys.list},
		{method: del, path: "/v1/tenants/:tenant/keys/:id", access: platformOr(manage), handle: s.keys.revoke},

		{method: get, path: "/v1/connections", access: tenantKey(do, read, manage), handle: s.connections.list},
		{method: get, path: "/v1/connections/:name", access: tenantKey(do, read, manage), handle: s.connections.get},
		{method: put, path: "/v1/connections/:name", access: tenantKey(manage), handle: s.connections.put},
		{method: del, path: "/v1/connections/:name", access: tenantKey(manage), handle: s.connections.remove},
		{method: post, path: "/v1/connections/:name/test", access: tenantKey(manage), handle: s.connections.test, bodiless: true},

		{method: get, path: "/v1/tools", access: tenantKey(), handle: s.tools.list},

		{method: get, path: "/v1/connectors", access: tenantKey(), handle: s.connectors.list},
		{method: get, path: "/v1/connectors/:name", access: tenantKey(), handle: s.connectors.get},
		{method: put, path: "/v1/connectors/:name/:version", access: platform(), handle: s.connectors.put},
		{method: del, path: "/v1/connectors/:name/:version", access: platform(), handle: s.connectors.remove},

		{method: get, path: "/v1/audit", access: platformOr(read), handle: s.audit.list},
		{method: get, path: "/v1/audit/verify", access: platformOr(read), handle: s.proof.verify},
		{method: get, path: "/v1/audit/checkpoints", access: platformOr(read), handle: s.proof.checkpoints},
		{method: get, path: "/v1/usage", access: tenantKey(read), handle: s.usage.show},

		{method: post, path: "/mcp", access: tenantKey(), handle: s.mcp.post},

		{method: get, path: "/openapi.yaml", access: anyone(), handle: openAPI},
	}
}

func openAPI(c *call) error { return c.send(http.StatusOK, "application/yaml", gateway.OpenAPI()) }
