package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive/archivetest"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// TestSealing runs the rules of sealing over this driver, each case on a server
// of its own: an archive belongs to one store.
func TestSealing(t *testing.T) {
	archivetest.Run(t, func(t *testing.T) ledgertest.Harness {
		opts, advance := shiftable(redisstore.Options{URL: redistest.Start(t).URL(), Pipeline: true, Ack: "none"})
		require.NoError(t, redisstore.Init(t.Context(), opts))
		return ledgertest.Harness{
			Store: open(t, opts), Advance: advance,
			Reopen:  func(t *testing.T) ledger.Store { return open(t, opts) },
			Peer:    func(t *testing.T) ledger.Store { return open(t, opts) },
			Corrupt: func(*testing.T, ledger.Scope, ledger.Key) {},
		}
	})
}
