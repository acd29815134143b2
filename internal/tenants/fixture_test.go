package tenants_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	adminKey     = "platform-admin-key-of-32-letters"
	nextAdminKey = "platform-admin-key-that-is-newer"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

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

// hooked is a store that a test looks over the shoulder of.
type hooked struct {
	ledger.Store
	mu    sync.Mutex
	reads int
	// before runs before a step is applied, after once it was; an error from
	// either is what the caller gets.
	before, after func(step ledger.Step) error
	read          func() error
}

func (h *hooked) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if h.before != nil {
		if err := h.before(step); err != nil {
			return ledger.Result{}, err
		}
	}
	res, err := h.Store.Apply(ctx, scope, step)
	if err == nil && h.after != nil {
		err = h.after(step)
	}
	return res, err
}

func (h *hooked) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	h.mu.Lock()
	h.reads++
	h.mu.Unlock()
	snap, err := h.Store.Read(ctx, scope, fetch...)
	if h.read != nil && err == nil {
		err = h.read()
	}
	return snap, err
}

func (h *hooked) readCount() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reads
}

// fixture is a directory over a real store in memory.
type fixture struct {
	*tenants.Directory
	t      *testing.T
	store  *hooked
	clock  *clock
	caller audit.Caller
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	c := &clock{now: noon}
	s, err := pebblestore.Open("store", pebblestore.Options{Clock: c.Now, FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	f := &fixture{t: t, store: &hooked{Store: s}, clock: c, caller: audit.Caller{
		Actor: audit.Actor{Kind: audit.KindPlatform}, Front: "rest", RequestID: "req_1",
	}}
	f.Directory = f.replica()
	return f
}

// replica is another process over the same store.
func (f *fixture) replica() *tenants.Directory {
	f.t.Helper()
	d, err := tenants.New(tenants.Config{Store: f.store, AdminKeys: []string{adminKey, nextAdminKey}})
	require.NoError(f.t, err)
	return d
}

func (f *fixture) create(id string) tenants.Tenant {
	f.t.Helper()
	made, err := f.CreateTenant(f.t.Context(), f.caller, tenants.NewTenant{ID: id})
	require.NoError(f.t, err)
	return made
}

func (f *fixture) get(id string) tenants.Tenant {
	f.t.Helper()
	found, err := f.GetTenant(f.t.Context(), id)
	require.NoError(f.t, err)
	return found
}

func (f *fixture) key(ref tenants.Ref, scopes ...tenants.KeyScope) (text, id string) {
	f.t.Helper()
	if scopes == nil {
		scopes = []tenants.KeyScope{tenants.ScopeDo}
	}
	text, key, err := f.CreateKey(f.t.Context(), f.caller, ref, tenants.NewKey{Scopes: scopes})
	require.NoError(f.t, err)
	return text, key.ID
}

func (f *fixture) authenticate(key string) tenants.Principal {
	f.t.Helper()
	p, err := f.Authenticate(f.t.Context(), key)
	require.NoError(f.t, err)
	return p
}

func (f *fixture) locked(key string) {
	f.t.Helper()
	_, err := f.Authenticate(f.t.Context(), key)
	require.ErrorIs(f.t, err, tenants.ErrUnauthenticated)
	require.Equal(f.t, tenants.ErrUnauthenticated, err, "one answer, with nothing in it")
}

func (f *fixture) rows(scope ledger.Scope) (rows []audit.Row) {
	f.t.Helper()
	stored, err := f.store.Rows(f.t.Context(), scope, ledger.RowRange{Limit: 1000})
	require.NoError(f.t, err)
	for _, s := range stored {
		row, err := audit.Decode(s.Data)
		require.NoError(f.t, err)
		rows = append(rows, row)
	}
	return rows
}

func (f *fixture) events(scope ledger.Scope) (events []string) {
	f.t.Helper()
	for _, row := range f.rows(scope) {
		events = append(events, string(row.Event))
	}
	return events
}

// apply makes a step as a neighbour of the package would.
func (f *fixture) apply(scope ledger.Scope, step ledger.Step) bool {
	f.t.Helper()
	step.Nonce, step.At = ledger.NewNonce(), f.store.Now()
	res, err := f.store.Store.Apply(f.t.Context(), scope, step)
	require.NoError(f.t, err)
	return res.Applied
}

// named lists what a scope has under a name.
func (f *fixture) named(scope ledger.Scope) (members []string) {
	f.t.Helper()
	entries, err := f.store.Entries(f.t.Context(), scope, ledger.EntryRange{Index: ledger.ByName, Limit: 1000})
	require.NoError(f.t, err)
	for _, e := range entries {
		members = append(members, e.Member)
	}
	return members
}

func (f *fixture) value(scope ledger.Scope, k ledger.Key) (ledger.Value, bool) {
	f.t.Helper()
	snap, err := f.store.Store.Read(f.t.Context(), scope, ledger.Fetch{Key: k})
	require.NoError(f.t, err)
	return snap.Get(k)
}

func (f *fixture) list() (ids []string) {
	f.t.Helper()
	cursor := ""
	for {
		page, next, err := f.ListTenants(f.t.Context(), cursor, 2)
		require.NoError(f.t, err)
		for _, t := range page {
			ids = append(ids, t.Tenant)
		}
		if next == "" {
			return ids
		}
		cursor = next
	}
}

func (f *fixture) scopes() (scopes []ledger.Scope) {
	f.t.Helper()
	require.NoError(f.t, f.Scopes(f.t.Context(), func(s ledger.Scope) error {
		scopes = append(scopes, s)
		return nil
	}))
	return scopes
}

func pointers(t *testing.T, err error) (at []string) {
	t.Helper()
	var invalid *tenants.InvalidError
	require.ErrorAs(t, err, &invalid)
	for _, p := range invalid.Problems {
		require.NotEmpty(t, p.Reason)
		at = append(at, p.Pointer)
	}
	return at
}

func ptr[T any](v T) *T { return &v }
