package pebblestore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// The engine is held where it failed, with goroutines that never end, so these
// stores live in a process of their own.

func TestAFatalErrorOfTheEngineFailsTheStore(t *testing.T) {
	out := child(t, "fatal", t.TempDir(), nil)
	require.Equal(t, []string{
		"apply store unavailable", "ready store unavailable", "close store unavailable", "second open refused",
	}, strings.Split(strings.TrimSpace(out), "\n"))
}

func childFatal(out io.Writer, s *pebblestore.Store) {
	ctx := context.Background()
	returned := make(chan struct{})
	go func() { defer close(returned); s.Fatal("MANIFEST flush failed") }()
	<-s.Failed()
	_, err := s.Apply(ctx, scope, claim(s, "a"))
	sayUnavailable(out, "apply", err)
	sayUnavailable(out, "ready", s.Ready(ctx))
	sayUnavailable(out, "close", s.Close())
	if _, err := pebblestore.Open(os.Getenv(childDir), pebblestore.Options{}); err != nil {
		say(out, "second open refused")
	}
	select {
	case <-returned:
		say(out, "the engine went on")
	default:
	}
}

// A full disk at the log: the first writer is told by its sync, and those beside
// it run into the engine's panic.
func TestALogThatTakesNoMoreFailsTheStore(t *testing.T) {
	out := child(t, "panic", t.TempDir(), nil)
	require.Equal(t, "applied 0 of 64, unavailable 64\nready store unavailable\nclose store unavailable\n", out)
}

func childPanic(out io.Writer, dir string) {
	ctx := context.Background()
	disk := newFaults(vfs.NewMem())
	s, err := pebblestore.Open(dir, pebblestore.Options{FS: disk})
	if err != nil {
		say(out, err)
		return
	}
	disk.fail(func(op errorfs.Op) bool { return logWrite(op) || logSync(op) }, syscall.ENOSPC)
	const callers = 64
	errs := make(chan error, callers)
	for i := range callers {
		go func() {
			_, err := s.Apply(ctx, ledger.ScopeOf(fmt.Sprint(i)), claim(s, "a"))
			errs <- err
		}()
	}
	applied, refused := 0, 0
	for range callers {
		if err := <-errs; err == nil {
			applied++
		} else if strings.HasPrefix(err.Error(), ledger.ErrUnavailable.Error()) {
			refused++
		}
	}
	say(out, fmt.Sprintf("applied %d of %d, unavailable %d", applied, callers, refused))
	sayUnavailable(out, "ready", s.Ready(ctx))
	sayUnavailable(out, "close", s.Close())
}

func sayUnavailable(out io.Writer, what string, err error) {
	if strings.Contains(fmt.Sprint(err), ledger.ErrUnavailable.Error()) {
		say(out, what, ledger.ErrUnavailable)
	} else {
		say(out, what, err)
	}
}

func TestAFullDiskInTheBackgroundIsNotReadyAndPasses(t *testing.T) {
	disk := newFaults(vfs.NewMem())
	logs, logger := newLogged()
	s := open(t, "store", pebblestore.Options{FS: disk, Logger: logger})
	must(t, s, claim(s, "a"))

	disk.fail(tableWrite, syscall.ENOSPC)
	flushed := make(chan error, 1)
	go func() { flushed <- s.Flush() }()
	logs.await(t, "background write failed")
	err := s.Ready(t.Context())
	require.ErrorIs(t, err, ledger.ErrNotReady)
	require.ErrorIs(t, err, syscall.ENOSPC)
	must(t, s, claim(s, "b")) // the log still takes it

	disk.fail(nil, nil)
	require.NoError(t, <-flushed)
	require.NoError(t, s.Ready(t.Context()))
	_, exists := get(t, s, "b")
	require.True(t, exists)
}

func TestReadErrors(t *testing.T) {
	disk := newFaults(vfs.NewMem())
	logs, logger := newLogged()
	s := open(t, "store", pebblestore.Options{FS: disk, Logger: logger})
	must(t, s, claim(s, "a-key-nobody-may-log"))
	require.NoError(t, s.Flush())

	disk.fail(tableRead, syscall.EIO)
	_, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("a-key-nobody-may-log")})
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.NotContains(t, err.Error(), "nobody-may-log")
	res, err := s.Apply(t.Context(), scope, claim(s, "a-key-nobody-may-log"))
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.False(t, res.Applied)

	disk.fail(nil, nil)
	_, exists := get(t, s, "a-key-nobody-may-log")
	require.True(t, exists, "a disk that answers again is asked again")
	require.NotContains(t, logs.text(), "nobody-may-log")
}

func TestADamagedTableIsCorruptAndStopsNobodyElse(t *testing.T) {
	fs := vfs.NewMem()
	logs, logger := newLogged()
	s := open(t, "store", pebblestore.Options{FS: fs, Logger: logger})
	must(t, s, claim(s, "a-key-nobody-may-log"))
	require.NoError(t, s.Flush())
	damageTables(t, fs)

	_, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("a-key-nobody-may-log")})
	require.ErrorIs(t, err, ledger.ErrCorrupt)
	_, err = s.Apply(t.Context(), scope, claim(s, "a-key-nobody-may-log"))
	require.ErrorIs(t, err, ledger.ErrCorrupt)
	require.Contains(t, logs.text(), "a table file is damaged")
	require.NotContains(t, logs.text(), "nobody-may-log")
	require.NoError(t, s.Ready(t.Context()))
}

// damageTables flips bits in the first block of every table file.
func damageTables(t *testing.T, fs *vfs.MemFS) {
	t.Helper()
	names, err := fs.List("store")
	require.NoError(t, err)
	damaged := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		data, err := fs.UnsafeGetFileDataBuffer(fs.PathJoin("store", name))
		require.NoError(t, err)
		for i := range min(len(data), 64) {
			data[i] ^= 0xff
		}
		damaged++
	}
	require.NotZero(t, damaged)
}
