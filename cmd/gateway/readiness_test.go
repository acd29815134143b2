package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/due"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

type everyTenant struct{ due.Directory }

func (everyTenant) Refs(_ context.Context, each func(tenants.Ref) error) error {
	return each(tenants.Ref{})
}

// While the store is in doubt the sweep and the reconciler find no tenants.
func TestNothingIsSweptInDoubt(t *testing.T) {
	var doubt error
	list := trusted{tenants: everyTenant{}, doubt: func() error { return doubt }}
	swept := 0
	count := func(tenants.Ref) error { swept++; return nil }
	require.NoError(t, list.Refs(t.Context(), count))
	doubt = ledger.ErrNotReady
	require.ErrorIs(t, list.Refs(t.Context(), count), ledger.ErrNotReady)
	require.Equal(t, 1, swept)
}

// A process that was stopped does not claim by what it knew of the store before.
func TestAnOldAnswerCountsNoMore(t *testing.T) {
	clock := time.Hour
	r := newReadiness(func(context.Context) error { return nil }, time.Second, slog.New(slog.DiscardHandler))
	r.boot = func() time.Duration { return clock }
	require.ErrorIs(t, r.last(), errNotAsked)
	require.NoError(t, r.now(t.Context()))
	clock += time.Second + maxLate
	require.NoError(t, r.last())
	clock++
	require.ErrorIs(t, r.last(), ledger.ErrNotReady)
	require.NoError(t, r.now(t.Context()))
	require.NoError(t, r.last())
}

// A probe that hangs up says nothing of the store, and a slow answer nothing of what
// was found since.
func TestTheLatestAnswerOfTheStoreCounts(t *testing.T) {
	clock := time.Hour
	var ask func(context.Context) error
	r := newReadiness(func(ctx context.Context) error { return ask(ctx) }, time.Minute, slog.New(slog.DiscardHandler))
	r.boot = func() time.Duration { clock++; return clock }
	ask = func(context.Context) error { return nil }
	require.NoError(t, r.now(t.Context()))

	gone, hangUp := context.WithCancel(t.Context())
	ask = func(ctx context.Context) error { hangUp(); return ctx.Err() }
	require.ErrorIs(t, r.now(gone), context.Canceled)
	require.NoError(t, r.last())

	ask = func(ctx context.Context) error {
		ask = func(context.Context) error { return ledger.ErrNotReady }
		require.ErrorIs(t, r.now(ctx), ledger.ErrNotReady)
		return nil
	}
	require.NoError(t, r.now(t.Context()))
	require.ErrorIs(t, r.last(), ledger.ErrNotReady)
}

// The job that seals the audit leaves a store alone whose layout it may misread.
func TestAStoreOfANewerFormatIsNotSealed(t *testing.T) {
	var doubt error
	store := ofKnownFormat{Store: untouchable{}, doubt: func() error { return doubt }}
	require.Panics(t, func() { _, _ = store.Read(t.Context(), ledger.Platform) }, "it is asked")
	doubt = ledger.NewerFormat(2, 1)
	_, err := store.Read(t.Context(), ledger.Platform)
	require.ErrorIs(t, err, ledger.ErrFormat)
	_, err = store.Apply(t.Context(), ledger.Platform, ledger.Step{})
	require.ErrorIs(t, err, ledger.ErrFormat)
	require.ErrorIs(t, store.TrimRows(t.Context(), ledger.Platform, ""), ledger.ErrFormat)
}

// untouchable is a store on which every call panics.
type untouchable struct{ ledger.Store }
