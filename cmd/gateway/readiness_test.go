package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/due"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/loss"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/tenants"
)

type everyTenant struct{ scopes }

func (everyTenant) Refs(_ context.Context, each func(tenants.Ref) error) error {
	return errors.Join(each(tenants.Ref{}), each(tenants.Ref{}))
}

func (e everyTenant) All(ctx context.Context, each func(tenants.Ref) error) error {
	return e.Refs(ctx, each)
}

// While the store is in doubt the sweep and the reconciler find no tenants, and none
// more once it is.
func TestNothingIsSweptInDoubt(t *testing.T) {
	var doubt error
	background := trusted{scopes: everyTenant{}, doubt: func() error { return doubt }}
	for _, list := range []func(context.Context, func(tenants.Ref) error) error{background.Refs, background.All} {
		swept := 0
		doubt = nil
		require.NoError(t, list(t.Context(), func(tenants.Ref) error { swept++; return nil }))
		require.Equal(t, 2, swept)
		begins := func(tenants.Ref) error { swept++; doubt = ledger.ErrNotReady; return nil }
		require.ErrorIs(t, list(t.Context(), begins), ledger.ErrNotReady)
		require.ErrorIs(t, list(t.Context(), begins), ledger.ErrNotReady)
		require.Equal(t, 3, swept)
	}
}

// The program's own list of tenants asks for doubt in each round, also of tenants it
// has visited before.
func TestRememberedTenantsAreNotSweptInDoubt(t *testing.T) {
	t.Parallel()
	var doubt error
	store, err := pebblestore.Open(t.TempDir(), pebblestore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	ref := tenants.Ref{Tenant: "t", TenantID: "i", Scope: ledger.ScopeOf("i")}
	marks := due.New(store, oneTenant{ref: ref})
	background := trusted{scopes: marks, doubt: func() error { return doubt }}
	res, err := marks.Watch(store).Apply(t.Context(), ref.Scope, ledger.Step{
		Nonce: ledger.NewNonce(), At: store.Now(), Index: []ledger.Entry{{Index: ledger.ByHold, Member: "m"}},
	})
	require.NoError(t, err)
	require.True(t, res.Applied)
	swept := 0
	count := func(tenants.Ref) error { swept++; return nil }
	require.NoError(t, background.Refs(t.Context(), count))
	require.NoError(t, background.Refs(t.Context(), count))
	require.Equal(t, 2, swept)
	doubt = ledger.ErrNotReady
	require.ErrorIs(t, background.Refs(t.Context(), count), ledger.ErrNotReady)
	require.Equal(t, 2, swept)
}

// What was put into a store is not taken to be there once the store was in doubt, or
// a loss was accepted before anybody here saw it.
func TestWhatAStoreMayHaveLostIsForgotten(t *testing.T) {
	store := &answering{}
	forgotten := 0
	w := newLossWatch(store)
	w.forget = func() { forgotten++ }
	require.NoError(t, w.ready(t.Context()))
	require.Zero(t, forgotten)
	store.err = ledger.ErrUnavailable
	require.Error(t, w.ready(t.Context()))
	require.Zero(t, forgotten)
	store.err = ledger.ErrNotReady
	require.Error(t, w.ready(t.Context()))
	require.Equal(t, 1, forgotten)
	store.err, store.gap = nil, `{"from":"2026-03-01T12:00:00Z","to":"2026-03-01T12:01:00Z"}`
	for range 3 {
		require.NoError(t, w.ready(t.Context()))
		require.Equal(t, 2, forgotten)
	}
	store.gap = `{"from":"2026-03-01T12:00:00Z","to":"2026-03-01T12:05:00Z"}`
	require.NoError(t, w.ready(t.Context()))
	require.Equal(t, 3, forgotten)
	store.gap = "" // told of no more
	require.NoError(t, w.ready(t.Context()))
	require.Equal(t, 3, forgotten)
}

// answering is a store that is ready or not, and tells of a gap.
type answering struct {
	ledger.Store
	err error
	gap string
}

func (a *answering) Ready(context.Context) error { return a.err }

func (a *answering) Read(context.Context, ledger.Scope, ...ledger.Fetch) (ledger.Snapshot, error) {
	s := ledger.Snapshot{Values: map[ledger.Key]ledger.Value{}}
	if a.gap != "" {
		s.Values[loss.GapKey()] = ledger.Value{Data: []byte(a.gap)}
	}
	return s, nil
}

type oneTenant struct {
	due.Directory
	ref tenants.Ref
}

func (o oneTenant) Refs(_ context.Context, each func(tenants.Ref) error) error { return each(o.ref) }

func (o oneTenant) RefOf(context.Context, ledger.Scope) (tenants.Ref, bool, error) {
	return o.ref, true, nil
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
