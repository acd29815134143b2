package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/vendortest"
)

// mute is a store that, once armed, makes its next step and does not say so.
type mute struct {
	ledger.Store
	armed *atomic.Bool
}

func (m mute) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	res, err := m.Store.Apply(ctx, scope, step)
	if err == nil && res.Applied && m.armed.Swap(false) {
		return ledger.Result{}, fmt.Errorf("the reply was lost: %w", ledger.ErrUnavailable)
	}
	return res, err
}

// A resolution whose reply is lost was made all the same: the operator must not
// be told that it was not.
func TestAnUnconfirmedResolutionIsNotCalledNotMade(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir() + "/data"
	armed := &atomic.Bool{}
	cfg.lookAt = func(s ledger.Store) ledger.Store { return mute{s, armed} }
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	vendor := vendortest.New(t, vendortest.CloseAfterBody)
	a.connect("c", "probe@1", vendor.URL())
	id := a.do("c", "create", `{"n":1}`).is(423, "outcome_unknown").text("action_id")

	armed.Store(true)
	r := a.call("POST", "/v1/actions/"+id+"/resolve", `{"outcome":"not_performed","note":"nothing there"}`).
		is(503, "store_unavailable")
	require.False(t, armed.Load())
	require.Contains(t, r.text("detail"), "may or may not have been taken")
	require.NotContains(t, r.text("detail"), "nothing was changed")
	require.Equal(t, "not_done", a.must(200, "GET", "/v1/actions/"+id, nil).text("state"), "it was")
}
