package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// ownRedis is a Redis that a test may stop.
func ownRedis(t *testing.T) *redistest.Server {
	t.Helper()
	server := redistest.Start(t, redistest.Durable()...)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
	return server
}

// TestRedisAway: stalled or stopped, a claim is refused within the store's
// time-out, nothing arrives then or later, and it works again by itself.
func TestRedisAway(t *testing.T) {
	for name, away := range map[string]struct {
		leave, back func(s *redistest.Server) error
	}{
		"stalled": {(*redistest.Server).Pause, (*redistest.Server).Resume},
		"stopped": {(*redistest.Server).Stop, (*redistest.Server).Start},
		"killed":  {(*redistest.Server).Kill, (*redistest.Server).Start},
	} {
		t.Run(name, func(t *testing.T) {
			server := ownRedis(t)
			cfg := testConfig(t)
			cfg.Store, cfg.StoreTimeout = server.URL(), 500*time.Millisecond
			app, _ := boot(t, cfg)
			a := newAgent(t, app.URL())
			vendor := vendortest.New(t, vendortest.OK)
			a.connect("c", "probe@1", vendor.URL())
			a.do("c", "create", `{"n":0}`).is(200, "succeeded")

			require.NoError(t, away.leave(server))
			for range 3 {
				started := time.Now()
				r := a.do("c", "create", `{"n":1}`).is(503, "store_unavailable")
				require.Less(t, time.Since(started), 2*time.Second)
				r.retryAfter()
				require.Equal(t, "wait_and_repeat", r.text("next"))
			}
			require.Equal(t, 1, vendor.Arrivals())
			require.NoError(t, away.back(server))
			back := time.Now()
			eventually(t, 10*time.Second, "it works again", func() bool {
				r := a.do("c", "create", `{"n":1}`)
				require.NotContains(t, []int{409, 423}, r.status, "an unconfirmed claim takes nobody's place: %s", r.raw)
				return r.status == 200
			})
			require.Less(t, time.Since(back), 4*time.Second)
			require.Equal(t, 2, vendor.Arrivals(), "nothing of what was refused arrives later")
			a.do("c", "create", `{"n":0}`).is(200, "succeeded").replayed()
		})
	}
}

// TestAnswerNotSaved: Redis dies between the vendor's answer and the settle. The
// caller is told neither success nor that nothing was sent; once the store is
// back the repeat gets the answer.
func TestAnswerNotSaved(t *testing.T) {
	for name, behaviour := range map[string]vendortest.Behaviour{"success": vendortest.OK, "refusal": vendortest.Status(422)} {
		t.Run(name, func(t *testing.T) {
			server := ownRedis(t)
			cfg := testConfig(t)
			cfg.Store, cfg.StoreTimeout = server.URL(), 500*time.Millisecond
			app, _ := boot(t, cfg)
			a := newAgent(t, app.URL())
			vendor := vendortest.New(t, func(c *vendortest.Call) {
				if err := server.Stop(); err != nil {
					t.Error(err)
				}
				behaviour(c)
			})
			a.connect("c", "probe@1", vendor.URL())
			first := a.do("c", "create", `{"n":1}`).is(423, "answer_not_saved").fresh()
			require.Equal(t, "get_action", first.text("next"))
			require.NotEmpty(t, first.text("vendor.status"))
			if name == "success" {
				require.Equal(t, `{"arrival":1}`, rawMember(t, first.raw, "unsaved_result"))
			}
			a.do("c", "create", `{"n":1}`).is(503, "store_unavailable")
			require.NoError(t, server.Start())
			var again reply
			eventually(t, 10*time.Second, "the answer is saved", func() bool {
				again = a.do("c", "create", `{"n":1}`)
				return again.status == 200 || again.status == 424
			})
			again.replayed()
			require.Equal(t, first.text("action_id"), again.text("id")+again.text("action_id"))
			require.Equal(t, 1, vendor.Arrivals())
		})
	}
}

// TestRedisFlushed: data that is gone cannot be mended, only noticed: nothing is
// claimed on an empty store that was not declared new.
func TestRedisFlushed(t *testing.T) {
	server := ownRedis(t)
	cfg := testConfig(t)
	cfg.Store = server.URL()
	app, _ := boot(t, cfg)
	require.NoError(t, server.Flush())
	eventually(t, 5*time.Second, "it is not ready", func() bool {
		admin := &agent{t: t, base: app.AdminURL()}
		return admin.call("GET", "/readyz", nil).status == 503
	})
}
