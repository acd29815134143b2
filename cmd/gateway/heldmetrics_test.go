package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/vendortest"
)

func shows(t *testing.T, app *App, name, want string) {
	t.Helper()
	require.Equal(t, want, series(t, metricsOf(t, app))[name], name)
}

// TestARecoveredWriteIsCounted: a gateway is killed while the vendor works, and a
// resend by another one settles its write.
func TestARecoveredWriteIsCounted(t *testing.T) {
	t.Parallel()
	cfg := byHand(t, testConfig(t))
	cfg.Store = redisShared.url(t)
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.Replaying, Answer: func(n int) vendortest.Behaviour {
		if n == 1 {
			return vendortest.Hang
		}
		return nil
	}})
	vendor := vendortest.New(t, shop.Serve)
	left, _ := boot(t, cfg)
	doomed := spawn(t, cfg, "--lease="+cfg.Lease.String())
	a := newAgent(t, doomed.url())
	a.connect("shop", "shop-a-slow@1", vendor.URL())
	go func() { _, _ = a.send(t.Context(), "POST", "/v1/do", doBody("shop", "buy", `{"n":1}`), nil) }()
	vendor.AwaitArrivals(1)
	doomed.kill()

	a = a.at(left.URL())
	var held, got reply
	eventually(t, 20*time.Second, "the write is held", func() bool {
		held = a.do("shop", "buy", `{"n":1}`)
		return held.status == 423
	})
	id := held.text("action_id")
	shows(t, left, "holdfast_recovered_total", "0")
	eventually(t, 20*time.Second, "nobody can be sending it any more", func() bool {
		got = a.check(id)
		return got.text("code") != "still_possible"
	})
	require.Equal(t, "succeeded", got.text("verdict"), "%s", got.raw)
	require.Equal(t, 2, shop.Writes())
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
	shows(t, left, "holdfast_recovered_total", "1")
	shows(t, left, "holdfast_late_answers_total", "0")
	require.Contains(t, a.events("action_id="+id), "recovered")
}

// unheard is a store that, while it is away, takes neither the renewals of a
// call's owner nor the success it has found.
type unheard struct {
	ledger.Store
	away *atomic.Bool
}

func (u unheard) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if u.away.Load() && scope != ledger.Platform && ofAnOwner(step) {
		return ledger.Result{}, fmt.Errorf("away: %w", ledger.ErrUnavailable)
	}
	return u.Store.Apply(ctx, scope, step)
}

func ofAnOwner(step ledger.Step) bool {
	if len(step.Rows) == 0 {
		return true
	}
	row, err := audit.Decode(step.Rows[len(step.Rows)-1])
	return err == nil && row.Event == audit.Succeeded
}

// TestALateAnswerIsCounted: the vendor's answer can be stored only after the lease
// has lapsed and a person has resolved the write. It is counted and written down,
// and changes nothing.
func TestALateAnswerIsCounted(t *testing.T) {
	t.Parallel()
	away := &atomic.Bool{}
	cfg := byHand(t, embedded(t))
	cfg.lookAt = func(s ledger.Store) ledger.Store { return unheard{s, away} }
	app, _ := boot(t, cfg)
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.Forgetful})
	vendor := vendortest.New(t, shop.Serve)
	a := newAgent(t, app.URL())
	a.connect("shop", "shop-d@1", vendor.URL())
	away.Store(true)
	a.do("shop", "buy", `{"n":1}`)
	var held reply
	eventually(t, 20*time.Second, "the write is held", func() bool {
		held = a.do("shop", "buy", `{"n":1}`)
		return held.status == 423 && held.text("state") != "in_flight"
	})
	id := held.text("action_id")
	eventually(t, 20*time.Second, "it is resolved", func() bool {
		return a.call("POST", "/v1/actions/"+id+"/resolve", `{"outcome":"succeeded","result":{"id":"by hand"},"note":"seen"}`).status == 200
	})
	shows(t, app, "holdfast_late_answers_total", "0")
	away.Store(false)
	eventually(t, 10*time.Second, "the answer has come", func() bool {
		return series(t, metricsOf(t, app))["holdfast_late_answers_total"] != "0"
	})
	shows(t, app, "holdfast_late_answers_total", "1")
	shows(t, app, "holdfast_recovered_total", "0")
	require.Contains(t, a.events("action_id="+id), "late_answer")
	again := a.do("shop", "buy", `{"n":1}`).is(200, "succeeded").replayed()
	require.Equal(t, "operator", again.text("evidence"))
	require.Equal(t, "by hand", again.text("result.id"))
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
}
