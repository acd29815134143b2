package actions_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/connectortest"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/wire"
)

const (
	lease  = 30 * time.Second
	window = 24 * time.Hour
	// token is the credential of the only connection.
	token = "tok_3fb27a91c04e"
)

var scope = ledger.ScopeOf("ten_1")

// fixture is a service over a store in memory, with a stub where the vendor is.
type fixture struct {
	*testing.T
	clock    *fakeClock
	boot     *fakeBoot
	store    *hookStore
	claims   *dedupe.Claims
	vendor   *vendor
	fake     *connectortest.Fake
	accounts *accounts
	catalog  *catalog
	keys     *keys
	ready    error
	log      *syncBuffer
	svc      *actions.Service
}

type option func(*fixture, *dedupe.Config, *actions.Config)

// shortLease makes renewals come often, on real time: the store's clock too.
func shortLease(f *fixture, d *dedupe.Config, c *actions.Config) {
	d.Lease = 300 * time.Millisecond
	c.Boot = nil
}

func newFixture(t *testing.T, opts ...option) *fixture {
	t.Helper()
	f := &fixture{T: t, clock: newFakeClock(), boot: &fakeBoot{}, vendor: &vendor{}, fake: connectortest.NewFake(), log: &syncBuffer{}}
	real := false
	for _, o := range opts {
		d, c := &dedupe.Config{}, &actions.Config{Boot: f.boot.now}
		o(f, d, c)
		real = real || d.Lease != 0
	}
	clock := f.clock.Now
	if real {
		clock = time.Now
	}
	under, err := pebblestore.Open("store", pebblestore.Options{Clock: clock, FS: vfs.NewMem()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = under.Close() })
	f.store = &hookStore{Store: under}
	ring, err := seal.Parse(seal.Generate())
	require.NoError(t, err)
	f.accounts = &accounts{
		conn:  connections.Connection{ID: "con_1", Name: "billing", Connector: "fake@1"},
		creds: map[string]string{"token": token},
	}
	f.catalog = &catalog{connector: f.fake, claimable: true}
	f.keys = &keys{}
	d := dedupe.Config{Store: f.store, Lease: lease, History: 30 * 24 * time.Hour}
	c := actions.Config{
		Keys: f.keys, Accounts: f.accounts, Catalog: f.catalog, Sealer: ring, Sender: f.vendor,
		Journal: audit.NewLog(f.store), Ready: func() error { return f.ready },
		Window: window, MaxResult: 1 << 20, Metrics: actions.NewMetrics(prometheus.NewRegistry()),
		Logger: slog.New(slog.NewTextHandler(f.log, nil)), Boot: f.boot.now,
	}
	for _, o := range opts {
		o(f, &d, &c)
	}
	f.claims = dedupe.New(d)
	c.Claims = f.claims
	f.svc, err = actions.New(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		f.svc.Close(ctx)
	})
	return f
}

// request is a `do` of the fixture's tenant.
func (f *fixture) request(body string, change ...func(*actions.Request)) actions.Request {
	r := actions.Request{
		Principal: tenants.Principal{
			Tenant: "acme", TenantID: "ten_1", Scope: scope, KeyID: "key_1",
			Scopes: []tenants.KeyScope{tenants.ScopeDo},
		},
		Connection: "billing", Action: "create_thing", Body: []byte(body), RequestID: "req_1", Front: "rest",
	}
	for _, c := range change {
		c(&r)
	}
	return r
}

// sweeping writes the rows of a sweep by hand.
func sweeping(t dedupe.Transition) []byte {
	return audit.Row{Event: audit.Event(t.Event), At: t.At, Actor: audit.System(), ActionID: t.Record.ID.String()}.Encode()
}

func withKey(key string) func(*actions.Request)       { return func(r *actions.Request) { r.Key = key } }
func withWait(d time.Duration) func(*actions.Request) { return func(r *actions.Request) { r.Wait = d } }
func retryRefused(r *actions.Request)                 { r.RetryRefused = true }
func allowDuplicate(r *actions.Request)               { r.AllowDuplicate = true }
func dryRun(r *actions.Request)                       { r.DryRun = true }
func suspended(r *actions.Request)                    { r.Principal.Suspended = true }

func (f *fixture) do(r actions.Request) (actions.Reply, error) { return f.svc.Do(f.Context(), r) }

// succeeds runs a `do` that must be answered with success.
func (f *fixture) succeeds(body string, change ...func(*actions.Request)) actions.Reply {
	f.Helper()
	reply, err := f.do(f.request(body, change...))
	require.NoError(f, err)
	return reply
}

