package actions_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/wire"
)

func TestAnAnswerThatIsNotSavedIsNeitherSuccessNorNotSent(t *testing.T) {
	for event, x := range map[string]wire.Exchange{
		"succeeded": answered(201, "application/json", `{"id":7}`),
		"refused":   answered(422, "", `{}`),
		"released":  answered(429, "", `{}`),
	} {
		t.Run(event, func(t *testing.T) {
			f := newFixture(t)
			f.vendor.says(x)
			f.store.fail(event, 2)
			e := f.fails(actions.AnswerNotSaved, `{}`)
			require.Equal(t, x.Status, e.Record.Outcome.VendorStatus)
			require.Zero(t, e.RetryAfter)
			if event == "succeeded" {
				require.Equal(t, `{"id":7}`, string(e.Unsaved.Data))
			} else {
				require.Nil(t, e.Unsaved)
			}
			f.eventually("it is tried until the store takes it", func() bool { return f.only().State != dedupe.InFlight })
			require.Equal(t, []string{"claimed", event}, f.events(), "one row, however often it was tried")
			require.Equal(t, 1, f.vendor.calls())
			if event == "succeeded" {
				require.Equal(t, `{"id":7}`, string(f.succeeds(`{}`).Answer.Data))
			}
		})
	}
}

func TestADoubtThatIsNotSavedIsToldAsDoubt(t *testing.T) {
	f := newFixture(t)
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonReset})
	f.store.fail("held", 1)
	e := f.fails(actions.OutcomeUnknown, `{}`)
	require.Equal(t, "reset", e.Record.Outcome.Reason)
	require.NotContains(t, e.Detail, "the vendor answered", "it did not")
	require.NotNil(t, e.Check)
	f.eventually("it is held", func() bool { return f.only().State == dedupe.Held })
	require.Equal(t, []string{"claimed", "held"}, f.events())
}

func TestNotSentIsTrueWithoutTheStore(t *testing.T) {
	f := newFixture(t)
	f.vendor.says(wire.Exchange{Phase: wire.NotSent, Reason: wire.ReasonRefused})
	f.store.fail("not_sent", 1)
	e := f.fails(actions.NotSent, `{}`)
	require.NotZero(t, e.RetryAfter)
	f.eventually("it is released", func() bool { return f.only().State == dedupe.NotDone })
	f.close(time.Minute)
	require.Equal(t, dedupe.InFlight, e.Record.State, "what was told stays as it was told")
}

func TestASettleWhoseReplyWasLostIsNotASecondOne(t *testing.T) {
	for event, x := range map[string]wire.Exchange{
		"succeeded": answered(201, "", `{}`),
		"refused":   answered(422, "", `{}`),
		"held":      answered(500, "", `{}`),
		"released":  answered(429, "", `{}`),
	} {
		t.Run(event, func(t *testing.T) {
			f := newFixture(t)
			f.vendor.says(x)
			f.store.deaf(event, 1)
			_, err := f.do(f.request(`{}`))
			require.Error(t, err)
			f.close(time.Minute)
			require.Equal(t, []string{"claimed", event}, f.events())
		})
	}
}

// close drains the service, with this much patience for running calls.
func (f *fixture) close(patience time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	f.svc.Close(ctx)
}

func TestTheDrainTriesASettleOnceMore(t *testing.T) {
	f := newFixture(t)
	tries := make(chan struct{}, 64)
	back := make(chan struct{})
	f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
		if kind != "succeeded" {
			return next()
		}
		tries <- struct{}{}
		select {
		case <-back:
			return next()
		default:
			return ledger.Result{}, ledger.ErrUnavailable
		}
	})
	f.fails(actions.AnswerNotSaved, `{}`)
	for range 5 { // by now the next try is more than half a second away
		receive(t, tries)
	}
	close(back)
	f.close(0)
	require.Equal(t, dedupe.Succeeded, f.only().State)
}

func TestWhatTheDrainCouldNotStoreBecomesHeld(t *testing.T) {
	f := newFixture(t)
	f.store.fail("succeeded", -1)
	f.fails(actions.AnswerNotSaved, `{}`)
	f.close(0)
	require.Equal(t, dedupe.InFlight, f.only().State)
	f.clock.advance(lease)
	_, err := f.claims.Sweep(t.Context(), scope, sweeping)
	require.NoError(t, err)
	require.Equal(t, dedupe.Held, f.only().State)
}

func TestTheDrainWaitsThenCuts(t *testing.T) {
	f := newFixture(t)
	working, release := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{"n":1}`))
	receive(t, working)
	closed := make(chan struct{})
	go func() { f.close(time.Minute); close(closed) }()
	f.eventually("no new claims", func() bool {
		_, err := f.do(f.request(`{"n":2}`, dryRun))
		return err != nil
	})
	e := f.fails(actions.Draining, `{"n":2}`)
	require.NotZero(t, e.RetryAfter)
	select {
	case <-closed:
		t.Fatal("a call was still running")
	default:
	}
	release(answered(201, "", `{}`))
	require.NoError(t, receive(t, out).err)
	receive(t, closed)
	require.Equal(t, dedupe.Succeeded, f.only().State)
	f.close(0) // again
}

func TestACallThatIsCutIsHeldInTheStore(t *testing.T) {
	f := newFixture(t)
	working, _ := f.vendor.stalls()
	out := f.start(t.Context(), f.request(`{}`))
	receive(t, working)
	f.close(0)
	got := receive(t, out)
	f.failed(actions.OutcomeUnknown, got.reply, got.err)
	require.Equal(t, dedupe.Held, f.only().State)
	require.Equal(t, "canceled", f.only().Outcome.Reason)
}
