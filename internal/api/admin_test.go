package api_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/ledger"
)

func TestAdminListener(t *testing.T) {
	g := newGateway(t)
	admin := g.server.AdminHandler()
	require.Equal(t, `{"status":"ok"}`, string(g.sendTo(admin, "GET", "/healthz", "", with("Authorization")).body))
	require.Equal(t, `{"status":"ready"}`, string(g.sendTo(admin, "GET", "/readyz", "").body))

	g.ready = func() error { return fmt.Errorf("%w: maxmemory-policy is not noeviction", ledger.ErrNotReady) }
	a := g.sendTo(admin, "GET", "/readyz", "")
	require.Equal(t, "store_unavailable", a.code())
	require.Equal(t, 503, a.status)
	require.Contains(t, a.json()["detail"], "maxmemory-policy is not noeviction")
	require.Equal(t, "ask_operator", a.json()["next"])
	g.ready = func() error { return &actions.Error{Code: actions.Draining} }
	require.Equal(t, "draining", g.sendTo(admin, "GET", "/readyz", "").code())
	require.Equal(t, 200, g.sendTo(admin, "GET", "/healthz", "").status, "it runs all the same")

	a = g.sendTo(admin, "GET", "/metrics", "")
	require.Equal(t, 200, a.status)
	require.Contains(t, string(a.body), `holdfast_problems_total{code="draining"} 1`)
	require.Equal(t, "method_not_allowed", g.sendTo(admin, "POST", "/metrics", "").code())
	require.Equal(t, "not_found", g.sendTo(admin, "POST", "/debug/pprof", "").code())
	require.True(t, json.Valid(g.sendTo(admin, "GET", "/readyz", "").body))

	for _, line := range g.logged() {
		require.NotEqual(t, "INFO", line["level"], "probes come every few seconds")
	}
}
