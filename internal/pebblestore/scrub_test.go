package pebblestore_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// secret is text that no compression shortens.
func secret() string {
	raw := make([]byte, 96)
	_, _ = rand.Read(raw)
	return base64.RawURLEncoding.EncodeToString(raw)
}

// filesWith names the files of a folder that hold a text, anywhere.
func filesWith(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a file that was let go meanwhile
		}
		if bytes.Contains(raw, []byte(text)) {
			names = append(names, d.Name())
		}
		return err
	}))
	return names
}

// A value that expired or was deleted is on no file of the folder any more once
// the scrubber has been round, wherever it was written; what is kept stays.
func TestScrubbedValuesAreOnNoFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	clock, ticks := newFakeClock(), make(chan time.Time)
	s, err := pebblestore.OpenTicked(dir, pebblestore.Options{Clock: clock.Now}, ticks)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	expired, deleted, kept := secret(), secret(), secret()
	// So far behind the beginning of the log that what is written over it later
	// does not reach.
	must(t, s, ledger.Step{Put: []ledger.Put{put("filler", string(make([]byte, 256<<10)))}})
	answer := put("answer", expired)
	answer.Expires = s.Now().Add(time.Minute)
	must(t, s, ledger.Step{Put: []ledger.Put{answer, put("request", deleted), put("kept", kept)}})
	require.NoError(t, s.Flush()) // in a table file, and in a log kept for reuse
	for range 3 {
		// In a table deeper down, too.
		must(t, s, ledger.Step{Put: []ledger.Put{put("other", secret())}})
		require.NoError(t, s.Flush())
	}
	clock.Advance(time.Hour)
	ticks <- time.Time{}
	ticks <- time.Time{}
	must(t, s, ledger.Step{Delete: []ledger.Key{key("request")}})
	for _, id := range []string{"answer", "request"} {
		_, exists := get(t, s, id)
		require.False(t, exists, "there for nobody at once")
	}
	require.NotEmpty(t, filesWith(t, dir, expired), "on the disk it lies a while longer")

	require.NoError(t, s.ScrubRound(t.Context()))

	for _, gone := range []string{expired, deleted} {
		require.Eventually(t, func() bool { return len(filesWith(t, dir, gone)) == 0 }, 10*time.Second, 20*time.Millisecond,
			"still in %v", filesWith(t, dir, gone)) // the engine removes files in the background
	}
	require.NotEmpty(t, filesWith(t, dir, kept))
	got, exists := get(t, s, "kept")
	require.True(t, exists)
	require.Equal(t, kept, got)
}

// Rows, indexes and what is written meanwhile are as before.
func TestScrubbingLosesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	require.NoError(t, err)
	must(t, s, ledger.Step{Put: []ledger.Put{put("a", "1")}, Rows: [][]byte{[]byte("row")}})
	ticks := make(chan time.Time)
	stop := s.StartScrubber(ticks)
	ticks <- time.Time{}
	must(t, s, ledger.Step{Put: []ledger.Put{put("b", "2")}})
	ticks <- time.Time{}
	stop()
	require.NoError(t, s.Close())
	s, err = pebblestore.Open(dir, pebblestore.Options{})
	require.NoError(t, err)
	for id, want := range map[string]string{"a": "1", "b": "2"} {
		got, exists := get(t, s, id)
		require.True(t, exists)
		require.Equal(t, want, got)
	}
	rows, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 1)
	require.NoError(t, s.Close())
}

// The next part is kept, so that a process that is often started again comes to
// the end of a round.
func TestScrubbingGoesOnWhereItWas(t *testing.T) {
	mem := vfs.NewMem()
	for want := range byte(3) {
		s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: mem}, nil)
		require.NoError(t, err)
		require.Equal(t, want, s.ScrubPart())
		ticks := make(chan time.Time)
		stop := s.StartScrubber(ticks)
		ticks <- time.Time{}
		stop()
		require.NoError(t, s.Close())
	}
}
