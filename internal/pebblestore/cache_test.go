package pebblestore_test

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// The engine takes the room of its memory tables from its cache, so a cache that
// is no larger than one of them keeps nothing.
func TestWhatWasReadFromATableFileStaysInMemory(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
	key := func(i int) ledger.Key { return ledger.Key{Kind: ledger.Answer, ID: fmt.Sprint(i)} }
	put := func(k ledger.Key, size int) {
		_, err := s.Apply(t.Context(), scope, ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Now(), Put: []ledger.Put{{Key: k, Data: make([]byte, size)}},
		})
		require.NoError(t, err)
	}
	for i := range 80 { // more than two memory tables, which begin small
		put(key(100), 1<<20)
		put(key(i), 1000)
	}
	require.NoError(t, s.Flush())
	read := func() {
		for i := range 80 {
			_, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key(i)})
			require.NoError(t, err)
		}
	}
	read()
	before := s.BlocksRead()
	require.NotZero(t, before)
	read()
	require.Equal(t, before, s.BlocksRead())
}
