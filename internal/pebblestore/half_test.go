package pebblestore_test

import (
	"bytes"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// A step that failed half written is the end of its group, also where it is the last.
func TestNothingOfAGroupIsMadeIfItsLastIsHalfWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
		must(t, s, claim(s, "before"))
		keys := s.RawKeys(pebblestore.TagScope)
		release := s.Hold(scope)
		errs := make(chan error, 2)
		go func() { _, err := s.Apply(t.Context(), scope, claim(s, "a")); errs <- err }()
		synctest.Wait()
		go func() { errs <- s.Half(t.Context(), scope) }()
		synctest.Wait()
		release()
		require.ErrorIs(t, <-errs, ledger.ErrUnavailable)
		require.ErrorIs(t, <-errs, ledger.ErrUnavailable)
		synctest.Wait()
		require.Equal(t, keys, s.RawKeys(pebblestore.TagScope))
		_ = s.Close()
		require.NoError(t, s.CloseEngine())
	})
}

// What was answered is not kept, however long nothing else comes.
func TestAStripeKeepsNoStepThatWasAnswered(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
	data := func() weak.Pointer[byte] {
		step := claim(s, "a")
		step.Put[0].Data = bytes.Repeat([]byte("x"), 1<<20)
		must(t, s, step)
		return weak.Make(&step.Put[0].Data[0])
	}()
	for range 20 {
		runtime.GC()
		if data.Value() == nil {
			return
		}
	}
	t.Fatal("the step is still there")
}
