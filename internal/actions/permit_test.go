package actions_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
)

// heldUp runs a write whose sender is stopped, right before the first byte, for
// as long as the boot clock says.
func heldUp(t *testing.T, from, to time.Duration) (*fixture, error) {
	t.Helper()
	f := newFixture(t)
	f.boot.set(from)
	f.vendor.before = func() { f.boot.set(to) }
	_, err := f.do(f.request(`{}`))
	require.Equal(t, 1, f.vendor.calls())
	return f, err
}

func TestASenderThatWasHeldUpDoesNotSend(t *testing.T) {
	const most = lease * 2 / 3
	for name, c := range map[string]struct {
		from, to time.Duration
		sends    int
	}{
		"just in time":                     {0, most - 1, 1},
		"two thirds of a lease":            {0, most, 0},
		"a lease":                          {0, lease, 0},
		"two thirds, on a machine long up": {1000 * time.Hour, 1000*time.Hour + most, 0},
		"the clock has gone backwards":     {time.Hour, time.Hour - 1, 0},
		"the clock fails at the send":      {0, math.MaxInt64, 0},
		"the clock fails from the claim":   {math.MaxInt64, math.MaxInt64, 0},
		"the clock failed at the claim":    {math.MaxInt64, time.Hour, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := heldUp(t, c.from, c.to)
			require.Equal(t, c.sends, f.vendor.sends())
			if c.sends == 1 {
				require.NoError(t, err)
				return
			}
			e := f.failed(actions.NotSent, actions.Reply{}, err)
			require.Equal(t, dedupe.NotDone, e.Record.State)
			require.Equal(t, "not_permitted", e.Record.Outcome.Reason)
			f.boot.set(0)
			f.vendor.before = nil
			require.False(t, f.succeeds(`{}`).Replayed, "the claim was released")
		})
	}
}

func TestThePermitCountsFromBeforeTheClaim(t *testing.T) {
	f := newFixture(t)
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		res, err := next()
		if kind == "claimed" {
			f.boot.set(lease) // the reply took a whole lease
		}
		return res, err
	})
	f.fails(actions.NotSent, `{}`)
	require.Zero(t, f.vendor.sends())
}

// A confirmed renewal pushes the bound of two thirds, and only that one.
func TestRenewalsPushThePermit(t *testing.T) {
	const short = 300 * time.Millisecond
	for name, c := range map[string]struct {
		renewedAt, askedAt time.Duration
		sends              int
	}{
		"fresh renewal":                {short / 2, short - 1, 1},
		"a lease after the claim":      {short / 2, short, 0},
		"two thirds after the renewal": {short / 6, short/6 + short*2/3, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, shortLease, func(f *fixture, _ *dedupe.Config, cfg *actions.Config) { cfg.Boot = f.boot.now })
			renewed := make(chan struct{}, 1)
			f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
				if kind == "renew" {
					defer func() {
						select {
						case renewed <- struct{}{}:
						default:
						}
					}()
				}
				return next()
			})
			f.vendor.before = func() {
				f.boot.set(c.renewedAt)
				receive(t, renewed) // the first one may have begun before the clock was set
				receive(t, renewed)
				receive(t, renewed) // by the third the second has been noted
				f.boot.set(c.askedAt)
			}
			_, err := f.do(f.request(`{}`))
			require.Equal(t, c.sends, f.vendor.sends(), "%v", err)
		})
	}
}

func TestARenewalThatIsNotConfirmedPushesNothing(t *testing.T) {
	f := newFixture(t, shortLease, func(f *fixture, _ *dedupe.Config, cfg *actions.Config) { cfg.Boot = f.boot.now })
	tried := make(chan struct{}, 64)
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if kind == "renew" {
			tried <- struct{}{}
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return next()
	})
	f.vendor.before = func() {
		f.boot.set(150 * time.Millisecond)
		receive(t, tried)
		receive(t, tried)
		f.boot.set(200 * time.Millisecond)
	}
	f.fails(actions.NotSent, `{}`)
	require.Zero(t, f.vendor.sends())
}
