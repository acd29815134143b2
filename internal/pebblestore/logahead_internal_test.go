package pebblestore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// Whatever is written in whatever pieces is in the file, in front of zeros, and the
// file is always longer than that.
func TestLogsAreLongerThanWhatIsInThem(t *testing.T) {
	disk := privateFS{vfs.Default, &atomic.Bool{}}
	name := filepath.Join(t.TempDir(), "000007.log")
	f, err := disk.Create(name, "pebble-wal")
	require.NoError(t, err)
	var in []byte
	write := func(f vfs.File, n int) {
		piece := bytes.Repeat([]byte{byte(1 + n%250)}, n)
		in = append(in, piece...)
		wrote, err := f.Write(piece)
		require.NoError(t, err)
		require.Equal(t, n, wrote)
		raw, err := os.ReadFile(name)
		require.NoError(t, err)
		require.GreaterOrEqual(t, len(raw), len(in))
		require.Zero(t, len(raw)%logAhead)
		require.True(t, bytes.HasPrefix(raw, in))
	}
	for _, n := range []int{1, 7, 2700, logAhead - 2708, 1, logAhead, 3*logAhead + 5, 11} {
		write(f, n)
	}
	require.NoError(t, f.Close())

	// Used again, it keeps its length, and what is behind stays until it is reached.
	old, was := len(in), name
	name, in = filepath.Join(filepath.Dir(name), "000009.log"), nil
	f, err = disk.ReuseForWrite(was, name, "pebble-wal")
	require.NoError(t, err)
	write(f, 100)
	raw, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NotZero(t, raw[old-1])
	write(f, old)
	write(f, 2*logAhead)
	require.NoError(t, f.Close())
}

// What needs its end at its end is left alone.
func TestOnlyLogsAreWrittenAhead(t *testing.T) {
	f, err := privateFS{vfs.Default, &atomic.Bool{}}.Create(filepath.Join(t.TempDir(), "000007.sst"), "pebble-flush")
	require.NoError(t, err)
	_, err = f.Write([]byte("x"))
	require.NoError(t, err)
	info, err := f.Stat()
	require.NoError(t, err)
	require.EqualValues(t, 1, info.Size())
	require.NoError(t, f.Close())
}

// A disk that has no room for zeros may have some for what is to be written.
func TestALogWithoutRoomForZeros(t *testing.T) {
	inner, err := vfs.Default.Create(filepath.Join(t.TempDir(), "000007.log"), "pebble-wal")
	require.NoError(t, err)
	f, err := ahead("000007.log", noZeros{inner})
	require.NoError(t, err)
	for range 100 {
		n, err := f.Write(make([]byte, 10_000))
		require.NoError(t, err)
		require.Equal(t, 10_000, n)
	}
	info, err := f.Stat()
	require.NoError(t, err)
	require.EqualValues(t, 1_000_000, info.Size())
	require.NoError(t, f.Close())
}

type noZeros struct{ vfs.File }

func (noZeros) WriteAt([]byte, int64) (int, error) { return 0, errors.New("no space left on device") }
