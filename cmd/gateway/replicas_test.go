package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// TestNothingIsSentWithoutAcknowledgement: the master works and has the claim,
// its replica does not answer. Nothing is sent, and a vendor's answer is no
// answer, until the replica has what it rests on.
func TestNothingIsSentWithoutAcknowledgement(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: master.URL()}))
	cfg := testConfig(t)
	cfg.Store, cfg.StoreTimeout, cfg.RedisAck = master.URL(), 500*time.Millisecond, "replicas:1"
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	pauseNow := make(chan struct{}, 1)
	vendor := vendortest.New(t, func(c *vendortest.Call) {
		select {
		case <-pauseNow:
			if err := replica.Pause(); err != nil {
				t.Error(err)
			}
		default:
		}
		vendortest.OK(c)
	})
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":0}`).is(200, "succeeded").fresh()

	require.NoError(t, replica.Pause())
	for range 2 {
		a.do("c", "create", `{"n":1}`).is(503, "store_unavailable").retryAfter()
	}
	require.Equal(t, 1, vendor.Arrivals())
	require.NoError(t, replica.Resume())
	eventually(t, 10*time.Second, "it is sent once", func() bool {
		r := a.do("c", "create", `{"n":1}`)
		require.NotContains(t, []int{409, 423}, r.status, "a claim that was not acknowledged takes nobody's place: %s", r.raw)
		return r.status == 200
	})
	require.Equal(t, 2, vendor.Arrivals())

	pauseNow <- struct{}{}
	first := a.do("c", "create", `{"n":2}`).is(423, "answer_not_saved").fresh()
	require.NoError(t, replica.Resume())
	var again reply
	eventually(t, 10*time.Second, "the answer is saved", func() bool {
		again = a.do("c", "create", `{"n":2}`)
		return again.status == 200
	})
	again.replayed()
	require.Equal(t, first.text("action_id"), again.text("id"))
	require.Equal(t, 3, vendor.Arrivals())
}
