package pebblestore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

func TestFolderAndFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "store")
	s := open(t, dir, pebblestore.Options{})
	must(t, s, claim(s, "a"))
	require.NoError(t, s.Flush())
	require.NoError(t, s.Close())
	s = open(t, dir, pebblestore.Options{}) // uses old log files again
	must(t, s, claim(s, "b"))
	require.NoError(t, s.Flush())

	files := 0
	require.NoError(t, filepath.WalkDir(filepath.Dir(dir), func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := d.Info()
		require.NoError(t, err)
		want := fs.FileMode(0o600)
		if d.IsDir() {
			want = 0o700
		} else {
			files++
		}
		require.Equal(t, want, info.Mode().Perm(), path)
		return nil
	}))
	require.Greater(t, files, 3)
}

func TestAnOpenFolderIsMadePrivate(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	open(t, dir, pebblestore.Options{})
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
}

func TestAFolderThatCannotBeMadeIsAnError(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := pebblestore.Open(filepath.Join(file, "store"), pebblestore.Options{})
	require.Error(t, err)
	require.NotErrorIs(t, err, pebblestore.ErrInUse)
	require.Contains(t, err.Error(), "open store folder")
}

// The engine leaves goroutines behind when it cannot be opened, so this is tried
// in another process.
func TestAFullDiskAtOpenIsAnErrorAndDoesNotHang(t *testing.T) {
	require.Equal(t, "refused until it fits\n", child(t, "full", t.TempDir(), nil))
}

// The engine would try again for ever to write what its log holds to tables.
func TestAFullDiskAtOpenOfAStoreInUseIsAnErrorAndDoesNotHang(t *testing.T) {
	require.Equal(t, "no room for tables\n", child(t, "full for tables", t.TempDir(), nil))
}

func childFullForTables(out io.Writer, dir string) {
	mem := vfs.NewMem()
	s, err := pebblestore.Open(dir, pebblestore.Options{FS: mem})
	if err == nil {
		_, err = s.Apply(context.Background(), scope, claim(s, "a"))
		err = errors.Join(err, s.Close())
	}
	if err != nil {
		say(out, err)
		return
	}
	disk := newFaults(mem)
	disk.fail(tableWrite, syscall.ENOSPC)
	if _, err = pebblestore.Open(dir, pebblestore.Options{FS: disk}); errors.Is(err, syscall.ENOSPC) {
		say(out, "no room for tables")
	} else {
		say(out, err)
	}
}

// childFull fills the disk after more and more writes, until a store fits.
func childFull(out io.Writer, dir string) {
	for room := 0; ; room++ {
		mem := vfs.NewMem()
		disk := newFaults(mem)
		writes := 0
		disk.fail(func(op errorfs.Op) bool {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead || op.Kind == errorfs.OpLock {
				return false
			}
			writes++
			return writes > room
		}, syscall.ENOSPC)
		s, err := pebblestore.Open(dir, pebblestore.Options{FS: disk})
		if err == nil {
			if room < 10 || s.Ready(context.Background()) != nil {
				say(out, "opened with room for", room)
			}
			say(out, "refused until it fits")
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			say(out, room, err)
			return
		}
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	s := open(t, "store", pebblestore.Options{FS: mem})
	must(t, s, claim(s, "a"))
	require.NoError(t, s.RawSet(pebblestore.FormatKey(), binary.BigEndian.AppendUint32(nil, 3)))
	require.NoError(t, s.Close())

	_, err := pebblestore.Open("store", pebblestore.Options{FS: mem})
	require.ErrorIs(t, err, ledger.ErrFormat)
	require.ErrorContains(t, err, "written by a newer release (format 3; this one reads up to 2)")
}

func TestAnotherProgramsDataIsRefused(t *testing.T) {
	mem := vfs.NewMem()
	db, err := pebble.Open("store", &pebble.Options{FS: mem, Logger: quiet{}})
	require.NoError(t, err)
	require.NoError(t, db.Set([]byte("theirs"), nil, pebble.Sync))
	require.NoError(t, db.Close())

	_, err = pebblestore.Open("store", pebblestore.Options{FS: mem})
	require.ErrorIs(t, err, ledger.ErrFormat)
}

func TestDamagedBookkeepingIsRefused(t *testing.T) {
	for name, k := range map[string][]byte{
		"format": pebblestore.FormatKey(), "clock": pebblestore.HighWaterKey(),
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			s := open(t, "store", pebblestore.Options{FS: mem})
			require.NoError(t, s.Close())
			db, err := pebble.Open("store", &pebble.Options{FS: mem, Logger: quiet{}})
			require.NoError(t, err)
			require.NoError(t, db.Set(k, []byte("?"), pebble.Sync))
			require.NoError(t, db.Close())
			_, err = pebblestore.Open("store", pebblestore.Options{FS: mem})
			require.ErrorIs(t, err, ledger.ErrCorrupt)
		})
	}
}

