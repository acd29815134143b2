package pebblestore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/pebblestore"
)

// TestConformance runs the suite in memory, on a clock that stands still unless
// it is moved.
func TestConformance(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		clock := newFakeClock()
		return harness(t, "store", pebblestore.Options{Clock: clock.Now, FS: vfs.NewMem()}, clock.Advance)
	})
}

// TestConformanceOnDisk runs it on the disk, on a clock that runs.
func TestConformanceOnDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("writes and syncs real files")
	}
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		var mu sync.Mutex
		var ahead time.Duration
		clock := func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(ahead)
		}
		return harness(t, t.TempDir(), pebblestore.Options{Clock: clock}, func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			ahead += d
		})
	})
}

func harness(t *testing.T, dir string, opts pebblestore.Options, advance func(time.Duration)) ledgertest.Harness {
	open := func() *pebblestore.Store {
		s, err := pebblestore.Open(dir, opts)
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s := open()
	return ledgertest.Harness{
		Store:   s,
		Advance: advance,
		Reopen: func(t *testing.T) ledger.Store {
			require.NoError(t, s.Close())
			s = open()
			return s
		},
		Corrupt: func(t *testing.T, scope ledger.Scope, key ledger.Key) {
			require.NoError(t, s.Corrupt(scope, key, []byte("these bytes are not an envelope")))
		},
	}
}