// fails runs a `do` that must be answered with this code.
func (f *fixture) fails(code actions.Code, body string, change ...func(*actions.Request)) *actions.Error {
	f.Helper()
	reply, err := f.do(f.request(body, change...))
	return f.failed(code, reply, err)
}

func (f *fixture) failed(code actions.Code, reply actions.Reply, err error) *actions.Error {
	f.Helper()
	var e *actions.Error
	require.ErrorAs(f, err, &e)
	require.Equal(f, code, e.Code, e.Detail)
	require.Equal(f, actions.Reply{}, reply, "an error comes alone")
	if e.RetryAfter != 0 {
		require.GreaterOrEqual(f, e.RetryAfter, time.Second)
		require.LessOrEqual(f, e.RetryAfter, 300*time.Second)
	}
	return e
}

// answer is what one Do came to.
type answer struct {
	reply actions.Reply
	err   error
}

// start runs a Do beside the test.
func (f *fixture) start(ctx context.Context, r actions.Request) <-chan answer {
	out := make(chan answer, 1)
	go func() {
		reply, err := f.svc.Do(ctx, r)
		out <- answer{reply, err}
	}()
	return out
}

func (f *fixture) get(id dedupe.ActionID) *dedupe.Record {
	f.Helper()
	found, err := f.claims.Get(f.Context(), scope, id)
	require.NoError(f, err)
	return found.Record
}

// only returns the one action there is.
func (f *fixture) only() *dedupe.Record {
	f.Helper()
	found, _, err := f.claims.List(f.Context(), scope, dedupe.Filter{}, "", 10)
	require.NoError(f, err)
	require.Len(f, found, 1)
	return found[0].Record
}

// rows decodes the audit rows so far.
func (f *fixture) rows() []audit.Row {
	f.Helper()
	stored, err := f.store.Rows(f.Context(), scope, ledger.RowRange{Limit: 1000})
	require.NoError(f, err)
	out := make([]audit.Row, len(stored))
	for i, s := range stored {
		out[i], err = audit.Decode(s.Data)
		require.NoError(f, err)
	}
	return out
}

func (f *fixture) events() []string {
	f.Helper()
	var out []string
	for _, r := range f.rows() {
		out = append(out, string(r.Event))
	}
	return out
}

// eventually waits for something another goroutine does.
func (f *fixture) eventually(what string, ok func() bool) {
	f.Helper()
	tick, deadline := time.NewTicker(2*time.Millisecond), time.After(10*time.Second)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			f.Fatal("it never was so: " + what)
		}
	}
}

func receive[T any](t testing.TB, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(10 * time.Second):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// fakeClock is a time that a test sets.
type fakeClock struct {
	mu sync.Mutex
	t  time.Time
}

func newFakeClock() *fakeClock {
	return &fakeClock{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *fakeClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// fakeBoot is the clock that counts suspension.
type fakeBoot struct {
	mu sync.Mutex
	t  time.Duration
}

func (b *fakeBoot) now() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.t
}

func (b *fakeBoot) set(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t = d
}

// vendor stands where the wire is. It asks the permit as the wire does, and
// counts what it would have put on the wire.
type vendor struct {
	mu    sync.Mutex
	asked int
	sent  []wire.Request

	panics bool
	before func()                                                    // ahead of the permit
	answer func(ctx context.Context, req wire.Request) wire.Exchange // nil: 201 {"ok":true}
}

func (v *vendor) Send(ctx context.Context, req wire.Request, permit wire.Permit) wire.Exchange {
	v.mu.Lock()
	v.asked++
	v.mu.Unlock()
	if v.panics {
		panic("in the sender")
	}
	if v.before != nil {
		v.before()
	}
	if permit != nil && permit() != nil {
		return wire.Exchange{Phase: wire.NotSent, Reason: wire.ReasonNotPermitted}
	}
	v.mu.Lock()
	v.sent = append(v.sent, req)
	v.mu.Unlock()
	if v.answer != nil {
		return v.answer(ctx, req)
	}
	return answered(201, "application/json", `{"ok":true}`)
}

func (v *vendor) calls() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.asked
}

func (v *vendor) sends() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.sent)
}

func (v *vendor) says(x wire.Exchange) {
	v.answer = func(context.Context, wire.Request) wire.Exchange { return x }
}

// stalls makes the vendor work until it is released, or its caller cuts it.
func (v *vendor) stalls() (working <-chan struct{}, release func(wire.Exchange)) {
	began := make(chan struct{}, 16)
	end := make(chan wire.Exchange, 1)
	v.answer = func(ctx context.Context, _ wire.Request) wire.Exchange {
		began <- struct{}{}
		select {
		case x := <-end:
			return x
		case <-ctx.Done():
			return wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonCanceled}
		}
	}
	return began, func(x wire.Exchange) { end <- x }
}

