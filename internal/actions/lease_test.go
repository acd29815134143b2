package actions_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

func TestTheLeaseIsRenewedWhileTheVendorWorks(t *testing.T) {
	f := newFixture(t, shortLease)
	renewed := make(chan struct{}, 64)
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		res, err := next()
		if kind == "renew" && res.Applied {
			renewed <- struct{}{}
		}
		return res, err
	})
	working, release := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	claimed := f.only()
	for range 5 { // longer than a lease
		receive(t, renewed)
	}
	require.Equal(t, dedupe.InFlight, f.only().State)
	require.True(t, f.only().LeaseEnd.After(claimed.LeaseEnd))
	moved, err := f.claims.Sweep(t.Context(), scope, sweeping)
	require.NoError(t, err)
	require.Zero(t, moved)
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, out).err)
	require.Equal(t, []string{"claimed", "succeeded"}, f.events(), "renewals leave no rows")
}

func TestALostLeaseIsLogged(t *testing.T) {
	f := newFixture(t, shortLease)
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if kind == "renew" {
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return next()
	})
	working, release := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	require.Eventually(t, func() bool {
		return strings.Contains(f.log.String(), `level=WARN msg="lease lost; the call goes on" action_id=`+f.only().ID.String())
	}, 5*time.Second, 10*time.Millisecond)
	release(answered(201, "", `{}`))
	_ = receive(t, out)
}

// lapse runs a write whose lease lapses while the vendor works, and whose record
// is then held by the sweep.
func lapse(t *testing.T) (f *fixture, out <-chan answer, release func(x int)) {
	t.Helper()
	f = newFixture(t)
	working, end := f.vendor.stalls()
	out = f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	f.clock.advance(lease)
	moved, err := f.claims.Sweep(t.Context(), scope, sweeping)
	require.NoError(t, err)
	require.Equal(t, dedupe.Swept{Held: 1}, moved)
	require.Equal(t, dedupe.Held, f.only().State)
	f.fails(actions.OutcomeUnknown, `{}`) // a repeat is not sent
	return f, out, func(status int) { end(answered(status, "", `{"late":true}`)) }
}

func TestALateAnswerSettlesItsOwnHeldWrite(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		state  dedupe.State
		event  string
	}{
		"success": {201, dedupe.Succeeded, "succeeded"},
		"refusal": {422, dedupe.Refused, "refused"},
		"release": {429, dedupe.NotDone, "released"},
		"unknown": {500, dedupe.Held, "late_answer"},
	} {
		t.Run(name, func(t *testing.T) {
			f, out, release := lapse(t)
			release(c.status)
			got := receive(t, out)
			require.Equal(t, c.status == 201, got.err == nil)
			require.Equal(t, c.state, f.only().State)
			require.False(t, f.only().OwnerLost)
			require.Equal(t, []string{"claimed", "lease_lost", "held_repeat", c.event}, f.events())
			require.Equal(t, 1, f.vendor.calls())
		})
	}
}

func TestALeaseLostWhileTheVendorWorksDoesNotCutTheCall(t *testing.T) {
	f := newFixture(t, shortLease)
	lost := make(chan struct{}, 64)
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if kind == "renew" {
			lost <- struct{}{}
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return next()
	})
	working, release := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	receive(t, lost)
	f.eventually("the lease lapses", func() bool {
		moved, err := f.claims.Sweep(t.Context(), scope, sweeping)
		require.NoError(t, err)
		return moved.Held == 1
	})
	f.eventually("the owner notices", func() bool {
		select {
		case <-lost:
			return false
		default:
			return true
		}
	})
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, out).err)
	require.Equal(t, dedupe.Succeeded, f.only().State)
}

func TestAfterAResolutionNobodyIsToldSuccess(t *testing.T) {
	for name, state := range map[string]dedupe.State{"done": dedupe.Succeeded, "not done": dedupe.NotDone} {
		t.Run(name, func(t *testing.T) {
			f, out, release := lapse(t)
			f.clock.advance(f.only().Deadline.Sub(f.clock.Now()))
			id := f.only().ID
			res := dedupe.Resolution{State: state, Note: "looked", By: "key_2", Scribe: sweeping}
			if state == dedupe.Succeeded {
				res.Answer = []byte("\x0f{\"kind\":\"json\"}1")
			}
			_, err := f.claims.Resolve(t.Context(), scope, id, res)
			require.NoError(t, err)
			release(201)
			got := receive(t, out)
			e := f.failed(actions.OutcomeUnknown, got.reply, got.err)
			require.Equal(t, actions.GetAction, e.Next)
			require.Equal(t, state, e.Record.State)
			require.Equal(t, state, f.get(id).State, "the resolution stands")
			require.Equal(t, "late_answer", f.events()[len(f.events())-1])
			require.Equal(t, 1, f.vendor.calls())
		})
	}
}

func TestTheLeaseIsRenewedUntilTheAnswerIsStored(t *testing.T) {
	f := newFixture(t, shortLease)
	renewed := make(chan struct{}, 64)
	stored := make(chan struct{})
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		switch kind {
		case "renew":
			defer func() { renewed <- struct{}{} }()
		case "succeeded":
			select {
			case <-stored:
			default:
				return ledger.Result{}, ledger.ErrUnavailable
			}
		}
		return next()
	})
	f.fails(actions.AnswerNotSaved, `{}`)
	for range 5 { // longer than a lease
		receive(t, renewed)
	}
	moved, err := f.claims.Sweep(t.Context(), scope, sweeping)
	require.NoError(t, err)
	require.Zero(t, moved)
	f.fails(actions.InFlight, `{}`)
	close(stored)
	f.eventually("it is stored", func() bool { return f.only().State == dedupe.Succeeded })
}
