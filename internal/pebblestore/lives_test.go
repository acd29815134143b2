package pebblestore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/pebblestore"
)

// TestASoundFolderIsNeverRefused: folders that are closed and killed at any moment of
// any life, with any part of what was not synced, open again with what was
// acknowledged.
func TestASoundFolderIsNeverRefused(t *testing.T) {
	t.Parallel()
	for life := range uint64(12) {
		random := rand.New(rand.NewPCG(life, 7))
		disk, written := vfs.NewCrashableMem(), 0
		for opening := range 12 {
			s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: disk})
			require.NoError(t, err, "life %d, opening %d", life, opening)
			for i := range written {
				_, exists := get(t, s, fmt.Sprint("k", i))
				require.True(t, exists, "life %d, opening %d: k%d of %d", life, opening, i, written)
			}
			for range random.IntN(6) {
				switch random.IntN(4) {
				case 0:
					require.NoError(t, s.Flush())
				case 1:
					require.NoError(t, s.Note())
				default:
					more := random.IntN(40)
					fill(t, s, written, written+more)
					written += more
				}
			}
			if random.IntN(3) == 0 {
				require.NoError(t, s.Close())
			}
			killed := crash(disk, random.IntN(101), random.Uint64())
			require.NoError(t, s.Close())
			disk = killed
		}
	}
}