func answered(status int, contentType, body string) wire.Exchange {
	x := wire.Exchange{Phase: wire.Answered, Status: status, Header: http.Header{}, Duration: 3 * time.Millisecond}
	if contentType != "" {
		x.Header.Set("Content-Type", contentType)
	}
	x.Body = wire.Body{Bytes: []byte(body), State: wire.Complete, Size: int64(len(body))}
	return x
}

func in(x wire.Exchange, state wire.BodyState) wire.Exchange {
	x.Body.State = state
	if state == wire.TooLarge {
		x.Body.Bytes = nil
	}
	return x
}

type accounts struct {
	mu       sync.Mutex // guards more
	conn     connections.Connection
	more     map[string]connections.Connection // by name, where there are others
	creds    map[string]string
	getErr   error
	credsErr error
	stale    *connections.Connection // what is remembered, until it is forgotten
	stubborn bool                    // it is remembered again at once
}

func (a *accounts) Recall(ctx context.Context, scope ledger.Scope, name string) (connections.Connection, bool, error) {
	a.mu.Lock()
	stale := a.stale
	a.mu.Unlock()
	if stale != nil {
		return *stale, true, nil
	}
	c, err := a.Get(ctx, scope, name)
	return c, false, err
}

func (a *accounts) Forget(ledger.Scope, string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stubborn {
		a.stale = nil
	}
}

func (a *accounts) Get(_ context.Context, _ ledger.Scope, name string) (connections.Connection, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.more[name]; ok {
		return c, nil
	}
	return a.conn, a.getErr
}

func (a *accounts) Credentials(connections.Connection) (map[string]string, error) {
	return a.creds, a.credsErr
}

type catalog struct {
	connector connectors.Connector
	claimable bool
	err       error
	missing   string // a connector that is not there
}

func (c *catalog) Lookup(_ context.Context, pin string) (connectors.Loaded, error) {
	if pin == c.missing {
		return connectors.Loaded{}, connectors.ErrUnknownConnector
	}
	return connectors.Loaded{Connector: c.connector, Claimable: c.claimable}, c.err
}

func (c *catalog) Exact(context.Context, connectors.Sum) (connectors.Connector, error) {
	return c.connector, c.err
}

type keys struct {
	mu        sync.Mutex
	forgotten []string
}

func (k *keys) Forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forgotten = append(k.forgotten, id)
}

// hookStore lets a test stand between the rules and the store.
type hookStore struct {
	ledger.Store
	mu   sync.Mutex
	hook func(kind string, next func() (ledger.Result, error)) (ledger.Result, error)
}

// on sets the hook; kind is the event of the step's last row, or "renew" or
// "void" for steps that have none.
func (h *hookStore) on(hook func(kind string, next func() (ledger.Result, error)) (ledger.Result, error)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hook = hook
}

func (h *hookStore) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	next := func() (ledger.Result, error) { return h.Store.Apply(ctx, scope, step) }
	h.mu.Lock()
	hook := h.hook
	h.mu.Unlock()
	if hook == nil {
		return next()
	}
	return hook(kindOf(step), next)
}

func kindOf(step ledger.Step) string {
	switch {
	case len(step.Rows) > 0:
		row, err := audit.Decode(step.Rows[len(step.Rows)-1])
		if err != nil {
			return "unreadable"
		}
		return string(row.Event)
	case len(step.Void) > 0:
		return "void"
	default:
		return "renew"
	}
}

// fail refuses the next n steps of a kind without applying them.
func (h *hookStore) fail(kind string, n int) {
	var mu sync.Mutex
	h.on(func(k string, next func() (ledger.Result, error)) (ledger.Result, error) {
		mu.Lock()
		hit := k == kind && n != 0
		if hit {
			n--
		}
		mu.Unlock()
		if hit {
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return next()
	})
}

// deaf applies the next n steps of a kind and loses the reply.
func (h *hookStore) deaf(kind string, n int) {
	var mu sync.Mutex
	h.on(func(k string, next func() (ledger.Result, error)) (ledger.Result, error) {
		res, err := next()
		mu.Lock()
		defer mu.Unlock()
		if k == kind && n != 0 && res.Applied {
			n--
			return ledger.Result{}, ledger.ErrUnavailable
		}
		return res, err
	})
}

var errBroken = errors.New("broken for the test")

// syncBuffer is a log a test can read.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
