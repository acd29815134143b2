package archive_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/archive/archivetest"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// counting is a store whose calls are counted. Rows, if set, makes up the rows of
// every scope but the platform's.
type counting struct {
	ledger.Store
	calls atomic.Int64
	most  atomic.Int64
	rows  func(r ledger.RowRange) []ledger.Row
}

func (c *counting) Read(ctx context.Context, scope ledger.Scope, f ...ledger.Fetch) (ledger.Snapshot, error) {
	c.calls.Add(1)
	return c.Store.Read(ctx, scope, f...)
}

func (c *counting) Rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) ([]ledger.Row, error) {
	c.calls.Add(1)
	c.most.Store(max(c.most.Load(), int64(r.Limit)))
	if c.rows != nil && scope != ledger.Platform {
		return c.rows(r), nil
	}
	return c.Store.Rows(ctx, scope, r)
}

func (c *counting) Entries(ctx context.Context, scope ledger.Scope, r ledger.EntryRange) ([]ledger.Entry, error) {
	c.calls.Add(1)
	return c.Store.Entries(ctx, scope, r)
}

type directory []ledger.Scope

func (d directory) Scopes(_ context.Context, each func(ledger.Scope) error) error {
	for _, scope := range d {
		if err := each(scope); err != nil {
			return err
		}
	}
	return nil
}

func newCounting(t testing.TB) *counting {
	t.Helper()
	s, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return &counting{Store: s}
}

func newSealer(t testing.TB, store ledger.Store, storage archive.Storage, b *archive.Backlog, scopes archive.Scopes) *archive.Sealer {
	t.Helper()
	s, err := archive.NewSealer(archive.Config{
		Store: store, Storage: storage, Signer: ring(t, 1), Backlog: b, Scopes: scopes, Hot: time.Hour,
		Retention: func(context.Context, ledger.Scope) (time.Duration, bool, error) { return 0, true, nil },
		Metrics:   prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	return s
}

// TestManyRowsAreSealedInBoundedMemory: however many rows of a scope wait, one
// segment of them is in memory.
func TestManyRowsAreSealedInBoundedMemory(t *testing.T) {
	const many = 50_000
	noon := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	store := newCounting(t)
	store.rows = func(r ledger.RowRange) (page []ledger.Row) {
		first := 1
		if r.After != "" {
			_, err := fmt.Sscanf(r.After, "%x", &first)
			require.NoError(t, err)
			first++
		}
		for n := first; n <= many && len(page) < r.Limit; n++ {
			at := noon.Add(time.Duration(n) * time.Millisecond)
			page = append(page, ledger.Row{Cursor: fmt.Sprintf("%016x", n), At: at, Data: audit.Row{
				Event: audit.Claimed, At: at, Tenant: "acme", ActionID: fmt.Sprintf("act_%020d", n), Connection: "billing", Identity: "0123456789abcdef",
			}.Encode()})
		}
		return page
	}
	storage := &shallow{Memory: archivetest.NewMemory()}
	s := newSealer(t, store, storage, archive.NewBacklog(archive.DefaultCut(), 0), directory{})
	scope := ledger.ScopeOf("acme")
	var heaps []uint64
	for rows := 0; rows < many; {
		done, err := s.Seal(t.Context(), scope, false)
		require.NoError(t, err)
		require.Positive(t, done.Rows)
		require.LessOrEqual(t, done.Rows, archive.DefaultCut().Rows)
		rows += done.Rows
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		heaps = append(heaps, m.HeapAlloc)
	}
	require.Greater(t, len(heaps), 10)
	require.LessOrEqual(t, store.most.Load(), int64(256), "rows are read in pages")
	require.Less(t, heaps[len(heaps)-1], heaps[4]+(8<<20), "what is sealed is not kept: %v", heaps)
}

// shallow is a storage that keeps only the newest object, and the archive's id.
type shallow struct {
	*archivetest.Memory
	last string
}

func (s *shallow) Put(ctx context.Context, name string, data []byte) error {
	if s.last != "" {
		s.Damage(s.last, func([]byte) []byte { return nil })
	}
	if name != "archive-id" {
		s.last = name
	}
	return s.Memory.Put(ctx, name, data)
}

// TestScopesWithoutNewRowsCostNothing: with ten thousand tenants a look asks the
// store about those that were written to, and about no other.
func TestScopesWithoutNewRowsCostNothing(t *testing.T) {
	store := newCounting(t)
	var tenants directory
	for n := range 10_000 {
		tenants = append(tenants, ledger.ScopeOf(fmt.Sprint("tenant ", n)))
	}
	cut := archive.DefaultCut()
	cut.Age = 0
	b := archive.NewBacklog(cut, 0)
	s := newSealer(t, store, archivetest.NewMemory(), b, tenants)
	require.NoError(t, s.Scan(t.Context(), 0))
	require.LessOrEqual(t, store.calls.Load(), int64(2*len(tenants)+3), "a scan asks twice about each")

	before := store.calls.Load()
	for range 100 {
		require.NoError(t, s.Round(t.Context()))
	}
	require.Equal(t, before, store.calls.Load(), "nobody wrote")

	watched := b.Watch(store)
	for _, scope := range []ledger.Scope{tenants[17], tenants[4711]} {
		step := ledger.Step{Nonce: ledger.NewNonce(), At: store.Now()}
		audit.Append(&step, audit.Row{Event: audit.Claimed, Tenant: "acme"})
		res, err := watched.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		require.True(t, res.Applied)
	}
	before = store.calls.Load()
	require.NoError(t, s.Round(t.Context()))
	require.LessOrEqual(t, store.calls.Load()-before, int64(24), "two were written to")
	rows, _ := b.Unsealed()
	require.Zero(t, rows)
	before = store.calls.Load()
	require.NoError(t, s.Round(t.Context()))
	require.Equal(t, before, store.calls.Load())
}

// BenchmarkVerify shows how many rows a second are verified.
func BenchmarkVerify(b *testing.B) {
	h := archive.NewHead(ledger.ScopeOf("acme"), "acme")
	rows := make([]ledger.Row, 4096)
	for n := range rows {
		rows[n] = auditRow(n + 1)
	}
	text, _, _ := archive.BuildSegment(ring(b, 1), h, ledger.ScopeOf("acme"), noon, false, rows...)
	keys := archive.NewKeys(ring(b, 1).SigningKeys()...)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r, err := archive.Verify(strings.NewReader(text), keys, nil)
		if err != nil || !r.Whole() {
			b.Fatal(err, r.Findings)
		}
	}
	b.ReportMetric(float64(len(rows))*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}
