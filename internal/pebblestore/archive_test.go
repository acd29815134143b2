package pebblestore_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"holdfast.dev/gateway/internal/archive/archivetest"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/pebblestore"
)

// TestSealing runs the rules of sealing over this driver.
func TestSealing(t *testing.T) {
	archivetest.Run(t, func(t *testing.T) ledgertest.Harness {
		clock := newFakeClock()
		return harness(t, "store", pebblestore.Options{Clock: clock.Now, FS: vfs.NewMem()}, clock.Advance)
	})
}
