package redisstore_test

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/redisstore"
)

func TestConformance(t *testing.T) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		// The suite asks for a store that is ready.
		err := redisstore.Init(t.Context(), opts)
		if err != nil {
			require.ErrorIs(t, err, redisstore.ErrInitialised)
		}
		ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
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

// valueKey spells a key as the package documents it, on purpose a second time:
// a changed layout would orphan everything stored.
func valueKey(scope ledger.Scope, k ledger.Key) string {
	return tag(scope) + ":" + string([]byte{byte(k.Kind)}) + k.ID
}

func tag(scope ledger.Scope) string {
	return "hf:{" + base64.RawURLEncoding.EncodeToString(scope[:]) + "}"
}

// raw sends the shared server a command beside the store.
func raw(t *testing.T, args ...string) string {
	t.Helper()
	reply, err := shared.Do(t.Context(), args...)
	require.NoError(t, err)
	return reply
}
