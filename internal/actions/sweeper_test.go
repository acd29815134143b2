package actions_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// heap is a scope with writes that are due, and one without.
type heap struct{ due, rounds int }

func (h *heap) Refs(_ context.Context, each func(tenants.Ref) error) error {
	h.rounds++
	if err := each(tenants.Ref{Scope: ledger.Scope{1}}); err != nil {
		return err
	}
	return each(tenants.Ref{Scope: ledger.Scope{2}})
}

func (*heap) All(context.Context, func(tenants.Ref) error) error { return nil }

func (h *heap) Sweep(_ context.Context, scope ledger.Scope, _ dedupe.Scribe) (moved dedupe.Swept, _ error) {
	for scope == (ledger.Scope{1}) && h.due > 0 && !moved.More() {
		h.due--
		moved.Held++
	}
	return moved, nil
}

func (*heap) Holding(context.Context, ledger.Scope) (dedupe.Holding, error) {
	return dedupe.Holding{}, nil
}

func (*heap) Trim(context.Context, ledger.Scope) error { return nil }

// However many writes a gateway left behind, all are noticed within the 5 s of
// the contract: a scope with more than one sweep moves is swept again at once.
func TestManyLapsedLeasesAreSweptWithoutWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		h := &heap{due: 2500}
		ended, log := make(chan struct{}), &syncBuffer{}
		go func() {
			defer close(ended)
			actions.Sweep(ctx, h, h, actions.NewMetrics(prometheus.NewRegistry()), slog.New(slog.NewTextHandler(log, nil)))
		}()
		synctest.Wait() // it waits for its first tick
		require.Zero(t, h.due)
		require.Greater(t, h.rounds, 1)
		require.Contains(t, log.String(), `level=WARN msg="writes held because their gateways were lost" count=`)
		cancel()
		<-ended
	})
}
