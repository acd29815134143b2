package api_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/usage"
)

func day(t *testing.T, s string) usage.Day {
	t.Helper()
	d, ok := usage.ParseDay(s)
	require.True(t, ok)
	return d
}

func atNight(c *api.Config) {
	c.Now = func() time.Time { return time.Date(2026, 11, 29, 23, 59, 59, 0, time.UTC) }
}

func TestUsage(t *testing.T) {
	g := newGateway(t, atNight)
	g.report = func(scope ledger.Scope, q usage.Query) (usage.Report, error) {
		require.Equal(t, ledger.ScopeOf("acme"), scope)
		require.Equal(t, usage.Query{From: day(t, "2026-11-01"), To: day(t, "2026-12-01"),
			By: []usage.Dimension{usage.ByDay, usage.ByConnection, usage.ByAction, usage.ByKey}}, q)
		return usage.Report{At: created, Total: usage.Counts{usage.Writes: 3}, Lines: []usage.Line{
			{Day: q.From, Cell: usage.Cell{Connection: "billing", Action: "create_invoice", KeyID: "k1"}, Counts: usage.Counts{usage.Writes: 3, usage.Replays: 2}},
			{Day: q.From + 1, Counts: usage.Counts{usage.Held: 1}},
		}}, nil
	}
	a := g.send("GET", "/v1/usage?from=2026-11-01&to=2026-12-01&by=day,connection,action,key", "")
	const none = `"held":0,"resolved":0,"recovered":0,"replays":0,"duplicates_prevented":0,"in_flight":0,"held_repeats":0,` +
		`"twin_refused":0,"key_reused":0,"denied":0,"rate_limited":0,"unreadable":0}`
	require.Equal(t, `{"from":"2026-11-01","to":"2026-12-01","at":"2026-11-29T16:04:05.678Z",`+
		`"total":{"claimed":0,"writes":3,"refusals":0,"not_done":0,"lapsed":0,`+none+`,"data":[`+
		`{"day":"2026-11-01","connection":"billing","action":"create_invoice","key_id":"k1","claimed":0,"writes":3,"refusals":0,"not_done":0,"lapsed":0,`+
		`"held":0,"resolved":0,"recovered":0,"replays":2,"duplicates_prevented":0,"in_flight":0,"held_repeats":0,`+
		`"twin_refused":0,"key_reused":0,"denied":0,"rate_limited":0,"unreadable":0},`+
		`{"day":"2026-11-02","connection":"","action":"","key_id":"","claimed":0,"writes":0,"refusals":0,"not_done":0,"lapsed":0,`+
		`"held":1,"resolved":0,"recovered":0,"replays":0,"duplicates_prevented":0,"in_flight":0,"held_repeats":0,`+
		`"twin_refused":0,"key_reused":0,"denied":0,"rate_limited":0,"unreadable":0}]}`, string(a.body))

	g.report = func(_ ledger.Scope, q usage.Query) (usage.Report, error) {
		require.Equal(t, usage.Query{From: day(t, "2026-10-31"), To: day(t, "2026-11-30")}, q, "thirty days with today")
		return usage.Report{At: created}, nil
	}
	require.Contains(t, string(g.send("GET", "/v1/usage", "").body), `"data":[]}`)

	for _, query := range []string{"by=tenant", "by=day,day", "by=day,", "from=2026-11-29T00:00:00Z", "to=tomorrow", "from=2026-02-30",
		"from=2026-11-02&to=2026-11-02", "from=2026-11-03&to=2026-11-02", "from=2025-01-01&to=2026-11-29", "since=2026-11-01", "limit=3"} {
		require.Equal(t, "invalid_request", g.send("GET", "/v1/usage?"+query, "").code(), query)
	}
	g.report = func(ledger.Scope, usage.Query) (usage.Report, error) { return usage.Report{}, usage.ErrLines }
	a = g.send("GET", "/v1/usage?by=key,day", "")
	require.Equal(t, "invalid_request", a.code())
	require.Contains(t, string(a.body), "10000 lines")
	g.report = func(ledger.Scope, usage.Query) (usage.Report, error) { return usage.Report{}, ledger.ErrUnavailable }
	require.Equal(t, "store_unavailable", g.send("GET", "/v1/usage", "").code())
	g.report = func(ledger.Scope, usage.Query) (usage.Report, error) { return usage.Report{}, usage.ErrUnreadable }
	require.Equal(t, 500, g.send("GET", "/v1/usage", "").status)
}

// The host sees the figures of one tenant, deleted ones included.
func TestUsageOfATenant(t *testing.T) {
	g := newGateway(t, atNight)
	g.people.life = func(id, incarnation string) (tenants.Ref, error) {
		require.Equal(t, "acme", id)
		require.Equal(t, "t0", incarnation)
		return tenants.Ref{Tenant: id, TenantID: "t0", Scope: ledger.ScopeOf("t0")}, nil
	}
	g.report = func(scope ledger.Scope, q usage.Query) (usage.Report, error) {
		require.Equal(t, ledger.ScopeOf("t0"), scope)
		require.Equal(t, []usage.Dimension{usage.ByKey}, q.By)
		return usage.Report{At: created}, nil
	}
	require.Equal(t, 200, g.send("GET", "/v1/tenants/acme/usage?life=t0&by=key", "", as(platformKey)).status)
	g.people.life = func(string, string) (tenants.Ref, error) { return tenants.Ref{}, tenants.ErrNotFound }
	require.Equal(t, "not_found", g.send("GET", "/v1/tenants/acme/usage", "", as(platformKey)).code())
}
