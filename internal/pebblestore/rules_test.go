package pebblestore_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"holdfast.dev/gateway/internal/dedupe/dedupetest"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/pebblestore"
)

// TestRules runs the rules of a write's life over this driver, on a clock that
// stands still unless it is moved.
func TestRules(t *testing.T) {
	dedupetest.Run(t, func(t *testing.T) ledgertest.Harness {
		clock := newFakeClock()
		return harness(t, "store", pebblestore.Options{Clock: clock.Now, FS: vfs.NewMem()}, clock.Advance)
	})
}
