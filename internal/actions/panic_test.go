package actions_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/wire"
)

const secretOfPanic = "a body that must not be logged"

func TestAConnectorThatPanicsInPlanSendsNothing(t *testing.T) {
	f := newFixture(t)
	f.fake.PlanFunc = func(context.Context, connectors.Op) (connectors.Request, error) { panic(secretOfPanic) }
	e := f.fails(actions.NotSent, `{}`)
	require.Equal(t, actions.AskOperator, e.Next)
	require.Zero(t, f.vendor.calls())
	require.Equal(t, []string{"denied"}, f.events())
	require.NotContains(t, f.log.String(), secretOfPanic)
}

func TestAConnectorThatPanicsInJudgeLeavesTheWriteHeld(t *testing.T) {
	f := newFixture(t)
	f.fake.JudgeFunc = func(context.Context, connectors.Op, connectors.Answer) (connectors.Verdict, error) {
		panic(secretOfPanic)
	}
	e := f.fails(actions.OutcomeUnknown, `{}`)
	require.Equal(t, dedupe.Held, e.Record.State)
	require.Equal(t, "connector", e.Record.Outcome.Reason)
	require.Equal(t, 201, e.Record.Outcome.VendorStatus)
	f.fails(actions.OutcomeUnknown, `{}`)
	require.Equal(t, 1, f.vendor.sends())
	require.NotContains(t, f.log.String(), secretOfPanic)
}

func TestAConnectorThatPanicsInCheckIsCheckedByHand(t *testing.T) {
	f := newFixture(t)
	f.fake.CheckFunc = func(context.Context, connectors.Op) ([]connectors.CheckStep, error) { panic(secretOfPanic) }
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer})
	for range 2 { // the first time from memory, then from the store
		require.Equal(t, "manual", f.fails(actions.OutcomeUnknown, `{}`).Check.How)
	}
}

func TestAPanicBehindTheClaimEndsHeldOrNotSent(t *testing.T) {
	t.Run("sender", func(t *testing.T) {
		f := newFixture(t)
		f.vendor.answer = func(context.Context, wire.Request) wire.Exchange { panic(secretOfPanic) }
		e := f.fails(actions.OutcomeUnknown, `{}`)
		require.Equal(t, "sent_no_answer", e.Record.Outcome.Phase)
		require.Equal(t, dedupe.Held, f.only().State)
		f.fails(actions.OutcomeUnknown, `{}`)
		require.Equal(t, 1, f.vendor.sends())
		require.NotContains(t, f.log.String(), secretOfPanic)
	})
	t.Run("credentials", func(t *testing.T) {
		f := newFixture(t, func(_ *fixture, _ *dedupe.Config, c *actions.Config) {
			c.Accounts = panickingAccounts{c.Accounts}
		})
		f.fails(actions.NotSent, `{}`)
		require.Equal(t, dedupe.NotDone, f.only().State)
		require.Zero(t, f.vendor.calls())
	})
}

// panickingAccounts panics where the credentials are opened.
type panickingAccounts struct{ actions.Accounts }

func (panickingAccounts) Credentials(connections.Connection) (map[string]string, error) {
	panic(secretOfPanic)
}

func TestAPanicInTheStoreIsLikeAStoreThatFails(t *testing.T) {
	t.Run("settle, once", func(t *testing.T) {
		f := newFixture(t)
		var once atomic.Bool
		f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
			if kind == "succeeded" && once.CompareAndSwap(false, true) {
				panic(secretOfPanic)
			}
			return next()
		})
		f.fails(actions.AnswerNotSaved, `{}`)
		f.eventually("it is stored", func() bool { return f.only().State == dedupe.Succeeded })
	})
	t.Run("settle, always: the lease is given up", func(t *testing.T) {
		f := newFixture(t, shortLease)
		f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
			if kind == "succeeded" {
				panic(secretOfPanic)
			}
			return next()
		})
		f.fails(actions.AnswerNotSaved, `{}`)
		f.eventually("it is held", func() bool {
			_, err := f.claims.Sweep(t.Context(), scope, sweeping)
			require.NoError(t, err)
			return f.only().State == dedupe.Held
		})
		f.close(0)
	})
	t.Run("renew", func(t *testing.T) {
		f := newFixture(t, shortLease)
		renewed := make(chan struct{}, 64)
		f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
			if kind == "renew" {
				renewed <- struct{}{}
				panic(secretOfPanic)
			}
			return next()
		})
		working, release := f.vendor.stalls()
		out := f.start(t.Context(), f.request(`{}`))
		receive(t, working)
		receive(t, renewed)
		release(answered(201, "", `{}`))
		require.NoError(t, receive(t, out).err)
	})
	t.Run("abandon", func(t *testing.T) {
		f := newFixture(t)
		var lost, panicked atomic.Bool
		f.store.on(func(kind string, next func() (ledger.Result, error)) (ledger.Result, error) {
			if kind == "void" && panicked.CompareAndSwap(false, true) {
				panic(secretOfPanic)
			}
			res, err := next()
			if kind == "claimed" && lost.CompareAndSwap(false, true) {
				return ledger.Result{}, ledger.ErrUnavailable
			}
			return res, err
		})
		f.fails(actions.StoreUnavailable, `{}`)
		f.eventually("it is undone", func() bool { return f.only().State == dedupe.NotDone })
	})
}
