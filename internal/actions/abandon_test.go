package actions_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

func TestAnUnconfirmedClaimSendsNothingAndIsUndone(t *testing.T) {
	f := newFixture(t)
	f.store.deaf("claimed", 1)
	e := f.fails(actions.StoreUnavailable, `{}`)
	require.NotZero(t, e.RetryAfter)
	f.eventually("it is undone", func() bool { return f.only().State == dedupe.NotDone })
	require.Equal(t, []string{"claimed", "not_sent"}, f.events())
	require.Zero(t, f.vendor.calls())
}

// away makes the store unreachable behind the claim, until it is let back.
func away(f *fixture) (back func(), undone *atomic.Int32) {
	var down, lost atomic.Bool
	undone = &atomic.Int32{}
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if down.Load() {
			if kind == "void" {
				undone.Add(1)
			}
			return ledger.Result{}, ledger.ErrUnavailable
		}
		res, err := next()
		if kind == "claimed" && lost.CompareAndSwap(false, true) {
			down.Store(true)
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return res, err
	})
	return func() { down.Store(false) }, undone
}

func TestAnAbandonIsRepeatedUntilTheStoreConfirms(t *testing.T) {
	f := newFixture(t)
	back, tries := away(f)
	f.fails(actions.StoreUnavailable, `{}`)
	f.eventually("it is tried again", func() bool { return tries.Load() >= 3 })
	back()
	f.eventually("it is undone", func() bool { return f.only().State == dedupe.NotDone })
}

func TestARepeatFirstClearsItsOwnDoubt(t *testing.T) {
	for name, change := range map[string][]func(*actions.Request){
		"the same write": nil, "its twin": {withKey("another")},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			back, _ := away(f)
			f.fails(actions.StoreUnavailable, `{}`)
			f.fails(actions.StoreUnavailable, `{}`, change...)
			require.Zero(t, f.vendor.calls())
			back()
			// At once, whatever the background's back-off: never in_flight, never twin.
			require.False(t, f.succeeds(`{}`, change...).Replayed)
			require.Equal(t, 1, f.vendor.calls())
		})
	}
}

func TestAnotherWriteIsNotKeptWaitingByADoubt(t *testing.T) {
	f := newFixture(t)
	var lost atomic.Bool
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if kind == "void" || kind == "claimed" && lost.CompareAndSwap(false, true) {
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return next()
	})
	f.fails(actions.StoreUnavailable, `{"n":1}`)
	f.succeeds(`{"n":2}`)
	f.close(0) // the abandon is given up with the gateway
}
