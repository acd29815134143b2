package main

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/vendortest"
)

func instant(c *vendortest.Call) { c.JSON(200, `{"arrival":1}`) }

// numbered is a `do` that no other is like.
func numbered(n int) string { return fmt.Sprintf(`{"n":%d}`, n) }

// TestNewWritesAreLimitedAndReplaysAreNot: a tenant above its rate is told to
// wait, nothing of it is claimed or sent, and what was written before is answered
// all the while.
func TestNewWritesAreLimitedAndReplaysAreNot(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		cfg.Limits = limits.Policy{WritesPerSecond: 3}
		vendor := vendortest.New(t, instant)
		app, _ := boot(t, cfg)
		a, other := newAgent(t, app.URL()), newAgent(t, app.URL())
		for _, who := range []*agent{a, other} {
			who.connect("c", "probe@1", vendor.URL())
		}
		done, refused := 0, 0
		for n := 1; refused == 0; n++ {
			r := a.do("c", "create", numbered(n))
			switch r.status {
			case 200:
				done++
				require.Contains(t, r.header.Get("RateLimit-Policy"), `"writes";q=3;w=1`)
			default:
				r.is(429, "rate_limited").fresh().retryAfter()
				require.Empty(t, r.header.Get("Location"))
				refused = n
			}
			require.Less(t, n, 100)
		}
		for range 20 {
			a.do("c", "create", numbered(1)).is(200, "succeeded").replayed()
		}
		require.Equal(t, done, vendor.Arrivals())
		other.do("c", "create", numbered(1)).is(200, "succeeded").fresh()
		require.Contains(t, a.events("event=rate_limited"), "rate_limited")
		require.Empty(t, other.events("event=rate_limited"))
		require.Len(t, a.must(200, "GET", "/v1/actions?limit=200", nil).body["data"], done, "the refused one left no action")
		eventually(t, 5*time.Second, "the refused write is done when its time has come", func() bool {
			return a.do("c", "create", numbered(refused)).status == 200
		})
	})
}

// TestCallsAtOnceAreLimited: a tenant's slow vendor takes up its own places and
// nobody else's.
func TestCallsAtOnceAreLimited(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		gate := make(chan struct{})
		vendor := vendortest.New(t, gated(gate, instant))
		app, _ := boot(t, cfg)
		admin := &agent{t: t, base: app.URL(), key: testAdminKey}
		a, other := newAgent(t, app.URL()), newAgent(t, app.URL())
		for _, who := range []*agent{a, other} {
			who.connect("c", "probe@1", vendor.URL())
		}
		admin.must(200, "PATCH", "/v1/tenants/"+a.name, map[string]any{"limits": map[string]any{"concurrent_calls": 2}})
		var running sync.WaitGroup
		call := func(who *agent, n int) {
			running.Go(func() {
				_, _ = who.send(context.WithoutCancel(t.Context()), "POST", "/v1/do", doBody("c", "create", numbered(n)), nil)
			})
		}
		call(a, 1)
		call(a, 2)
		vendor.AwaitArrivals(2)
		a.do("c", "create", numbered(3)).is(429, "rate_limited").retryAfter()
		a.do("c", "create", numbered(1)).is(409, "in_flight")
		call(other, 1)
		vendor.AwaitArrivals(3)
		close(gate)
		running.Wait()
		a.do("c", "create", numbered(3)).is(200, "succeeded")
		require.Equal(t, 4, vendor.Arrivals())
	})
}

// TestRequestsAreWorkedOnInTurns: with one turn for each tenant, calls whose
// vendor takes its time still run beside each other, and nobody waits for another
// tenant.
func TestRequestsAreWorkedOnInTurns(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		cfg.RequestsAtOnce = 1
		gate := make(chan struct{})
		vendor := vendortest.New(t, gated(gate, instant))
		app, _ := boot(t, cfg)
		a, other := newAgent(t, app.URL()), newAgent(t, app.URL())
		for _, who := range []*agent{a, other} {
			who.connect("c", "probe@1", vendor.URL())
		}
		const calls = 20
		var running sync.WaitGroup
		for n := range calls {
			running.Go(func() {
				r, err := a.send(context.WithoutCancel(t.Context()), "POST", "/v1/do", doBody("c", "create", numbered(n)), nil)
				if err != nil || r.status != 200 {
					t.Errorf("%v: %s", err, r.raw)
				}
			})
		}
		vendor.AwaitArrivals(calls)
		a.do("c", "create", numbered(0)).is(409, "in_flight")
		other.must(200, "GET", "/v1/actions", nil)
		close(gate)
		running.Wait()
		a.do("c", "create", numbered(0)).is(200, "succeeded").replayed()
		require.Equal(t, calls, vendor.Arrivals())
	})
}

// TestNewIdentitiesAreCountedInTheStore: neither a restart nor another replica
// gives a tenant a new quota.
func TestNewIdentitiesAreCountedInTheStore(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		const most = 5
		vendor := vendortest.New(t, instant)
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		(&agent{t: t, base: app.URL(), key: testAdminKey}).must(200, "PATCH", "/v1/tenants/"+a.name,
			map[string]any{"limits": map[string]any{"new_identities": most}})
		require.Contains(t, a.call("GET", "/v1/connections", nil).header.Get("RateLimit-Policy"), `"new-identities";q=5;w=86400`)
		for n := 1; n <= most; n++ {
			a.do("c", "create", numbered(n)).is(200, "succeeded")
		}
		a.do("c", "create", numbered(most+1)).is(429, "rate_limited").retryAfter()
		a.do("c", "create", numbered(1)).is(200, "succeeded").replayed()
		require.NoError(t, app.Close())

		app, _ = boot(t, cfg)
		a = a.at(app.URL())
		// A replica that has claimed nothing yet does not know the count; its first
		// claim tells it.
		a.do("c", "create", numbered(most+1)).is(200, "succeeded")
		a.do("c", "create", numbered(most+2)).is(429, "rate_limited")
		require.Equal(t, most+1, vendor.Arrivals())
	})
}

// TestStrangersDoNotReachTheStore: requests without a good key are cut off by
// address, and whoever has one is served meanwhile.
func TestStrangersDoNotReachTheStore(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
	cfg.AddressRequests = 2
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.must(200, "GET", "/v1/connections", nil)
	stranger := &agent{t: t, base: app.URL(), key: "nonsense"}
	limited := 0
	for range 12 { // a refused one waits a moment for its answer
		if r := stranger.call("GET", "/v1/connections", nil); r.status == 429 {
			r.is(429, "rate_limited").retryAfter()
			limited++
			continue
		}
	}
	require.GreaterOrEqual(t, limited, 3)
	a.must(200, "GET", "/v1/connections", nil)
	(&agent{t: t, base: app.URL(), key: testAdminKey}).must(200, "GET", "/v1/tenants", nil)
}
