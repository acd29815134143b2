package pebblestore_test

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// state is a folder and what it was acknowledged to hold.
type state struct {
	fs      *vfs.MemFS
	records int
}

// fill writes records until there are so many.
func fill(t *testing.T, s *pebblestore.Store, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		step := claim(s, fmt.Sprint("k", i))
		step.Put[0].Data = []byte(valueOf(i))
		must(t, s, step)
	}
}

func valueOf(i int) string { return strings.Repeat(fmt.Sprintf("%04d", i), 400) }

// states are folders as they are found: closed, killed, and killed while tables
// were being written, so that several logs are needed.
func states(t *testing.T) map[string]state {
	t.Helper()
	out := map[string]state{}
	mem := vfs.NewMem()
	s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: mem})
	require.NoError(t, err)
	fill(t, s, 0, 60)
	require.NoError(t, s.Close())
	out["closed"] = state{mem, 60}

	strict := vfs.NewCrashableMem()
	s, err = pebblestore.OpenSmall("store", pebblestore.Options{FS: strict})
	require.NoError(t, err)
	fill(t, s, 0, 60)
	require.NoError(t, s.Flush())
	fill(t, s, 60, 70)
	require.NoError(t, s.Note())
	out["killed"] = state{crash(strict, 0, 1), 70}
	require.NoError(t, s.Close())

	strict = vfs.NewCrashableMem()
	disk := newFaults(strict)
	s, err = pebblestore.OpenSmall("store", pebblestore.Options{FS: disk})
	require.NoError(t, err)
	release := disk.hold(tableWrite)
	fill(t, s, 0, 90)
	require.NoError(t, s.Note())
	out["killed while it flushed"] = state{crash(strict, 0, 1), 90}
	release(nil)
	require.NoError(t, s.Close())

	out["killed, a table later than what its last log holds"] = flushedLate(t)
	out["killed while it flushed, slowly"] = flushedSlowly(t)
	out["killed while it flushed in its second life"] = flushing(t, false)
	out["killed while it flushed again in its second life"] = flushing(t, true)
	return out
}

// flushedSlowly is a folder whose manifest was written when two logs were needed, and
// both had something in them.
func flushedSlowly(t *testing.T) (st state) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewCrashableMem()
		var mu sync.Mutex
		var first string
		one, rest := make(chan struct{}), make(chan struct{})
		s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: errorfs.Wrap(disk, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if !tableWrite(op) {
				return nil
			}
			mu.Lock()
			first = cmp.Or(first, op.Path)
			held := rest
			if op.Path == first {
				held = one
			}
			mu.Unlock()
			<-held
			return nil
		}))})
		require.NoError(t, err)
		fill(t, s, 0, 90)
		close(one)
		synctest.Wait()
		require.NoError(t, s.Note())
		st = state{crash(disk, 0, 1), 90}
		close(rest)
		require.NoError(t, s.Close())
	})
	return st
}

// flushing is a folder that was opened a second time, and several of whose logs are
// needed: from the first of that life on, or, if it was flushed, from a later one on.
func flushing(t *testing.T, flushed bool) state {
	t.Helper()
	disk := vfs.NewCrashableMem()
	s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: disk})
	require.NoError(t, err)
	fill(t, s, 0, 60)
	require.NoError(t, s.Close())
	slow := newFaults(disk)
	s, err = pebblestore.OpenSmall("store", pebblestore.Options{FS: slow})
	require.NoError(t, err)
	fill(t, s, 60, 65)
	if flushed {
		require.NoError(t, s.Flush())
	}
	release := slow.hold(tableWrite)
	fill(t, s, 65, 155)
	require.NoError(t, s.Note())
	st := state{crash(disk, 0, 1), 155}
	release(nil)
	require.NoError(t, s.Close())
	return st
}

// flushedLate is a folder whose manifest was written when everything was in the log,
// and says so, with a part of it that is in no table.
func flushedLate(t *testing.T) (st state) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		strict := vfs.NewCrashableMem()
		disk := newFaults(strict)
		s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: disk})
		require.NoError(t, err)
		release := disk.hold(tableWrite)
		fill(t, s, 0, 60)
		release(nil)
		synctest.Wait()
		require.NoError(t, s.Note())
		st = state{crash(strict, 0, 1), 60}
		require.NoError(t, s.Close())
	})
	return st
}

// check opens a folder: it is refused as damaged, or all is there, or a record
// that is asked for is said to be unreadable.
func (st state) check(t *testing.T, what string) (refused bool) {
	t.Helper()
	s, err := pebblestore.OpenSmall("store", pebblestore.Options{FS: st.fs})
	if err != nil {
		require.True(t, errors.Is(err, pebblestore.ErrDamaged) || errors.Is(err, ledger.ErrCorrupt), "%s: %v", what, err)
		return true
	}
	defer func() { _ = s.Close() }()
	for i := range st.records {
		id := fmt.Sprint("k", i)
		snap, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key(id)})
		if err != nil {
			require.True(t, errors.Is(err, ledger.ErrCorrupt) || errors.Is(err, ledger.ErrUnavailable), "%s: %v", what, err)
			return true
		}
		v, ok := snap.Get(key(id))
		require.True(t, ok, "%s: %s of %d is gone", what, id, st.records)
		require.Equal(t, valueOf(i), string(v.Data), what)
	}
	return false
}

func (st state) clone(t *testing.T) state {
	t.Helper()
	mem := vfs.NewMem()
	ok, err := vfs.Clone(st.fs, mem, "store", "store")
	require.NoError(t, err)
	require.True(t, ok)
	return state{mem, st.records}
}

func (st state) files(t *testing.T) []string {
	t.Helper()
	names, err := st.fs.List("store")
	require.NoError(t, err)
	return names
}

func (st state) bytes(t *testing.T, name string) []byte {
	t.Helper()
	data, err := st.fs.UnsafeGetFileDataBuffer(st.fs.PathJoin("store", name))
	require.NoError(t, err)
	return data
}

func (st state) replace(t *testing.T, name string, data []byte) {
	t.Helper()
	f, err := st.fs.Create(st.fs.PathJoin("store", name), vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(data)
	require.NoError(t, err)
	require.NoError(t, f.Sync())
	require.NoError(t, f.Close())
}
