// Package archivetest runs the rules of sealing over a driver of the ledger, and
// checks storages.
package archivetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/seal"
)

// Run runs the suite. Open is called once for each case and returns a store of
// its own: its platform scope is written to.
func Run(t *testing.T, open func(t *testing.T) ledgertest.Harness) {
	for _, c := range []struct {
		name string
		run  func(f *fixture)
	}{
		{"rows are sealed once, in order", sealsOnce},
		{"a sealer that another overtook records nothing", overtaken},
		{"two sealers never double or drop a row", twoSealers},
		{"a sealer killed anywhere leaves a whole log", killedAnywhere},
		{"a store that does not say what became of a step", doubtfulStep},
		{"rows are not trimmed before they were stored and read back", lyingStorage},
		{"rows are trimmed only while the archive still has them", trimming},
		{"an archive that fails stops writes at the bound, and recovers", failingArchive},
		{"segments go when their retention is over", retention},
		{"a deleted tenant's log ends, is kept, and goes", finalSegment},
		{"segments are found by time and cursor in both directions", ranges},
		{"an archive of another store is refused", foreignArchive},
		{"an archive that goes is not replaced", archiveThatGoes},
		{"rows of a process that is gone are found", scanned},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(newFixture(t, open(t))) })
	}
}

const hot = 24 * time.Hour

// fixture is a store, an archive and one tenant's scope.
type fixture struct {
	*testing.T
	ledgertest.Harness
	storage *Memory
	ring    *seal.Ring
	tenant  string
	scope   ledger.Scope
	keep    time.Duration
	gone    bool // the tenant was deleted
	written int
	fold    *folded
}

func newFixture(t *testing.T, h ledgertest.Harness) *fixture {
	ring, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	f := &fixture{T: t, Harness: h, storage: NewMemory(), ring: ring, keep: archive.DefaultRetention, fold: &folded{}}
	f.newScope()
	return f
}

func (f *fixture) newScope() {
	f.tenant = "tenant-" + strings.ToLower(rand.Text())
	f.scope, f.written = ledger.ScopeOf(f.tenant), 0
}

// Scopes makes the fixture a directory of tenants.
func (f *fixture) Scopes(_ context.Context, each func(ledger.Scope) error) error {
	if f.gone {
		return nil
	}
	return each(f.scope)
}

// folded notes in the store which rows were folded: one may be folded in a step
// that is not applied.
type folded struct{}

func foldKey() ledger.Key { return ledger.Key{Kind: ledger.Meta, ID: "folded"} }

func (f *folded) Fetch(string, []ledger.Row) []ledger.Fetch { return []ledger.Fetch{{Key: foldKey()}} }

func (f *folded) Fold(step *ledger.Step, seen ledger.Snapshot, _ string, rows []ledger.Row) error {
	v, _ := seen.Get(foldKey())
	data := bytes.Clone(v.Data)
	for _, r := range rows {
		data = append(append(data, r.Cursor...), '\n')
	}
	step.Put = append(step.Put, ledger.Put{Key: foldKey(), Data: data})
	return nil
}

// sealer makes a sealer as one replica has it, with segments of at most 4 rows.
func (f *fixture) sealer(store ledger.Store, storage archive.Storage) *archive.Sealer {
	f.Helper()
	return f.sealerWith(store, storage, archive.NewBacklog(cut(), 0))
}

func cut() archive.Cut { return archive.Cut{Rows: 4, Bytes: 1 << 20, Age: time.Minute} }

func (f *fixture) sealerWith(store ledger.Store, storage archive.Storage, b *archive.Backlog) *archive.Sealer {
	f.Helper()
	s, err := archive.NewSealer(archive.Config{
		Store: store, Storage: storage, Signer: f.ring, Backlog: b, Scopes: f,
		Retention: func(context.Context, ledger.Scope) (time.Duration, bool, error) { return f.keep, !f.gone, nil },
		Hot:       hot, Derivation: f.fold, Terms: terms,
		Metrics: prometheus.NewRegistry(), Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(f, err)
	return s
}

func terms(row audit.Row, f func(term []byte)) { f([]byte("action_id=" + row.ActionID)) }

// write appends rows, each in a step of its own.
func (f *fixture) write(store ledger.Store, n int) {
	f.Helper()
	for range n {
		f.written++
		step := ledger.Step{Nonce: ledger.NewNonce(), At: f.now()}
		audit.Append(&step, audit.Row{Event: audit.Claimed, Tenant: f.tenant, ActionID: fmt.Sprintf("act_%d", f.written)})
		res, err := store.Apply(f.Context(), f.scope, step)
		require.NoError(f, err)
		require.True(f, res.Applied)
	}
}

func (f *fixture) now() time.Time {
	f.Helper()
	snap, err := f.Store.Read(f.Context(), f.scope)
	require.NoError(f, err)
	return snap.Now
}

func (f *fixture) advance(d time.Duration) {
	f.Helper()
	f.Advance(d)
	f.now()
}

// sealAll makes everything due and seals it.
func (f *fixture) sealAll(s *archive.Sealer) {
	f.Helper()
	f.advance(2 * time.Minute)
	for {
		done, err := s.Seal(f.Context(), f.scope, false)
		require.NoError(f, err)
		if done.Rows == 0 && !done.Again() {
			return
		}
	}
}

func (f *fixture) reader() *archive.Reader {
	f.Helper()
	r, err := archive.NewReader(f.Store, f.storage)
	require.NoError(f, err)
	return r
}

func (f *fixture) hot() []ledger.Row {
	f.Helper()
	rows, err := f.Store.Rows(f.Context(), f.scope, ledger.RowRange{Limit: 1 << 20})
	require.NoError(f, err)
	return rows
}

func (f *fixture) entries() []archive.Entry {
	f.Helper()
	all, err := f.reader().Entries(f.Context(), f.scope, archive.Range{Limit: 1 << 20})
	require.NoError(f, err)
	return all
}

// sealed returns the rows in the archive.
func (f *fixture) sealed() (rows []archive.Row) {
	f.Helper()
	for _, e := range f.entries() {
		part, err := f.reader().Rows(f.Context(), e)
		require.NoError(f, err)
		require.Len(f, part, e.Rows())
		rows = append(rows, part...)
	}
	return rows
}

// whole requires that the archive holds every row written from a number on, once
// and in order, that it proves so, and that each was derived from once.
func (f *fixture) whole(from int) {
	f.Helper()
	rows := f.sealed()
	require.Len(f, rows, f.written-from+1)
	for i, r := range rows {
		require.Equal(f, uint64(from+i), r.Seq)
		row, err := audit.Decode(r.Data)
		require.NoError(f, err)
		require.Equal(f, fmt.Sprintf("act_%d", from+i), row.ActionID)
	}
	report, err := f.reader().Verify(f.Context(), f.scope)
	require.NoError(f, err)
	require.True(f, report.Whole(), "%v", report.Findings)
	require.Equal(f, uint64(f.written), report.Proven)
	require.Equal(f, f.tenant, report.Tenant)
	snap, err := f.Store.Read(f.Context(), f.scope, ledger.Fetch{Key: foldKey()})
	require.NoError(f, err)
	v, _ := snap.Get(foldKey())
	cursors := strings.Fields(string(v.Data))
	require.Len(f, cursors, f.written)
	for i, c := range cursors[from-1:] {
		require.Equal(f, rows[i].Cursor, c)
	}
}
