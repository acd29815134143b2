package pebblestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/pebblestore"
)

// TestALogCutInItsZerosIsWhole: a log of the disk has zeros written ahead. Of a killed
// process it may be cut anywhere in them, or be filled up with them, and is refused
// exactly where what was acknowledged is cut.
func TestALogCutInItsZerosIsWhole(t *testing.T) {
	t.Parallel()
	const records = 12
	dir := t.TempDir()
	s := open(t, dir, pebblestore.Options{})
	fill(t, s, 0, records)
	require.NoError(t, s.Note())
	killed := filepath.Join(t.TempDir(), "store")
	require.NoError(t, os.CopyFS(killed, os.DirFS(dir)))

	logs, err := wal.Scan(wal.Dir{FS: vfs.Default, Dirname: killed})
	require.NoError(t, err)
	log := logs[len(logs)-1]
	name := fmt.Sprintf("%06d.log", log.Num)
	whole, err := os.ReadFile(filepath.Join(killed, name))
	require.NoError(t, err)
	r := log.OpenForRead()
	var ends []int64 // of the records
	for {
		_, at, err := r.NextRecord()
		ends = append(ends, at.Physical)
		if err != nil {
			break
		}
	}
	require.NoError(t, r.Close())
	end := ends[len(ends)-1]
	require.Greater(t, len(ends), records)
	require.Greater(t, int64(len(whole)), end+100<<10, "there are zeros")

	cuts := []int64{end + 1, end + 6, end + 7, end + 11, end + 18, end + 19, end + 20, end + 1000, int64(len(whole)) - 1, int64(len(whole))}
	for block := end/(32<<10) + 1; block*(32<<10) < int64(len(whole)); block++ {
		cuts = append(cuts, block*(32<<10)-1, block*(32<<10), block*(32<<10)+1)
	}
	for i, at := range ends[1:] {
		cuts = append(cuts, at, at-1, at-7, (at+ends[i])/2, ends[i]+1, ends[i]+12)
	}
	for _, at := range cuts {
		for what, log := range map[string][]byte{
			"cut":           whole[:at],
			"zeros instead": append(whole[:at:at], make([]byte, int64(len(whole))-at)...),
			"longer":        append(whole[:at:at], make([]byte, int64(len(whole)))...),
		} {
			at := fmt.Sprintf("%s at %d, the last record ends at %d", what, at, end)
			again := filepath.Join(t.TempDir(), "store")
			require.NoError(t, os.CopyFS(again, os.DirFS(killed)))
			require.NoError(t, os.WriteFile(filepath.Join(again, name), log, 0o600))
			s, err := pebblestore.OpenTicked(again, pebblestore.Options{}, nil)
			if cutOff := int64(len(log)) < end || string(log[:end]) != string(whole[:end]); cutOff {
				require.ErrorIs(t, err, pebblestore.ErrDamaged, at)
				continue
			}
			require.NoError(t, err, at)
			for i := range records {
				got, _ := get(t, s, fmt.Sprint("k", i))
				require.Equal(t, valueOf(i), got, at)
			}
			require.NoError(t, s.Close())
		}
	}
}
