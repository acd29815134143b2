package pebblestore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
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
	return out
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

// TestDamageIsRefusedOrDoesNotMatter: bits flipped and files cut at many places,
// in each file of a folder. Nothing that was acknowledged is ever silently gone.
func TestDamageIsRefusedOrDoesNotMatter(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.False(t, whole.clone(t).check(t, "not damaged"))
			const places = 6
			refused, harmless := map[string]int{}, map[string]int{}
			count := func(file string, no bool) {
				kind := strings.Trim(file, "0123456789-.")
				if no {
					refused[kind]++
				} else {
					harmless[kind]++
				}
			}
			for _, file := range whole.files(t) {
				size := len(whole.bytes(t, file))
				for place := range min(places, size) {
					at := size * place / places
					flipped := whole.clone(t)
					flipped.bytes(t, file)[at] ^= 1 << (place % 8)
					count(file, flipped.check(t, fmt.Sprintf("%s flipped at byte %d of %d", file, at, size)))
					cut := whole.clone(t)
					cut.replace(t, file, append([]byte(nil), whole.bytes(t, file)[:at]...))
					count(file, cut.check(t, fmt.Sprintf("%s cut at byte %d of %d", file, at, size)))
				}
			}
			t.Logf("refused %v, whole %v", refused, harmless)
		})
	}
}

// TestACutBetweenTwoRecordsIsRefused: to the engine each of these ends is the end
// of a log.
func TestACutBetweenTwoRecordsIsRefused(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logs, err := wal.Scan(wal.Dir{FS: whole.fs, Dirname: "store"})
			require.NoError(t, err)
			cuts, refused := 0, 0
			for _, log := range logs {
				r := log.OpenForRead()
				for i := 0; ; i++ {
					_, offset, err := r.NextRecord()
					if err != nil {
						break
					}
					if i%3 != 0 {
						continue
					}
					file := fmt.Sprintf("%06d.log", log.Num)
					cut := whole.clone(t)
					cut.replace(t, file, append([]byte(nil), whole.bytes(t, file)[:offset.Physical]...))
					if cuts++; cut.check(t, fmt.Sprintf("%s cut before the record at %d", file, offset.Physical)) {
						refused++
					}
				}
				require.NoError(t, r.Close())
			}
			require.Positive(t, refused)
			t.Logf("%d of %d cuts refused, the others were in logs that are not needed", refused, cuts)
		})
	}
}

// A log that is gone is no log that was written to tables and removed.
func TestALastLogThatIsGoneIsRefused(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		logs, err := wal.Scan(wal.Dir{FS: whole.fs, Dirname: "store"})
		require.NoError(t, err)
		require.NotEmpty(t, logs)
		last := fmt.Sprintf("%06d.log", logs[len(logs)-1].Num)
		require.NoError(t, whole.fs.Remove(whole.fs.PathJoin("store", last)))
		require.True(t, whole.check(t, name+" without "+last), name)
		require.True(t, whole.check(t, name+" without "+last+", again"), name)
	}
}

// TestLostMarkersAreRefused: which manifest is in use stands in the name of a
// file. Without it the engine would begin a new store in the same folder.
func TestLostMarkersAreRefused(t *testing.T) {
	t.Parallel()
	for name, whole := range states(t) {
		for _, file := range whole.files(t) {
			if strings.HasPrefix(file, "marker.manifest") || strings.HasPrefix(file, "MANIFEST") {
				st := whole.clone(t)
				require.NoError(t, st.fs.Remove(st.fs.PathJoin("store", file)))
				require.True(t, st.check(t, name+" without "+file), file)
			}
		}
		st := whole.clone(t)
		for _, file := range whole.files(t) {
			if strings.HasPrefix(file, "marker.acknowledged") || strings.HasPrefix(file, "marker.manifest") {
				require.NoError(t, st.fs.Remove(st.fs.PathJoin("store", file)))
			}
		}
		require.True(t, st.check(t, name+" without any marker"))
	}
}

// TestALossCanBeAccepted: then the folder opens with what is left of it, and is
// held against that from then on.
func TestALossCanBeAccepted(t *testing.T) {
	t.Parallel()
	st := flushedLate(t)
	logs, err := wal.Scan(wal.Dir{FS: st.fs, Dirname: "store"})
	require.NoError(t, err)
	last := fmt.Sprintf("%06d.log", logs[len(logs)-1].Num)
	require.NotEmpty(t, st.bytes(t, last))
	st.replace(t, last, nil)
	require.True(t, st.check(t, "the last log is empty"))
	require.True(t, st.check(t, "the last log is empty, again"))
	_, err = pebblestore.OpenTicked("store", pebblestore.Options{FS: st.fs}, nil)
	require.ErrorIs(t, err, pebblestore.ErrDamaged)
	require.Regexp(t, "accept-loss --from [0-9]{4}-", err.Error())

	s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: st.fs, AcceptLoss: true}, nil)
	require.NoError(t, err)
	must(t, s, claim(s, "after the loss"))
	require.NoError(t, s.Close())
	s = open(t, "store", pebblestore.Options{FS: st.fs})
	_, exists := get(t, s, "after the loss")
	require.True(t, exists)
}
