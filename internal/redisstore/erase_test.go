package redisstore_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// filesWith names the files of a folder that hold a text, anywhere.
func filesWith(t *testing.T, dir, text string) (names []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the server replaces its files
		}
		if bytes.Contains(raw, []byte(text)) {
			names = append(names, d.Name())
		}
		return err
	}))
	return names
}

// What expired or was deleted is gone from the server without anybody's doing,
// and from its files with the next rewrite of the append-only file.
func TestWhatHasGoneIsOnNoFileAfterARewrite(t *testing.T) {
	// A rewritten file in the form of a dump would hold texts compressed, and a
	// search would find none.
	server := redistest.Start(t, append(redistest.Durable(), "aof-use-rdb-preamble no")...)
	opts := redisstore.Options{URL: server.URL()}
	require.NoError(t, redisstore.Init(t.Context(), opts))
	s := open(t, opts)
	scope := ledger.ScopeOf(rand.Text())
	expired, deleted, kept := rand.Text(), rand.Text(), rand.Text()
	before, err := server.Do(t.Context(), "DBSIZE")
	require.NoError(t, err)
	answer := put("answer", expired)
	answer.Expires = s.Now().Add(500 * time.Millisecond)
	step := ledger.Step{Put: []ledger.Put{answer, put("request", deleted), put("kept", kept)}}
	step.Nonce, step.At = ledger.NewNonce(), s.Now()
	require.True(t, apply(t, s, scope, step).Applied)
	require.NotEmpty(t, filesWith(t, server.Dir(), expired))
	step = ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Delete: []ledger.Key{key("request")}}
	require.True(t, apply(t, s, scope, step).Applied)

	dbsize := func() string {
		size, err := server.Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		return size
	}
	// Nobody asks for the value: the server finds it by itself. Two nonces of
	// steps and one value stay.
	require.Eventually(t, func() bool { return dbsize() == plus(before, 3) }, 20*time.Second, 20*time.Millisecond, "the value expires")
	require.NotEmpty(t, filesWith(t, server.Dir(), expired), "a log that is only appended to keeps it")

	_, err = server.Do(t.Context(), "BGREWRITEAOF")
	require.NoError(t, err)
	for _, gone := range []string{expired, deleted} {
		require.Eventually(t, func() bool { return len(filesWith(t, server.Dir(), gone)) == 0 }, 20*time.Second, 20*time.Millisecond)
	}
	require.NotEmpty(t, filesWith(t, server.Dir(), kept))
}

func plus(text string, n int) string {
	size, _ := strconv.Atoi(text)
	return strconv.Itoa(size + n)
}
