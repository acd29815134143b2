package catalog_test

import (
	"crypto/sha256"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/catalog"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestManifestsAreKeptOnceAndFound(t *testing.T) {
	store, err := pebblestore.Open("data", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	c := catalog.New(store)

	one, two := []byte("manifest one"), []byte("manifest two")
	sum1, sum2 := connectors.Sum(sha256.Sum256(one)), connectors.Sum(sha256.Sum256(two))

	_, err = c.Load(t.Context(), sum1)
	require.ErrorIs(t, err, connectors.ErrNotKept)
	_, err = c.Latest(t.Context(), "x@1")
	require.ErrorIs(t, err, connectors.ErrNotKept)

	for range 2 {
		require.NoError(t, c.Save(t.Context(), "x@1", sum1, one))
	}
	require.NoError(t, c.Save(t.Context(), "x@1", sum2, two))

	got, err := c.Load(t.Context(), sum1)
	require.NoError(t, err)
	require.Equal(t, one, got)
	got, err = c.Latest(t.Context(), "x@1")
	require.NoError(t, err)
	require.Equal(t, two, got)
	_, err = c.Latest(t.Context(), "x@2")
	require.ErrorIs(t, err, connectors.ErrNotKept)

	rows, _, err := audit.NewLog(store).Query(t.Context(), ledger.Platform, audit.Filter{}, audit.Page{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 2, "saving again leaves no row")
	require.Equal(t, audit.ConnectorRegistered, rows[0].Event)
	require.Equal(t, "x@1", rows[0].Subject)
}
