package pebblestore

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestALogClosedAnywhereInABlockIsWhole: where a block has no room for another
// chunk, the mark that closes a log stands in the next one.
func TestALogClosedAnywhereInABlockIsWhole(t *testing.T) {
	t.Parallel()
	const path = "store/000005.log"
	mem := vfs.NewMem()
	require.NoError(t, mem.MkdirAll("store", folderMode))
	closed := func() error {
		logs, err := wal.Scan(wal.Dir{FS: mem, Dirname: "store"})
		require.NoError(t, err)
		return readLog(path, logs[0], 0).checkClosed(mem)
	}
	for _, says := range []bool{true, false} { // how far the log was synced
		header := logTrailer
		if says {
			header = logHeader
		}
		for left := range 64 {
			f, err := mem.Create(path, vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			w := record.NewLogWriter(f, 5, record.LogWriterConfig{WriteWALSyncOffsets: func() bool { return says }})
			_, err = w.WriteRecord(make([]byte, logBlock-header-left))
			require.NoError(t, err)
			size := w.Size()
			require.NoError(t, w.Close())
			assert.NoError(t, closed(), "%d bytes left in the block", left)

			whole, err := mem.UnsafeGetFileDataBuffer(path)
			require.NoError(t, err)
			whole = append([]byte(nil), whole[:size]...)
			f, err = mem.Create(path, vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			_, err = f.Write(whole)
			require.NoError(t, errors.Join(err, f.Close()))
			assert.ErrorIs(t, closed(), ErrDamaged, "%d bytes left in the block, without the mark", left)
		}
	}
}
