package actions_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/wire"
)

// atOnce limits the calls that every tenant may have under way.
func atOnce(n int64) option {
	return func(f *fixture, _ *dedupe.Config, c *actions.Config) {
		c.Limits = limits.New(limits.Policy{ConcurrentCalls: n}, f.clock.Now, f.clock.Now)
	}
}

// occupied takes the tenant's only place with a write, until it is released.
// Look-ups are answered all the while.
func (f *fixture) occupied(body string) (release func()) {
	f.Helper()
	working, gate := make(chan struct{}, 1), make(chan struct{})
	f.vendor.answer = func(_ context.Context, req wire.Request) wire.Exchange {
		if req.Method != "GET" {
			working <- struct{}{}
			<-gate
		}
		return answered(200, "", `{}`)
	}
	out := f.start(context.WithoutCancel(f.Context()), f.request(body))
	receive(f, working)
	return func() {
		f.Helper()
		close(gate)
		require.NoError(f, receive(f, out).err)
	}
}

// checkFails runs a check that must be answered with this code.
func (f *fixture) checkFails(code actions.Code, id dedupe.ActionID) *actions.Error {
	f.Helper()
	_, err := f.svc.Check(f.Context(), f.operator(), id.String(), "req_2", "rest")
	return f.failed(code, actions.Reply{}, err)
}

// TestACheckTakesAPlaceAmongTheTenantsCalls: over the limit it is refused as a do
// would be, nothing of it is kept or sent, and what is not held any more is
// answered all the same.
func TestACheckTakesAPlaceAmongTheTenantsCalls(t *testing.T) {
	f := newFixture(t, atOnce(1))
	f.checks(lookupRule(connectors.StillUnknown))
	f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1})
	rec := f.held()
	release := f.occupied(`{"slow":1}`)
	calls := f.vendor.calls()
	e := f.checkFails(actions.RateLimited, rec.ID)
	require.Equal(t, time.Second, e.RetryAfter)
	require.Equal(t, calls, f.vendor.calls())
	require.Zero(t, f.get(rec.ID).Checks)
	require.True(t, f.get(rec.ID).CheckEnd.IsZero())
	row := f.rows()[len(f.rows())-1]
	require.Equal(t, "rate_limited", string(row.Event))
	require.Equal(t, limits.Calls, row.Reason)
	release()
	f.verdict("succeeded", rec)
	release = f.occupied(`{"slow":2}`)
	f.checkFails(actions.NotHeld, rec.ID)
	release()
}

// TestWhoIsAnsweredHasItsPlaceBack: one write after the other never needs two.
func TestWhoIsAnsweredHasItsPlaceBack(t *testing.T) {
	f := newFixture(t, atOnce(1))
	for n := range 50 {
		f.succeeds(fmt.Sprintf(`{"n":%d}`, n))
	}
}

// TestARunningCheckKeepsItsPlace: a do waits for it as for any other call.
func TestARunningCheckKeepsItsPlace(t *testing.T) {
	f := newFixture(t, atOnce(1))
	f.checks(lookupRule(connectors.StillUnknown))
	f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1})
	rec := f.held()
	working, end := f.vendor.stalls()
	done := make(chan error, 1)
	go func() {
		_, err := f.svc.Check(context.WithoutCancel(t.Context()), f.operator(), rec.ID.String(), "req_2", "rest")
		done <- err
	}()
	receive(t, working)
	f.fails(actions.RateLimited, `{"n":2}`)
	end(answered(200, "", `[]`))
	require.NoError(t, receive(t, done))
	f.vendor.answer = nil
	f.succeeds(`{"n":2}`)
}

// TestACheckGivesItsPlaceBack: on every way out of it.
func TestACheckGivesItsPlaceBack(t *testing.T) {
	for name, out := range map[string]struct {
		trouble func(f *fixture)
		code    actions.Code // "": it is answered
	}{
		"settled":         {trouble: func(f *fixture) { f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1}) }},
		"conflict":        {trouble: func(f *fixture) { f.finds(connectors.Found{Kind: connectors.FoundMany, Matches: 2}) }},
		"no answer":       {trouble: func(f *fixture) { f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonReset}) }},
		"credential gone": {trouble: func(f *fixture) { f.accounts.credsErr = errBroken }},
		"sender panics":   {trouble: func(f *fixture) { f.vendor.panics = true }},
		"not begun":       {trouble: func(f *fixture) { f.store.fail("checked", -1) }, code: actions.StoreUnavailable},
		"not held any more": {trouble: func(f *fixture) {
			_, err := f.svc.Resolve(f.Context(), f.operator(), f.only().ID.String(), actions.Resolution{Succeeded: true, Note: "seen"}, "req_3")
			require.NoError(f, err)
		}, code: actions.NotHeld},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, atOnce(1))
			f.checks(lookupRule(connectors.StillUnknown))
			f.finds(connectors.Found{Kind: connectors.FoundNone})
			rec := f.held()
			out.trouble(f)
			if out.code == "" {
				f.check(rec)
			} else {
				f.checkFails(out.code, rec.ID)
			}
			f.store.on(nil)
			f.vendor.panics, f.vendor.answer, f.accounts.credsErr = false, nil, nil
			f.succeeds(`{"n":2}`)
		})
	}
}

// TestTheReconcilerWaitsForAPlace: of the gateway's limit or the tenant's own; the
// write stays due, without a row, and is checked once there is a place.
func TestTheReconcilerWaitsForAPlace(t *testing.T) {
	for name, c := range map[string]struct {
		gateway int64
		own     tenants.Limits
	}{
		"the gateway's limit":    {gateway: 1},
		"the tenant's own limit": {gateway: 100, own: tenants.Limits{ConcurrentCalls: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, brisk, atOnce(c.gateway))
			f.checks(lookupRule(connectors.StillUnknown))
			f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1})
			rec := f.held()
			release := f.occupied(`{"slow":1}`)
			f.advance(settle + time.Second)
			rows, calls := len(f.rows()), f.vendor.calls()
			var passes atomic.Int64
			f.reconcilesFor(oneScope{own: c.own, read: &passes})
			f.eventually("it has come by a few times", func() bool { return passes.Load() > 5 })
			require.Equal(t, calls, f.vendor.calls())
			require.Len(t, f.rows(), rows)
			require.Equal(t, rec.NextCheck, f.get(rec.ID).NextCheck, "it is due as before")
			release()
			f.eventually("it is settled", func() bool { return f.get(rec.ID).State == dedupe.Succeeded })
			f.eventually("the place is free again", func() bool {
				_, err := f.do(f.request(`{"n":2}`))
				return err == nil
			})
		})
	}
}
