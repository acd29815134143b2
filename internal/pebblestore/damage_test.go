package pebblestore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// TestDamagedFilesAreNoticed: a bit that flipped in a table, or a table that lost
// its end, is an error at open or at the read. A record that is there is never
// read as another one, nor as none: that would be a second write.
func TestDamagedFilesAreNoticed(t *testing.T) {
	const records = 20
	build := func() *vfs.MemFS {
		mem := vfs.NewMem()
		s := open(t, "store", pebblestore.Options{FS: mem})
		for i := range records {
			must(t, s, claim(s, fmt.Sprint("k", i)))
		}
		require.NoError(t, s.Flush())
		require.NoError(t, s.Close())
		return mem
	}
	noticed := 0
	look := func(what string, mem *vfs.MemFS) {
		s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: mem}, nil)
		if err != nil {
			noticed++
			return
		}
		defer func() { _ = s.Close() }()
		for i := range records {
			id := fmt.Sprint("k", i)
			snap, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key(id)})
			if err != nil {
				require.True(t, errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrUnavailable), "%s: %v", what, err)
				noticed++
				return
			}
			v, ok := snap.Get(key(id))
			require.True(t, ok, "%s: %s is gone", what, id)
			require.Equal(t, "value of "+id, string(v.Data), what)
		}
	}
	tables := func(mem *vfs.MemFS) (names []string) {
		all, err := mem.List("store")
		require.NoError(t, err)
		for _, name := range all {
			if strings.HasSuffix(name, ".sst") {
				names = append(names, mem.PathJoin("store", name))
			}
		}
		require.NotEmpty(t, names)
		return names
	}
	const places = 16
	for place := range places {
		mem := build()
		for _, name := range tables(mem) {
			data, err := mem.UnsafeGetFileDataBuffer(name)
			require.NoError(t, err)
			data[len(data)*place/places] ^= 1 << (place % 8)
		}
		look(fmt.Sprint("flipped at ", place, "/", places), mem)
	}
	flipped := noticed
	require.NotZero(t, flipped)
	for _, keep := range []int{0, 1, 2, 3} {
		mem := build()
		for _, name := range tables(mem) {
			data, err := mem.UnsafeGetFileDataBuffer(name)
			require.NoError(t, err)
			short := append([]byte(nil), data[:len(data)*keep/4]...)
			f, err := mem.Create(name, vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			_, err = f.Write(short)
			require.NoError(t, err)
			require.NoError(t, f.Close())
		}
		look(fmt.Sprint("cut to ", keep, "/4"), mem)
	}
	require.Equal(t, 4, noticed-flipped, "each table that was cut")
}
