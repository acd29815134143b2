package api_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/tenants"
)

// limited is a gateway with limits, on a clock that stands still.
func limited(t *testing.T, l func(now func() time.Time) api.Limits) *gateway {
	t.Helper()
	return newGateway(t, func(c *api.Config) {
		c.Limits = l(func() time.Time { return created })
	})
}

func from(remote, forwarded string) func(*http.Request) {
	return func(r *http.Request) {
		r.RemoteAddr = remote + ":1234"
		if forwarded != "" {
			r.Header.Set("X-Forwarded-For", forwarded)
		}
	}
}

// Strangers are counted by address before anything is done for them.
func TestStrangersAreLimitedByAddress(t *testing.T) {
	asked := 0
	g := limited(t, func(now func() time.Time) api.Limits { return api.Limits{Addresses: limits.NewAddresses(3, now)} })
	good := g.authenticate
	g.authenticate = func(key string) (tenants.Principal, error) { asked++; return good(key) }
	for range 3 {
		require.Equal(t, 401, g.send("GET", "/v1/connectors", "", as("nonsense"), from("192.0.2.1", "")).status)
	}
	a := g.send("GET", "/v1/connectors", "", as("nonsense"), from("192.0.2.1", ""))
	require.Equal(t, "rate_limited", a.code())
	require.Equal(t, "1", a.header.Get("Retry-After"))
	require.Equal(t, 3, asked, "nobody was asked about the fourth")
	// Nor by saying that it is somebody else, nor where there is no route or key.
	for _, call := range [][2]string{
		{"GET", "/v1/connectors"}, {"GET", "/nowhere"}, {"GET", "/openapi.yaml"}, {"POST", "/v1/do"}, {"PATCH", "/v1/do"},
	} {
		require.Equal(t, 429, g.send(call[0], call[1], "", with("Authorization"), from("192.0.2.1", "198.51.100.7")).status, "%v", call)
	}
	require.Equal(t, 401, g.send("GET", "/v1/connectors", "", as("nonsense"), from("192.0.2.2", "")).status, "another address")
}

// Whoever shares an address with strangers is not locked out by them.
func TestGoodKeysAreNotCounted(t *testing.T) {
	g := limited(t, func(now func() time.Time) api.Limits { return api.Limits{Addresses: limits.NewAddresses(2, now)} })
	g.specs = func() []connectors.Spec { return nil }
	for range 10 {
		require.Equal(t, 200, g.send("GET", "/v1/connectors", "", from("192.0.2.1", "")).status)
	}
	g.authenticate = func(string) (tenants.Principal, error) { return tenants.Principal{}, ledger.ErrUnavailable }
	for range 10 {
		require.Equal(t, 503, g.send("GET", "/v1/connectors", "", from("192.0.2.1", "")).status, "the store's fault is not the caller's")
	}
	g.authenticate = func(key string) (tenants.Principal, error) {
		if key == tenantKey {
			return someTenant(tenants.ScopeRead), nil
		}
		return tenants.Principal{}, tenants.ErrUnauthenticated
	}
	for range 3 {
		g.send("GET", "/v1/connectors", "", as("nonsense"), from("192.0.2.1", ""))
	}
	require.Equal(t, 429, g.send("GET", "/v1/connectors", "", from("192.0.2.1", "")).status, "a key nobody has seen")
	g.people.known = func(key string) bool { return key == tenantKey }
	require.Equal(t, 200, g.send("GET", "/v1/connectors", "", from("192.0.2.1", "")).status, "one that was good a moment ago")
}

// X-Forwarded-For counts only as far as trusted proxies have written it.
func TestTrustedProxies(t *testing.T) {
	g := limited(t, func(now func() time.Time) api.Limits {
		return api.Limits{Addresses: limits.NewAddresses(1, now), TrustedProxies: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("::ffff:172.16.0.0/108"),
		}}
	})
	status := func(remote, forwarded string) int {
		return g.send("GET", "/v1/connectors", "", as("nonsense"), from(remote, forwarded)).status
	}
	require.Equal(t, 401, status("10.0.0.1", "198.51.100.1"))
	require.Equal(t, 429, status("10.0.0.2", "198.51.100.1"), "the same client by another proxy")
	require.Equal(t, 401, status("10.0.0.1", "198.51.100.2"))
	require.Equal(t, 429, status("10.0.0.1", "203.0.113.9, 198.51.100.2"), "what the client wrote itself stands further left")
	require.Equal(t, 429, status("10.0.0.1", "198.51.100.2, 10.9.9.9, fd00::1, 172.16.3.4"), "a chain of proxies")
	require.Equal(t, 401, status("192.0.2.1", "198.51.100.3"))
	require.Equal(t, 429, status("192.0.2.1", "198.51.100.4"), "nobody trusts this one")
	require.Contains(t, g.logs.String(), `"remote":"198.51.100.1"`)
}

func TestTenantsAreLimited(t *testing.T) {
	g := limited(t, func(now func() time.Time) api.Limits {
		return api.Limits{Tenants: limits.New(limits.Policy{RequestsPerSecond: 2, WritesPerSecond: 7}, now, now)}
	})
	g.specs = func() []connectors.Spec { return nil }
	var rows []audit.Row
	g.appendRows = func(_ ledger.Scope, r []audit.Row) error { rows = append(rows, r...); return nil }
	a := g.send("GET", "/v1/connectors", "")
	require.Equal(t, 200, a.status)
	require.Equal(t, `"requests";q=2;w=1, "writes";q=7;w=1`, a.header.Get("RateLimit-Policy"))
	require.Equal(t, `"requests";r=1;t=1, "writes";r=7;t=1`, a.header.Get("RateLimit"))
	g.send("GET", "/v1/connectors", "")
	for range 5 {
		a = g.send("POST", "/v1/do", smallest)
		require.Equal(t, "rate_limited", a.code())
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Equal(t, "false", a.header.Get("Idempotent-Replayed"))
		require.Contains(t, a.header.Get("RateLimit"), `"requests";r=0;t=1`)
	}
	require.Len(t, rows, 1, "a flood leaves a row a second")
	require.Equal(t, audit.RateLimited, rows[0].Event)
	require.Equal(t, "requests", rows[0].Reason)
	a = g.send("GET", "/v1/tenants", "", as(platformKey), func(*http.Request) {
		g.people.list = func(string, int) ([]tenants.Tenant, string, error) { return nil, "", nil }
	})
	require.Equal(t, 200, a.status, "the host is not limited")
	require.Empty(t, a.header.Get("RateLimit"))
}

// A tenant may be given less than the gateway takes.
func TestBodyLimitOfATenant(t *testing.T) {
	g := limited(t, func(now func() time.Time) api.Limits {
		return api.Limits{Tenants: limits.New(limits.Policy{MaxBody: maxBody}, now, now)}
	})
	g.authenticate = func(string) (tenants.Principal, error) {
		p := someTenant(tenants.ScopeDo)
		p.Limits.MaxBody = 100
		return p, nil
	}
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{}, &actions.Error{Code: actions.UnknownAction}
	}
	fits := smallest[:len(smallest)-1] + strings.Repeat(" ", 100-len(smallest)) + "}"
	require.Equal(t, 404, g.send("POST", "/v1/do", fits).status)
	require.Equal(t, "too_large", g.send("POST", "/v1/do", fits+" ").code())
}
