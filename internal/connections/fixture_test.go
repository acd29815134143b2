package connections_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/trail"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sentinel is the credential that must not be found anywhere.
const sentinel = "sk_live_S3NT1NEL-do-not-leak"

// fixture is a book over a real store in memory, and the words the tests are
// written in.
type fixture struct {
	*testing.T
	*connections.Book
	store  *faulty
	caller audit.Caller
	tenant ledger.Scope
	clock  *atomic.Int64 // added to the store's time, in nanoseconds

	asked   []connections.Spec // what Validate was asked about
	refusal error              // what it answered
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{
		T: t, tenant: ledger.ScopeOf("acme"), clock: &atomic.Int64{},
		caller: audit.Caller{Tenant: "acme", Actor: audit.Actor{Kind: audit.KindKey, KeyID: "key1"}, Front: "rest", RequestID: "req_1"},
	}
	db, err := pebblestore.Open("store", pebblestore.Options{
		FS: vfs.NewMem(), Clock: func() time.Time { return time.Now().Add(time.Duration(f.clock.Load())) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	f.store = &faulty{Store: db}
	f.Book = f.book(ring(t, seal.Generate()))
	return f
}

func ring(t testing.TB, keys string) *seal.Ring {
	t.Helper()
	r, err := seal.Parse(keys)
	require.NoError(t, err)
	return r
}

// book returns another book over the same store.
func (f *fixture) book(s connections.Sealer) *connections.Book {
	f.Helper()
	b, err := connections.NewBook(connections.Config{Store: f.store, Sealer: s, Validate: func(s connections.Spec) error {
		f.asked = append(f.asked, s)
		return f.refusal
	}})
	require.NoError(f, err)
	return b
}

func stripe() connections.Spec {
	return connections.Spec{
		Connector: "stripe@1", Config: []byte(`{"site":"eu","n":1.10}`), BaseURL: "https://api.stripe.com",
		Credentials: connections.Credentials{"api_key": sentinel},
	}
}

func on(b bool) *bool { return &b }

// put changes a connection of the tenant and expects that to succeed.
func (f *fixture) put(name string, spec connections.Spec) connections.Connection {
	f.Helper()
	c, _, err := f.Put(f.Context(), f.caller, f.tenant, name, spec)
	require.NoError(f, err)
	return c
}

func (f *fixture) get(name string) connections.Connection {
	f.Helper()
	c, err := f.Get(f.Context(), f.tenant, name)
	require.NoError(f, err)
	return c
}

func (f *fixture) delete(name string, unsettled func(context.Context, ledger.Scope, string) (bool, error)) error {
	f.Helper()
	return f.Delete(f.Context(), f.caller, f.tenant, name, unsettled)
}

func settled(context.Context, ledger.Scope, string) (bool, error)  { return false, nil }
func inFlight(context.Context, ledger.Scope, string) (bool, error) { return true, nil }

// rows returns the tenant's audit rows, oldest first.
func (f *fixture) rows() []audit.Row {
	f.Helper()
	found, next, err := trail.New(f.store, nil).Query(f.Context(), f.tenant, audit.Filter{}, trail.Page{Limit: trail.MaxPage})
	require.NoError(f, err)
	require.Empty(f, next)
	rows := make([]audit.Row, len(found))
	for i, e := range found {
		require.False(f, e.Unreadable)
		rows[i] = e.Row
	}
	return rows
}

func (f *fixture) events() []audit.Event {
	f.Helper()
	events := []audit.Event{}
	for _, r := range f.rows() {
		events = append(events, r.Event)
	}
	return events
}

// raw returns what is stored under a connection's name.
func (f *fixture) raw(scope ledger.Scope, name string) ledger.Value {
	f.Helper()
	key := ledger.Key{Kind: ledger.Connection, ID: name}
	snap, err := f.store.Read(f.Context(), scope, ledger.Fetch{Key: key})
	require.NoError(f, err)
	v, ok := snap.Get(key)
	require.True(f, ok)
	return v
}

// overwrite changes stored bytes behind the book's back.
func (f *fixture) overwrite(scope ledger.Scope, name string, data []byte) {
	f.Helper()
	res, err := f.store.Apply(f.Context(), scope, ledger.Step{
		Nonce: ledger.NewNonce(), At: f.store.Now(),
		Put: []ledger.Put{{Key: ledger.Key{Kind: ledger.Connection, ID: name}, Data: data}},
	})
	require.NoError(f, err)
	require.True(f, res.Applied)
}

// claim is the step of a new write on a connection, as the rules of a write's
// life make it: it stands on the version its request was planned from.
func (f *fixture) claim(c connections.Connection, id string) ledger.Step {
	now := f.store.Now()
	return ledger.Step{
		Nonce: ledger.NewNonce(), At: now,
		Expect: []ledger.Expect{{Key: ledger.Key{Kind: ledger.Connection, ID: c.Name}, Version: c.Version}},
		Put:    []ledger.Put{{Key: ledger.Key{Kind: ledger.Action, ID: id}, Data: []byte(c.ID)}},
		Index:  []ledger.Entry{{Index: ledger.ByLease, Score: now, Member: id}},
	}
}

func (f *fixture) claims(c connections.Connection, id string) bool {
	f.Helper()
	res, err := f.store.Apply(f.Context(), f.tenant, f.claim(c, id))
	require.NoError(f, err)
	return res.Applied
}

var errLost = errors.New("test: " + ledger.ErrUnavailable.Error())

// faulty is a store whose Apply can be told to fail, before or after the step.
type faulty struct {
	ledger.Store
	before, after func(ledger.Step) error
	seen          []ledger.Step
	record        bool
}

func (s *faulty) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if s.record {
		s.seen = append(s.seen, step)
	}
	if s.before != nil {
		if err := s.before(step); err != nil {
			return ledger.Result{}, errors.Join(errLost, ledger.ErrUnavailable)
		}
	}
	res, err := s.Store.Apply(ctx, scope, step)
	if err == nil && s.after != nil {
		if err := s.after(step); err != nil {
			return ledger.Result{}, errors.Join(errLost, ledger.ErrUnavailable)
		}
	}
	return res, err
}

func always(ledger.Step) error { return errLost }