func TestClockNeverGoesBack(t *testing.T) {
	mem := vfs.NewMem()
	clock := newFakeClock()
	opts := pebblestore.Options{FS: mem, Clock: clock.Now}
	s := open(t, "store", opts)
	require.Equal(t, clock.Now().Truncate(time.Millisecond), s.Now(), "whole milliseconds of the source")

	clock.Advance(time.Hour)
	high := s.Now()
	clock.Advance(-time.Hour)
	require.Equal(t, high, s.Now())
	clock.Advance(10 * time.Second)
	require.Equal(t, high.Add(5*time.Second), s.Now(), "half pace while ahead")

	must(t, s, claim(s, "a"))
	before := s.Now()
	require.NoError(t, s.Close())
	s = open(t, "store", opts)
	require.Equal(t, before, s.Now(), "a clean end is exact")

	clock.Advance(24 * time.Hour)
	require.Equal(t, clock.Now().Truncate(time.Millisecond), s.Now(), "the source has caught up")
}

func TestClockBeginsAtItsMarkAfterACrash(t *testing.T) {
	mem := vfs.NewCrashableMem()
	clock := newFakeClock()
	s := open(t, "store", pebblestore.Options{FS: mem, Clock: clock.Now})
	var last time.Time
	for i := range 50 {
		clock.Advance(130 * time.Millisecond)
		last = must(t, s, claim(s, fmt.Sprint(i))).Now
	}
	after := open(t, "store", pebblestore.Options{FS: crash(mem, 0, 1), Clock: newFakeClock().Now})
	require.False(t, after.Now().Before(last))
	require.LessOrEqual(t, after.Now().Sub(last), time.Second)
}

func TestDriftAndBeforeAreExact(t *testing.T) {
	clock := newFakeClock()
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem(), Clock: clock.Now})
	now := s.Now()
	apply := func(step ledger.Step) bool {
		step.Nonce = ledger.NewNonce()
		res, err := s.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		require.Equal(t, now, res.Now)
		return res.Applied
	}
	require.True(t, apply(ledger.Step{At: now.Add(ledger.Drift)}))
	require.True(t, apply(ledger.Step{At: now.Add(-ledger.Drift)}))
	require.False(t, apply(ledger.Step{At: now.Add(ledger.Drift + time.Nanosecond)}))
	require.False(t, apply(ledger.Step{At: now.Add(-ledger.Drift - time.Nanosecond)}))
	require.True(t, apply(ledger.Step{At: now, Before: now.Add(time.Nanosecond)}))
	require.False(t, apply(ledger.Step{At: now, Before: now}))
	_, err := s.Apply(t.Context(), scope, ledger.Step{Nonce: ledger.Nonce{8: 1}, At: now})
	require.Error(t, err, "a version of zeroes would read as no such value")
}

// quiet is a logger of the engine for tests that open it themselves.
type quiet struct{}

func (quiet) Infof(string, ...any)           {}
func (quiet) Errorf(string, ...any)          {}
func (quiet) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }
