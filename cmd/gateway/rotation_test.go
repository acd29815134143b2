package main

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/vendortest"
)

// tokenVendor answers with the last letters of the credential it was shown, which
// no mask takes for the credential.
func tokenVendor(t *testing.T) *vendortest.Vendor {
	return vendortest.New(t, func(c *vendortest.Call) {
		token := c.Arrival.Header.Get("Authorization")
		c.JSON(200, fmt.Sprintf(`{"arrival":1,"ending":%q}`, token[len(token)-1:]))
	})
}

// onFreshStores is onBothStores with a Redis of the test's own.
func onFreshStores(t *testing.T, run func(t *testing.T, cfg Config)) {
	t.Run("embedded", func(t *testing.T) {
		cfg := testConfig(t)
		cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
		run(t, cfg)
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t, redistest.Durable()...)
		require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
		cfg := testConfig(t)
		cfg.Store = server.URL()
		run(t, cfg)
	})
}

// TestRotationOfASecretKey: a new key in front, everything sealed anew, the old
// key gone; credentials, earlier ones too, and held writes live on.
func TestRotationOfASecretKey(t *testing.T) {
	onFreshStores(t, func(t *testing.T, cfg Config) {
		younger := seal.Generate()
		vendor := tokenVendor(t)
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		a.must(200, "PUT", "/v1/connections/c", map[string]any{"credentials": map[string]string{"token": sentinel + "-second-2"}})
		a.do("c", "create", `{"n":1}`).is(200, "succeeded")
		vendor.Use(vendortest.Hang)
		a.connect("fast", "probe-fast@1", vendor.URL())
		held := a.do("fast", "create", `{"n":1}`).is(423, "outcome_unknown").text("action_id")
		require.NoError(t, app.Close())

		var out strings.Builder
		cfg.SecretKey = younger + "," + testSecretKey
		quiet := slog.New(slog.DiscardHandler)
		require.NoError(t, resealAll(t.Context(), cfg, quiet, &out))
		require.Contains(t, out.String(), "2 connections, 1 unsettled writes")
		require.NotContains(t, out.String(), sentinel)
		out.Reset()
		require.NoError(t, resealAll(t.Context(), cfg, quiet, &out))
		require.Contains(t, out.String(), "0 connections, 0 unsettled writes", "once is enough")

		cfg.SecretKey = younger
		vendor.Use(nil)
		app, _ = boot(t, cfg)
		a = a.at(app.URL())
		vendor.Use(func(c *vendortest.Call) {
			token := c.Arrival.Header.Get("Authorization")
			c.JSON(200, fmt.Sprintf(`{"ending":%q}`, token[len(token)-1:]))
		})
		require.Equal(t, "2", a.do("c", "create", `{"n":2}`).is(200, "succeeded").text("result.ending"))
		a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
		a.must(200, "PUT", "/v1/connections/c", map[string]any{"credential_version": 1})
		require.Equal(t, "0", a.do("c", "create", `{"n":3}`).is(200, "succeeded").text("result.ending"))
		a.do("fast", "create", `{"n":1}`).is(423, "outcome_unknown")

		id, err := dedupe.ParseActionID(held)
		require.NoError(t, err)
		ring, err := seal.Parse(younger)
		require.NoError(t, err)
		var scope ledger.Scope
		tenant, err := app.directory.GetTenant(t.Context(), a.name)
		require.NoError(t, err)
		scope = tenant.Scope
		sealed, err := app.claims.Request(t.Context(), scope, id)
		require.NoError(t, err)
		require.False(t, ring.Outdated(sealed))
		_, err = ring.Open(sealed, []byte("request"), scope[:], id[:])
		require.NoError(t, err)

		// Without the younger key nothing opens, and that is said.
		require.NoError(t, app.Close())
		cfg.SecretKey = seal.Generate()
		out.Reset()
		require.ErrorIs(t, resealAll(t.Context(), cfg, quiet, &out), errNotResealed)
		require.Contains(t, out.String(), "connection c:")
	})
}

// TestRotationDuringRunningCalls: calls that run end with the credential they
// began with, those after the rotation have the new one, none has none; and the
// way back is one call.
func TestRotationDuringRunningCalls(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		const running = 8
		gate := make(chan struct{})
		vendor := vendortest.New(t, gated(gate, func(c *vendortest.Call) {
			token := c.Arrival.Header.Get("Authorization")
			c.JSON(200, fmt.Sprintf(`{"ending":%q}`, token[len(token)-1:]))
		}))
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL()) // its token ends in 0
		var calls sync.WaitGroup
		endings := make([]string, running)
		for i := range running {
			calls.Go(func() {
				r, err := a.send(t.Context(), "POST", "/v1/do", doBody("c", "create", fmt.Sprintf(`{"n":%d}`, i)), nil)
				if err == nil && r.status == 200 {
					endings[i] = r.text("result.ending")
				}
			})
		}
		vendor.AwaitArrivals(running)
		rotated := a.must(200, "PUT", "/v1/connections/c", map[string]any{"credentials": map[string]string{"token": sentinel + "-second-2"}})
		require.Equal(t, "2", rotated.text("credentials.version"))
		close(gate)
		calls.Wait()
		for _, ending := range endings {
			require.Equal(t, "0", ending)
		}
		require.Equal(t, "2", a.do("c", "create", `{"n":100}`).is(200, "succeeded").text("result.ending"))

		shown := a.must(200, "GET", "/v1/connections/c", nil)
		require.Len(t, shown.body["kept_credentials"], 1)
		require.NotContains(t, string(shown.raw), "SENTINEL")
		back := a.must(200, "PUT", "/v1/connections/c", map[string]any{"credential_version": 1})
		require.Equal(t, "1", back.text("credentials.version"))
		require.Equal(t, "0", a.do("c", "create", `{"n":101}`).is(200, "succeeded").text("result.ending"))
		a.call("PUT", "/v1/connections/c", map[string]any{"credential_version": 7}).is(400, "invalid_request")
		require.Equal(t, running+2, vendor.Arrivals())
	})
}
