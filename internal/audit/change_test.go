package audit_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
)

var scope = ledger.ScopeOf("acme")

var counter = ledger.Key{Kind: ledger.Meta, ID: "n"}

// add is a change that appends one mark to a value, carefully.
func add(seen ledger.Snapshot, step *ledger.Step) error {
	old, _ := seen.Get(counter)
	step.Expect = []ledger.Expect{{Key: counter, Version: old.Version}}
	step.Put = []ledger.Put{{Key: counter, Data: append(old.Data, '|')}}
	audit.Append(step, audit.Row{Event: audit.TenantUpdated})
	return nil
}

func marks(t *testing.T, store ledger.Store) int {
	t.Helper()
	snap, err := store.Read(t.Context(), scope, ledger.Fetch{Key: counter})
	require.NoError(t, err)
	v, _ := snap.Get(counter)
	rows, err := store.Rows(t.Context(), scope, ledger.RowRange{Limit: 1000})
	require.NoError(t, err)
	require.Len(t, rows, len(v.Data), "a row for each change and a change for each row")
	return len(v.Data)
}

func fetch() []ledger.Fetch { return []ledger.Fetch{{Key: counter}} }

func TestChangeDecidesAgainOnWhatTheStoreHolds(t *testing.T) {
	store, clock := openStore(t)
	var between []func()
	racy := &faulty{Store: store, apply: func(next func() (ledger.Result, error), _ ledger.Step) (ledger.Result, error) {
		if len(between) > 0 {
			between[0]()
			between = between[1:]
		}
		return next()
	}}
	other := func() {
		_, err := audit.Change(t.Context(), store, scope, fetch(), add)
		require.NoError(t, err)
	}
	between = []func(){other, other, func() { clock.Advance(5 * time.Second) }}

	step, err := audit.Change(t.Context(), racy, scope, fetch(), add)

	require.NoError(t, err)
	require.Equal(t, noon.Add(5*time.Second), step.At, "the step that was applied is returned")
	require.Equal(t, 3, marks(t, store))
}

func TestChangeGivesUpOnEndlessRaces(t *testing.T) {
	store, _ := openStore(t)
	tries := 0
	racy := &faulty{Store: store, apply: func(next func() (ledger.Result, error), _ ledger.Step) (ledger.Result, error) {
		tries++
		_, err := audit.Change(t.Context(), store, scope, fetch(), add)
		require.NoError(t, err)
		return next()
	}}
	_, err := audit.Change(t.Context(), racy, scope, fetch(), add)
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.Equal(t, tries, marks(t, store), "only the others' changes")
}

// A step whose answer is lost is repeated under its nonce and applied once.
func TestChangeSurvivesALostAnswer(t *testing.T) {
	store, _ := openStore(t)
	lost := 0
	deaf := &faulty{Store: store, apply: func(next func() (ledger.Result, error), _ ledger.Step) (ledger.Result, error) {
		res, err := next()
		if lost++; lost == 1 {
			return ledger.Result{}, fmt.Errorf("reply lost: %w", ledger.ErrUnavailable)
		}
		return res, err
	}}
	_, err := audit.Change(t.Context(), deaf, scope, fetch(), add)
	require.NoError(t, err)
	require.Equal(t, 1, marks(t, store))

	dead := &faulty{Store: store, apply: func(func() (ledger.Result, error), ledger.Step) (ledger.Result, error) {
		return ledger.Result{}, ledger.ErrUnavailable
	}}
	_, err = audit.Change(t.Context(), dead, scope, fetch(), add)
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.Equal(t, 1, marks(t, store))
}

func TestChangeWithoutARowIsRefused(t *testing.T) {
	store, _ := openStore(t)
	_, err := audit.Change(t.Context(), store, scope, fetch(), func(_ ledger.Snapshot, step *ledger.Step) error {
		step.Put = []ledger.Put{{Key: counter, Data: []byte("|")}}
		return nil
	})
	require.Error(t, err)
	require.Zero(t, marks(t, store))
}

func TestChangeThatChangesNothingWritesNothing(t *testing.T) {
	store, _ := openStore(t)
	quiet := &faulty{Store: store, apply: func(func() (ledger.Result, error), ledger.Step) (ledger.Result, error) {
		return ledger.Result{}, errors.New("applied")
	}}
	_, err := audit.Change(t.Context(), quiet, scope, fetch(), func(ledger.Snapshot, *ledger.Step) error { return nil })
	require.NoError(t, err)

	refusal := errors.New("refused")
	_, err = audit.Change(t.Context(), quiet, scope, fetch(), func(ledger.Snapshot, *ledger.Step) error { return refusal })
	require.ErrorIs(t, err, refusal)
}

func TestAppendedRowsAreDatedByTheStore(t *testing.T) {
	store, clock := openStore(t)
	first := true
	slow := &faulty{Store: store, apply: func(next func() (ledger.Result, error), _ ledger.Step) (ledger.Result, error) {
		if first {
			first = false
			clock.Advance(5 * time.Second) // the estimate was off by more than the drift
		}
		return next()
	}}
	rows := []audit.Row{{Event: audit.Claimed, ActionID: "act_1"}, {Event: audit.Claimed, ActionID: "act_2"}}
	require.NoError(t, audit.NewLog(slow).Append(t.Context(), scope, rows...))
	found, err := store.Rows(t.Context(), scope, ledger.RowRange{Limit: 10})
	require.NoError(t, err)
	require.Len(t, found, 2)
	for i, stored := range found {
		row, err := audit.Decode(stored.Data)
		require.NoError(t, err)
		require.Equal(t, rows[i].ActionID, row.ActionID)
		require.Equal(t, noon.Add(5*time.Second), row.At)
	}
}

// A deleted tenant's scope takes no more changes, not even one that was decided
// before the deletion.
func TestClosedScopeIsNotChanged(t *testing.T) {
	store, _ := openStore(t)
	closing := func() {
		step := ledger.Step{Nonce: ledger.NewNonce(), At: store.Now(), Put: []ledger.Put{{Key: audit.ClosedKey()}}}
		res, err := store.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		require.True(t, res.Applied)
	}
	racy := &faulty{Store: store, apply: func(next func() (ledger.Result, error), _ ledger.Step) (ledger.Result, error) {
		closing()
		return next()
	}}
	_, err := audit.Change(t.Context(), racy, scope, fetch(), add)
	require.ErrorIs(t, err, audit.ErrClosed)
	_, err = audit.Change(t.Context(), store, scope, fetch(), add)
	require.ErrorIs(t, err, audit.ErrClosed)
	require.Zero(t, marks(t, store))

	_, err = audit.Change(t.Context(), store, ledger.ScopeOf("other"), fetch(), add)
	require.NoError(t, err)
}

func TestStoreErrorsReachTheCaller(t *testing.T) {
	store, _ := openStore(t)
	log := audit.NewLog(store)
	require.NoError(t, store.Close())
	require.ErrorIs(t, log.Append(t.Context(), scope, audit.Row{Event: audit.Claimed}), ledger.ErrUnavailable)
}
