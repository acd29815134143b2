package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/api/apitest"
	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/trail"
	"holdfast.dev/gateway/internal/usage"
)

func TestMain(m *testing.M) {
	// After a refusal net/http waits half a second for the client to read it.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// service stands for everything behind the api. A nil function is a call that
// the test does not expect: it panics, which becomes a 500.
type service struct {
	do           func(context.Context, actions.Request) (actions.Reply, error)
	get          func(tenants.Principal, string) (actions.View, error)
	list         func(tenants.Principal, actions.ListFilter, string, int) ([]actions.View, string, error)
	check        func(string, string) (actions.CheckResult, error)
	resolve      func(string, actions.Resolution) (actions.View, error)
	test         func(string) (actions.TestResult, error)
	authenticate func(string) (tenants.Principal, error)
	specs        func() []connectors.Spec
	query        func(ledger.Scope, audit.Filter, trail.Page) ([]audit.Entry, string, error)
	proof        archive.Report
	checkpoints  []archive.Checkpoint
	report       func(ledger.Scope, usage.Query) (usage.Report, error)
	export       func(ledger.Scope, trail.Export, io.Writer) error
	appendRows   func(ledger.Scope, []audit.Row) error // nil: taken
	register     func(audit.Caller, string, string, []byte) (connectors.Spec, bool, error)
	unregister   func(string, string) error
	ready        func() error
	conns        *book
	people       *people
}

func (s *service) Do(ctx context.Context, r actions.Request) (actions.Reply, error) {
	return s.do(ctx, r)
}

func (s *service) TestConnection(_ context.Context, _ tenants.Principal, name, _, _ string) (actions.TestResult, error) {
	return s.test(name)
}

func (s *service) Get(_ context.Context, p tenants.Principal, id string) (actions.View, error) {
	return s.get(p, id)
}

func (s *service) List(_ context.Context, p tenants.Principal, f actions.ListFilter, cursor string, limit int) ([]actions.View, string, error) {
	return s.list(p, f, cursor, limit)
}

func (s *service) Check(_ context.Context, _ tenants.Principal, id, requestID, _ string) (actions.CheckResult, error) {
	return s.check(id, requestID)
}

func (s *service) Resolve(_ context.Context, _ tenants.Principal, id string, r actions.Resolution, _ string) (actions.View, error) {
	return s.resolve(id, r)
}

func (s *service) Specs() []connectors.Spec { return s.specs() }

func (s *service) Register(_ context.Context, c audit.Caller, name, version string, manifest []byte) (connectors.Spec, bool, error) {
	return s.register(c, name, version, manifest)
}

func (s *service) Unregister(_ context.Context, _ audit.Caller, name, version string) error {
	return s.unregister(name, version)
}

func (s *service) Query(_ context.Context, scope ledger.Scope, f audit.Filter, p trail.Page) ([]audit.Entry, string, error) {
	return s.query(scope, f, p)
}

func (s *service) Report(_ context.Context, scope ledger.Scope, q usage.Query) (usage.Report, error) {
	return s.report(scope, q)
}

func (s *service) Verify(context.Context, ledger.Scope) (archive.Report, error) { return s.proof, nil }

func (s *service) Checkpoints(_ context.Context, _ ledger.Scope, before uint64, limit int) ([]archive.Checkpoint, uint64, error) {
	list := slices.DeleteFunc(slices.Clone(s.checkpoints), func(c archive.Checkpoint) bool { return before > 0 && c.Segment >= before })
	if len(list) > limit {
		return list[:limit], list[limit-1].Segment, nil
	}
	return list, 0, nil
}

func (s *service) SigningKeys(context.Context) ([]archive.SigningKey, error) { return nil, nil }

func (s *service) Export(_ context.Context, scope ledger.Scope, e trail.Export, out io.Writer) error {
	return s.export(scope, e, out)
}

func (s *service) Append(_ context.Context, scope ledger.Scope, rows ...audit.Row) error {
	if s.appendRows != nil {
		return s.appendRows(scope, rows)
	}
	return nil
}

// book stands for connections.Book.
type book struct {
	get    func(string) (connections.Connection, error)
	list   func(string, int) ([]connections.Connection, string, error)
	put    func(audit.Caller, string, connections.Spec) (connections.Connection, bool, error)
	remove func(string) error
	kept   []connections.Kept
}

func (b *book) Get(_ context.Context, _ ledger.Scope, name string) (connections.Connection, error) {
	return b.get(name)
}

func (b *book) Kept(_ context.Context, _ connections.Connection) ([]connections.Kept, error) {
	return b.kept, nil
}

func (b *book) List(_ context.Context, _ ledger.Scope, cursor string, limit int) ([]connections.Connection, string, error) {
	return b.list(cursor, limit)
}

func (b *book) Put(_ context.Context, c audit.Caller, _ ledger.Scope, name string, s connections.Spec) (connections.Connection, bool, error) {
	return b.put(c, name, s)
}

func (b *book) Delete(_ context.Context, _ audit.Caller, _ ledger.Scope, name string,
	_ func(context.Context, ledger.Scope, string) (bool, error)) error {
	return b.remove(name)
}

const (
	tenantKey   = "hf_tenant_key"
	readKey     = "hf_read_key"
	platformKey = "platform-admin-key"
)

// maxBody is the most that the gateway of the tests takes.
const maxBody = 2 << 10

// smallest is the least that a `do` can be.
const smallest = `{"connection":"billing","action":"create_invoice"}`

func someTenant(scopes ...tenants.KeyScope) tenants.Principal {
	return tenants.Principal{Scope: ledger.ScopeOf("acme"), Tenant: "acme", TenantID: "t1", KeyID: "k1", Scopes: scopes}
}

// gateway is the api over a stub, and what it logged.
type gateway struct {
	*service
	t      *testing.T
	server *api.Server
	public http.Handler
	logs   *bytes.Buffer
	reg    *prometheus.Registry
}

func newGateway(t *testing.T, changes ...func(*api.Config)) *gateway {
	t.Helper()
	g := &gateway{service: &service{conns: &book{}}, t: t, logs: &bytes.Buffer{}, reg: prometheus.NewRegistry()}
	g.people = &people{service: g.service}
	g.authenticate = func(key string) (tenants.Principal, error) {
		switch key {
		case tenantKey:
			return someTenant(tenants.ScopeDo, tenants.ScopeRead, tenants.ScopeResolve, tenants.ScopeManage), nil
		case readKey:
			return someTenant(tenants.ScopeRead), nil
		case platformKey:
			return tenants.Principal{Platform: true}, nil
		default:
			return tenants.Principal{}, tenants.ErrUnauthenticated
		}
	}
	g.ready = func() error { return nil }
	config := g.config()
	for _, change := range changes {
		change(&config)
	}
	server, err := api.New(config)
	require.NoError(t, err)
	g.server, g.public = server, server.Handler()
	return g
}

func (g *gateway) config() api.Config {
	return api.Config{
		Actions: g.service, Tenants: g.people, Connections: g.conns,
		Unsettled:  func(context.Context, ledger.Scope, string) (bool, error) { return false, nil },
		Connectors: g.service, Registrar: g.service, Audit: g.service, Usage: g.service, Proofs: g.service,
		Ready:   func(context.Context) error { return g.ready() },
		MaxBody: maxBody, Window: 24 * time.Hour,
		Metrics: g.reg, Gatherer: g.reg,
		MCP:    func(http.Handler) http.Handler { return http.NotFoundHandler() },
		Logger: slog.New(slog.NewJSONHandler(g.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// answer is a response that has been held against openapi.yaml.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   []byte
}

// json is the body as a map; numbers keep their digits.
func (a answer) json() map[string]any {
	a.t.Helper()
	var out map[string]any
	dec := json.NewDecoder(bytes.NewReader(a.body))
	dec.UseNumber()
	require.NoError(a.t, dec.Decode(&out), "%s", a.body)
	return out
}

func (a answer) code() string {
	a.t.Helper()
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
	code, _ := a.json()["code"].(string)
	return code
}

// send makes a request with the tenant's key; options change it.
func (g *gateway) send(method, path, body string, options ...func(*http.Request)) answer {
	g.t.Helper()
	return g.sendTo(g.public, method, path, body, options...)
}

func (g *gateway) sendTo(h http.Handler, method, path, body string, options ...func(*http.Request)) answer {
	g.t.Helper()
	var in io.Reader
	if body != "" {
		in = strings.NewReader(body)
	}
	req := httptest.NewRequest(method, path, in)
	req.Header.Set("Authorization", "Bearer "+tenantKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, option := range options {
		option(req)
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, req)
	resp := rec.Result()
	a := answer{t: g.t, status: resp.StatusCode, header: resp.Header, body: rec.Body.Bytes()}
	apitest.Validate(g.t, req, resp, a.body)
	return a
}

func with(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del(name)
		for _, v := range values {
			r.Header.Add(name, v)
		}
	}
}

func as(key string) func(*http.Request) { return with("Authorization", "Bearer "+key) }

// people stands for tenants.Directory.
type people struct {
	get     func(string) (tenants.Tenant, error)
	list    func(string, int) ([]tenants.Tenant, string, error)
	create  func(audit.Caller, tenants.NewTenant) (tenants.Tenant, error)
	update  func(string, tenants.Patch) (tenants.Tenant, error)
	remove  func(string) error
	newKey  func(tenants.Ref, tenants.NewKey) (string, tenants.APIKey, error)
	keys    func(tenants.Ref) ([]tenants.APIKey, string, error)
	revoke  func(tenants.Ref, string) error
	known   func(string) bool
	life    func(id, incarnation string) (tenants.Ref, error)
	service *service
}

func (p *people) FindLife(_ context.Context, id, incarnation string) (tenants.Ref, error) {
	return p.life(id, incarnation)
}

func (p *people) Authenticate(_ context.Context, key string) (tenants.Principal, error) {
	return p.service.authenticate(key)
}

func (p *people) Known(key string) bool { return p.known != nil && p.known(key) }

func (p *people) GetTenant(_ context.Context, id string) (tenants.Tenant, error) { return p.get(id) }

func (p *people) ListTenants(_ context.Context, cursor string, limit int) ([]tenants.Tenant, string, error) {
	return p.list(cursor, limit)
}

func (p *people) CreateTenant(_ context.Context, c audit.Caller, n tenants.NewTenant) (tenants.Tenant, error) {
	return p.create(c, n)
}

func (p *people) UpdateTenant(_ context.Context, _ audit.Caller, id string, patch tenants.Patch) (tenants.Tenant, error) {
	return p.update(id, patch)
}

func (p *people) DeleteTenant(_ context.Context, _ audit.Caller, id string) error {
	return p.remove(id)
}

func (p *people) CreateKey(_ context.Context, _ audit.Caller, ref tenants.Ref, n tenants.NewKey) (string, tenants.APIKey, error) {
	return p.newKey(ref, n)
}

func (p *people) ListKeys(_ context.Context, ref tenants.Ref, _ string, _ int) ([]tenants.APIKey, string, error) {
	return p.keys(ref)
}

func (p *people) RevokeKey(_ context.Context, _ audit.Caller, ref tenants.Ref, id string) error {
	return p.revoke(ref, id)
}
