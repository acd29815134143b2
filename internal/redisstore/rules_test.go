package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/dedupe/dedupetest"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/redisstore"
)

// TestRules runs the rules of a write's life over this driver.
func TestRules(t *testing.T) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		dedupetest.Run(t, func(t *testing.T) ledgertest.Harness {
			opts, advance := shiftable(opts)
			s := open(t, opts)
			return ledgertest.Harness{
				Store:   s,
				Advance: advance,
				Reopen: func(t *testing.T) ledger.Store {
					require.NoError(t, s.Close())
					return open(t, opts)
				},
				Peer: func(t *testing.T) ledger.Store { return open(t, opts) },
				Corrupt: func(t *testing.T, scope ledger.Scope, k ledger.Key) {
					raw(t, "SET", valueKey(scope, k), "torn")
				},
			}
		})
	})
}
