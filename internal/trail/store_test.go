package trail_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// clock is a time that a test sets.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func openStore(t *testing.T) (ledger.Store, *clock) {
	t.Helper()
	c := &clock{now: noon}
	s, err := pebblestore.Open("store", pebblestore.Options{Clock: c.Now, FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s, c
}

// faulty is a store some of whose calls are replaced by what a test says.
type faulty struct {
	ledger.Store
	apply func(next func() (ledger.Result, error), step ledger.Step) (ledger.Result, error)
	rows  func(r ledger.RowRange)
}

func (f *faulty) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	next := func() (ledger.Result, error) { return f.Store.Apply(ctx, scope, step) }
	if f.apply == nil {
		return next()
	}
	return f.apply(next, step)
}

func (f *faulty) Rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) ([]ledger.Row, error) {
	if f.rows != nil {
		f.rows(r)
	}
	return f.Store.Rows(ctx, scope, r)
}
