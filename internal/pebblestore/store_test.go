package pebblestore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/pebblestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeClock is a time that a test sets.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{now: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *fakeClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// TestConformance runs the suite in memory, on a clock that stands still unless
// it is moved.
func TestConformance(t *testing.T) {
	ledgertest.Run(t, func(t *testing.T) ledgertest.Harness {
		clock := newFakeClock()
		fs := vfs.NewMem()
		return harness(t, "store", pebblestore.Options{Clock: clock.Now, FS: fs}, clock.Advance)
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
	s := open(t, dir, opts)
	return ledgertest.Harness{
		Store:   s,
		Advance: advance,
		Reopen: func(t *testing.T) ledger.Store {
			require.NoError(t, s.Close())
			s = open(t, dir, opts)
			return s
		},
		Corrupt: func(t *testing.T, scope ledger.Scope, key ledger.Key) {
			require.NoError(t, s.Corrupt(scope, key, []byte("not an envelope")))
		},
	}
}

func open(t *testing.T, dir string, opts pebblestore.Options) *pebblestore.Store {
	t.Helper()
	s, err := pebblestore.Open(dir, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}
