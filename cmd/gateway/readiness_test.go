package main

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

type everyTenant struct{ actions.Directory }

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
