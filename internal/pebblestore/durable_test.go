package pebblestore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// answers starts every kind of call whose answer rests on a step that is still
// on its way to the disk.
func answers(s *pebblestore.Store, step ledger.Step) map[string]chan error {
	ctx := context.Background()
	other := claim(s, "behind it")
	late := claim(s, "first")
	calls := map[string]func() error{
		"repeat of its nonce": func() error { _, err := s.Apply(ctx, scope, step); return err },
		"refused by it":       func() error { _, err := s.Apply(ctx, scope, late); return err },
		"step without bytes": func() error {
			_, err := s.Apply(ctx, scope, ledger.Step{
				Nonce: ledger.NewNonce(), At: step.At,
				Expect: []ledger.Expect{{Key: key("first"), Version: step.Nonce.Version()}},
			})
			return err
		},
		"step behind it": func() error { _, err := s.Apply(ctx, scope, other); return err },
		"read":           func() error { _, err := s.Read(ctx, scope, ledger.Fetch{Key: key("first")}); return err },
		"rows":           func() error { _, err := s.Rows(ctx, scope, ledger.RowRange{Limit: 9}); return err },
		"entries": func() error {
			_, err := s.Entries(ctx, scope, ledger.EntryRange{Index: ledger.ByName, Limit: 9})
			return err
		},
		"no entries": func() error {
			_, err := s.Entries(ctx, scope, ledger.EntryRange{
				Index: ledger.ByName, From: step.At.Add(time.Hour), To: step.At, Limit: 9,
			})
			return err
		},
	}
	out := map[string]chan error{}
	for name, call := range calls {
		c := make(chan error, 1)
		out[name] = c
		go func() { c <- call() }()
	}
	return out
}

func TestNothingIsToldBeforeItIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		must(t, s, claim(s, "before"))

		release := disk.hold(logSync)
		step := claim(s, "first")
		first := make(chan error, 1)
		go func() { _, err := s.Apply(t.Context(), scope, step); first <- err }()
		synctest.Wait()
		rest := answers(s, step)
		synctest.Wait()
		assert.Empty(t, first)
		for name, c := range rest {
			assert.Empty(t, c, name)
		}

		release(nil)
		synctest.Wait()
		require.NoError(t, <-first)
		for name, c := range rest {
			require.NoError(t, <-c, name)
		}
		require.NoError(t, s.Ready(t.Context()))
	})
}

func TestASyncThatFailsFailsTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		logs, logger := newLogged()
		s := open(t, "store", pebblestore.Options{FS: disk, Logger: logger})
		must(t, s, claim(s, "before"))

		release := disk.hold(logSync)
		step := claim(s, "first")
		first := make(chan error, 1)
		go func() { _, err := s.Apply(t.Context(), scope, step); first <- err }()
		synctest.Wait()
		rest := answers(s, step)
		synctest.Wait()
		broken := errors.New("the disk is gone")
		release(broken)
		synctest.Wait()

		require.ErrorIs(t, <-first, ledger.ErrUnavailable)
		for name, c := range rest {
			require.ErrorIs(t, <-c, ledger.ErrUnavailable, name)
		}
		// Nothing is answered from here on, not even what is durable.
		_, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("before")})
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		_, err = s.Apply(t.Context(), scope, claim(s, "after"))
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		err = s.Ready(t.Context())
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.ErrorIs(t, err, broken)
		require.ErrorIs(t, s.Close(), broken)
		require.ErrorIs(t, s.Close(), broken)
		require.Contains(t, logs.text(), "the store has failed")

		disk.fail(nil, nil)
		_ = s.CloseEngine()
	})
}

func TestACallerIsNotHeldByAStalledDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		release := disk.hold(logSync)
		step := claim(s, "a")

		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		_, err := s.Apply(ctx, scope, step)
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2*time.Second, time.Since(start))

		// Its step goes on without it, and its nonce finds it.
		release(nil)
		res, err := s.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		require.True(t, res.Applied)
		require.Len(t, allRows(t, s), 1)
	})
}

func TestACallerBehindAnotherLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
		release := s.Hold(scope)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := s.Apply(ctx, scope, claim(s, "a"))
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		release()
		_, exists := get(t, s, "a")
		require.False(t, exists)
		require.Empty(t, allRows(t, s))
	})
}

func TestCloseWaitsForCallsWhoseCallersLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		release := disk.hold(logSync)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { synctest.Wait(); cancel() }()
		_, err := s.Apply(ctx, scope, claim(s, "a"))
		require.ErrorIs(t, err, ledger.ErrUnavailable)

		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		require.Empty(t, closed)
		_, err = s.Apply(t.Context(), scope, claim(s, "b"))
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		release(nil)
		require.NoError(t, <-closed)
	})
}

func TestCloseWaitsForReadersWhoseCallersLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		must(t, s, claim(s, "a"))
		require.NoError(t, s.Flush())
		release := disk.hold(tableRead)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := s.Read(ctx, scope, ledger.Fetch{Key: key("a")})
		require.ErrorIs(t, err, ledger.ErrUnavailable)

		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		require.Empty(t, closed)
		release(nil)
		require.NoError(t, <-closed, "the engine finds nothing of it left open")
	})
}

func TestAPanicFailsTheStore(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
	cause := errors.New("the log takes no more")
	err := s.Panic(t.Context(), scope, cause)
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, s.Ready(t.Context()), cause)
	_, err = s.Apply(t.Context(), scope, claim(s, "a"))
	require.ErrorIs(t, err, cause)
	require.ErrorIs(t, s.Close(), cause)
	require.NoError(t, s.CloseEngine())
}

// What a step that panicked has left in the memory and not in the engine is unknown, so
// none that waits behind it is made.
func TestNothingIsMadeBehindAPanic(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
			at, errs := make(chan struct{}), make(chan error, 9)
			go func() { errs <- s.PanicLate(t.Context(), scope, at) }()
			synctest.Wait()
			for i := range 8 {
				step := claim(s, fmt.Sprint(i))
				go func() { _, err := s.Apply(t.Context(), scope, step); errs <- err }()
			}
			synctest.Wait()
			close(at)
			synctest.Wait()
			for range 9 {
				require.ErrorIs(t, <-errs, ledger.ErrUnavailable)
			}
			require.Zero(t, s.RawKeys(pebblestore.TagScope))
			_ = s.Close()
			require.NoError(t, s.CloseEngine())
		})
	}
}

// Callers that came together leave goroutines that wait for the next ones: a
// bounded number, and none behind Close, which goleak sees to.
func TestGoroutinesOfCallsAreKeptWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		together := func(callers int) {
			t.Helper()
			release := disk.hold(logSync)
			errs := make(chan error, callers)
			for _, scope := range s.Apart(callers) {
				go func() {
					_, err := s.Apply(t.Context(), scope, claim(s, rand.Text()))
					errs <- err
				}()
			}
			synctest.Wait()
			release(nil)
			for range callers {
				require.NoError(t, <-errs)
			}
			synctest.Wait()
		}
		together(5)
		require.Equal(t, 5, s.Idle())
		together(5)
		require.Equal(t, 5, s.Idle(), "they serve again")
		together(pebblestore.IdleWorkers + 50)
		require.Equal(t, pebblestore.IdleWorkers, s.Idle())
		require.NoError(t, s.Close())
	})
}
