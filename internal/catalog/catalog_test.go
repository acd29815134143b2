package catalog_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/catalog"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/connectortest"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/trail"
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

	rows, _, err := trail.New(store, nil).Query(t.Context(), ledger.Platform, audit.Filter{}, trail.Page{Limit: 10})
	require.NoError(t, err)
	require.Len(t, rows, 2, "saving again leaves no row")
	require.Equal(t, audit.ConnectorRegistered, rows[0].Event)
	require.Equal(t, "x@1", rows[0].Subject)
}

// tiny compiles "name version".
func tiny(raw []byte) (connectors.Connector, error) {
	name, version, ok := strings.Cut(string(raw), " ")
	if !ok {
		return nil, &connectors.ManifestError{Problems: []connectors.ManifestProblem{{Line: 3, Reason: "this is bad"}}}
	}
	f := connectortest.NewFake()
	f.SpecValue.Name, f.SpecValue.Version, f.SpecValue.Sum = name, strings.TrimSpace(version), sha256.Sum256(raw)
	return f, nil
}

// replica is a registry and its registrar over a store that others share.
func replica(t *testing.T, store ledger.Store, pinned bool) (*catalog.Registrar, *connectors.Registry) {
	c := catalog.New(store)
	r, err := connectors.NewRegistry(connectors.Options{Compile: tiny, Keeper: c, Shelf: c})
	require.NoError(t, err)
	return catalog.NewRegistrar(c, r, func(context.Context, string) (bool, error) { return pinned, nil }, slog.New(slog.DiscardHandler)), r
}

func TestVersionsAreRegisteredForAllReplicas(t *testing.T) {
	store, err := pebblestore.Open("data", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	caller := audit.Caller{Actor: audit.System(), Front: "rest"}
	one, oneRegistry := replica(t, store, true)
	two, twoRegistry := replica(t, store, true)

	spec, created, err := one.Register(t.Context(), caller, "acme", "1.0.0", []byte("acme 1.0.0"))
	require.NoError(t, err)
	require.True(t, created)
	require.Equal(t, "acme@1", spec.Major())
	for _, r := range []*connectors.Registry{oneRegistry, twoRegistry} {
		found, err := r.Lookup(t.Context(), "acme@1")
		require.NoError(t, err)
		require.True(t, found.Claimable)
	}
	_, created, err = two.Register(t.Context(), caller, "acme", "1.0.0", []byte("acme 1.0.0"))
	require.NoError(t, err)
	require.False(t, created, "the same bytes again")
	_, _, err = two.Register(t.Context(), caller, "acme", "1.0.0", []byte("acme 1.0.0 "))
	require.ErrorIs(t, err, connectors.ErrTaken)
	var bad *connectors.ManifestError
	_, _, err = two.Register(t.Context(), caller, "acme", "1.1.0", []byte("bad"))
	require.ErrorAs(t, err, &bad)

	// Both at once, each against the list as it was: neither is lost.
	var group sync.WaitGroup
	for i, r := range []*catalog.Registrar{one, two} {
		group.Go(func() {
			version := fmt.Sprintf("2.0.%d", i)
			_, created, err := r.Register(t.Context(), caller, "acme", version, []byte("acme "+version))
			assert.NoError(t, err)
			assert.True(t, created)
		})
	}
	group.Wait()
	require.NoError(t, oneRegistry.Refresh(t.Context()))
	found, err := oneRegistry.Lookup(t.Context(), "acme@2")
	require.NoError(t, err)
	require.Equal(t, "2.0.1", found.Spec().Version)

	_, created, err = one.Register(t.Context(), caller, "acme", "2.0.0-x", nil)
	require.Error(t, err)
	require.False(t, created)
	_, _, err = one.Register(t.Context(), caller, "acme", "0.9.0", []byte("acme 0.9.0"))
	require.NoError(t, err)
	_, _, err = one.Register(t.Context(), caller, "acme", "0.8.0", []byte("acme 0.8.0"))
	require.NoError(t, err)
	latest, err := catalog.New(store).Latest(t.Context(), "acme@0")
	require.NoError(t, err)
	require.Equal(t, "acme 0.9.0", string(latest), "an older version that comes later is not the latest")

	require.ErrorIs(t, one.Unregister(t.Context(), caller, "acme", "3.0.0"), connectors.ErrUnknownConnector)
	require.NoError(t, one.Unregister(t.Context(), caller, "acme", "2.0.1"), "2.0.0 serves its connections")
	require.ErrorIs(t, one.Unregister(t.Context(), caller, "acme", "2.0.0"), connectors.ErrInUse)
	free, _ := replica(t, store, false)
	require.NoError(t, free.Unregister(t.Context(), caller, "acme", "2.0.0"))
	require.NoError(t, twoRegistry.Refresh(t.Context()))
	found, err = twoRegistry.Lookup(t.Context(), "acme@2")
	require.NoError(t, err)
	require.False(t, found.Claimable, "what was written with it can be read, nothing new is")

	rows, _, err := trail.New(store, nil).Query(t.Context(), ledger.Platform, audit.Filter{}, trail.Page{Limit: 10})
	require.NoError(t, err)
	events := map[audit.Event]int{}
	for _, row := range rows {
		events[row.Event]++
	}
	require.Equal(t, map[audit.Event]int{audit.ConnectorRegistered: 5, audit.ConnectorDeleted: 2}, events)
}
