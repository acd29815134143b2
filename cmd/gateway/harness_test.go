package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/api/apitest"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/manifest"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/strictjson"
	"holdfast.dev/gateway/internal/vendortest"
)

// The whole program is booted by these tests: in process, listening on port 0,
// or as a process of its own (process_test.go). What a vendor got is counted at
// its socket.

const (
	testAdminKey = "test-platform-admin-key-0123456789abcdef"
	// sentinel is the vendor credential of every test; it must occur nowhere.
	sentinel = "SENTINEL-credential-f7c1e0"
)

// testSecretKey is 32 bytes in base64.
var testSecretKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		main()
		return
	}
	if os.Getenv(noiseEnv) != "" {
		makeNoise(os.Stdin, os.Stdout)
		return
	}
	os.Exit(func() int {
		redisstore.RouteLibraryLog(slog.New(slog.DiscardHandler))
		code := m.Run()
		redisShared.stop()
		if err := goleak.Find(
			goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"), // the agents' own client
			goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		); code == 0 && err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

// redisShared is one durable Redis for the tests that leave it as they found it.
var redisShared sharedRedis

type sharedRedis struct {
	once   sync.Once
	dir    string
	server *redistest.Server
	err    error
}

func (r *sharedRedis) url(t testing.TB) string {
	t.Helper()
	r.once.Do(func() {
		// Not t.TempDir: it outlives the test that needs it first.
		if r.dir, r.err = os.MkdirTemp("", "gateway-redis-"); r.err != nil { //nolint:usetesting // see above
			return
		}
		if r.server, r.err = redistest.Launch(r.dir, redistest.Durable()...); r.err != nil {
			return
		}
		r.err = redisstore.Init(context.Background(), redisstore.Options{URL: r.server.URL()})
	})
	require.NoError(t, r.err)
	return r.server.URL()
}

func (r *sharedRedis) stop() {
	if r.server != nil {
		_ = r.server.Kill()
	}
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// onBothStores runs a test on the embedded store and on Redis, side by side.
func onBothStores(t *testing.T, run func(t *testing.T, cfg Config)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		cfg := testConfig(t)
		cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
		run(t, cfg)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		cfg := testConfig(t)
		cfg.Store = redisShared.url(t)
		run(t, cfg)
	})
}

func testConfig(t testing.TB) Config {
	cfg := defaultConfig()
	cfg.Listen, cfg.AdminListen = "127.0.0.1:0", "127.0.0.1:0"
	cfg.AdminKeys, cfg.SecretKey = []string{testAdminKey}, testSecretKey
	cfg.EgressAllow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	cfg.ConnectorsDir = connectorsDir(t)
	cfg.DrainTimeout = 5 * time.Second
	cfg.compile = compiled.compile
	return cfg
}

// compiled keeps what manifests compile to. A connector is pure, so the many
// gateways of these tests can share it; compiling the built-in ones again for
// each would be most of what they do.
var compiled compileCache

type compileCache struct{ bySum sync.Map }

func (c *compileCache) compile(text []byte) (connectors.Connector, error) {
	sum := sha256.Sum256(text)
	if known, ok := c.bySum.Load(sum); ok {
		return known.(connectors.Connector), nil
	}
	compiler, err := manifest.NewCompiler()
	if err != nil {
		return nil, err
	}
	made, err := compiler.Compile(text)
	if err != nil {
		return nil, err
	}
	c.bySum.Store(sum, made)
	return made, nil
}

// connectorsDir writes the connectors of these tests into a folder of their own.
func connectorsDir(t testing.TB) string {
	dir := t.TempDir()
	for name, manifest := range testManifests() {
		writeManifest(t, dir, name, "1.0.0", manifest)
	}
	return dir
}

func writeManifest(t testing.TB, dir, name, version, manifest string) {
	t.Helper()
	folder := filepath.Join(dir, name, version)
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "connector.yaml"), []byte(manifest), 0o644))
}

// testManifests are a vendor whose status decides, and one whose body does.
func testManifests() map[string]string {
	const form = `
apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: %s, version: 1.0.0}
base_url: {allow: ["https://vendor.example"]}
auth: {type: bearer, prefix: Bearer, secret: token}
headers: {X-Idempotency-Key: fixed}
actions:
  create:
    effect: create
    input: {type: object, additionalProperties: false, required: [n], properties: {n: {type: integer}, pad: {type: string}}}
    idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 24h, strength: documented}
    request: {method: POST, path: /things, encoding: json, body: {n: {$: params.n}, pad: {$opt: "params.?pad"}}}
    timeout: %s
    outcomes:
      - {when: '%s', is: succeeded}
      - {when: 'status in [400, 404, 409, 413, 422]', is: refused}
      - {when: 'status == 429', is: retryable, retry_after: 'headers["retry-after"]'}
      - {when: 'status in [401, 403]', is: retryable, reason: credential}
    check: []
  remove:
    effect: delete
    input: {type: object, additionalProperties: false, required: [n], properties: {n: {type: string}}}
    idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 24h, strength: documented}
    request: {method: DELETE, path: "/things/{params.n}", encoding: none}
    timeout: %s
    outcomes:
      - {when: '%s', is: succeeded}
    check: []
`
	make := func(name, success string) string {
		return fmt.Sprintf(form, name, "5s", success, "5s", success)
	}
	return map[string]string{
		"probe":      make("probe", "status >= 200 && status < 300"),
		"probe-body": make("probe-body", "status >= 200 && status < 300 && has(body.arrival)"),
		"probe-fast": strings.ReplaceAll(make("probe-fast", "status >= 200 && status < 300"), "timeout: 5s", "timeout: 300ms"),
		"query": strings.Replace(make("query", "status == 200"),
			"{type: bearer, prefix: Bearer, secret: token}", "{type: api_key, in: query, name: key, secret: token}", 1),
		"probe-tested": strings.Replace(make("probe-tested", "status == 200"), "\nactions:",
			"\ntest: {request: {method: GET, path: /self}, ok: 'status == 200 && body.ok'}\nactions:", 1),
		"probe-marked": strings.Replace(make("probe-marked", "status == 200"), "body: {n: {$: params.n},", "body: {n: {$: params.n}, m: {$: op.marker},", 1),
		"probe-slow":   strings.ReplaceAll(make("probe-slow", "status >= 200 && status < 300"), "timeout: 5s", "timeout: 60s"),
	}
}

// logs collects what the gateway logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// boot starts the gateway in this process.
func boot(t testing.TB, cfg Config) (*App, *logs) {
	t.Helper()
	out := &logs{}
	app, err := open(t.Context(), cfg, slog.New(slog.NewJSONHandler(out, nil)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, app.Close()) })
	require.NoError(t, app.Start())
	return app, out
}

// agent speaks to a gateway as one tenant.
type agent struct {
	t    testing.TB
	base string
	key  string
	name string // of the tenant
}

var (
	tenantMu  sync.Mutex
	tenantSeq int
)

func newTenantName() string {
	tenantMu.Lock()
	defer tenantMu.Unlock()
	tenantSeq++
	return fmt.Sprintf("t%d-%d", os.Getpid(), tenantSeq)
}

// newAgent makes a tenant with a key for everything.
func newAgent(t testing.TB, base string) *agent {
	t.Helper()
	a := &agent{t: t, base: base, name: newTenantName()}
	admin := &agent{t: t, base: base, key: testAdminKey}
	admin.must(201, "POST", "/v1/tenants", map[string]any{"id": a.name})
	made := admin.must(201, "POST", "/v1/tenants/"+a.name+"/keys",
		map[string]any{"label": "test", "scopes": []string{"do", "read", "resolve", "manage"}})
	a.key = made.text("key")
	return a
}

// at is the same agent at another replica.
func (a *agent) at(base string) *agent {
	b := *a
	b.base = base
	return &b
}

// connect makes a connection to a vendor at an address.
func (a *agent) connect(name, connector, baseURL string) {
	a.t.Helper()
	a.must(201, "PUT", "/v1/connections/"+name, map[string]any{
		"connector": connector, "base_url": baseURL, "credentials": map[string]string{"token": sentinel},
	})
}

type reply struct {
	t      testing.TB
	status int
	header http.Header
	raw    []byte
	body   map[string]any
}

func (a *agent) send(ctx context.Context, method, path string, body any, header map[string]string) (reply, error) {
	var payload []byte
	switch b := body.(type) {
	case nil:
	case string:
		payload = []byte(b)
	default:
		var err error
		if payload, err = json.Marshal(b); err != nil {
			return reply{}, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, bytes.NewReader(payload))
	if err != nil {
		return reply{}, err
	}
	req.GetBody = nil // so that the agent's own client repeats nothing
	req.Header.Set("Authorization", "Bearer "+a.key)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	raw, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return reply{}, err
	}
	// Every answer of the real program is held against openapi.yaml.
	if path != "/metrics" {
		if err := apitest.Check(req, resp, raw); err != nil {
			a.t.Errorf("%s %s: %v", method, path, err)
		}
	}
	r := reply{t: a.t, status: resp.StatusCode, header: resp.Header, raw: raw}
	if strings.HasSuffix(resp.Header.Get("Content-Type"), "json") && !strings.HasSuffix(resp.Header.Get("Content-Type"), "ndjson") {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&r.body); err != nil {
			return r, fmt.Errorf("answer is not JSON: %w: %s", err, raw)
		}
	}
	return r, nil
}

func (a *agent) call(method, path string, body any, header ...string) reply {
	a.t.Helper()
	h := map[string]string{}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	r, err := a.send(a.t.Context(), method, path, body, h)
	require.NoError(a.t, err)
	return r
}

func (a *agent) must(status int, method, path string, body any) reply {
	a.t.Helper()
	r := a.call(method, path, body)
	require.Equal(a.t, status, r.status, "%s %s: %s", method, path, r.raw)
	return r
}

// doBody is the JSON of a `do`.
func doBody(connection, action, body string, extra ...string) string {
	more := ""
	if len(extra) > 0 {
		more = "," + strings.Join(extra, ",")
	}
	return fmt.Sprintf(`{"connection":%q,"action":%q,"body":%s%s}`, connection, action, body, more)
}

func (a *agent) do(connection, action, body string, extra ...string) reply {
	a.t.Helper()
	return a.call("POST", "/v1/do", doBody(connection, action, body, extra...))
}

func (r reply) text(path string) string {
	r.t.Helper()
	var v any = r.body
	for part := range strings.SplitSeq(path, ".") {
		m, _ := v.(map[string]any)
		v = m[part]
	}
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// is insists on a status and a code (of a problem) or a state (of a success).
func (r reply) is(status int, word string) reply {
	r.t.Helper()
	require.Equal(r.t, status, r.status, "%s", r.raw)
	got := r.text("code")
	if status < 300 {
		got = r.text("state")
	}
	require.Equal(r.t, word, got, "%s", r.raw)
	return r
}

func (r reply) fresh() reply {
	r.t.Helper()
	require.Equal(r.t, "false", r.header.Get("Idempotent-Replayed"), "%s", r.raw)
	return r
}

func (r reply) replayed() reply {
	r.t.Helper()
	require.Equal(r.t, "true", r.header.Get("Idempotent-Replayed"), "%s", r.raw)
	require.Equal(r.t, "true", r.text("replayed"), "%s", r.raw)
	return r
}

func (r reply) retryAfter() int {
	r.t.Helper()
	n, err := strconv.Atoi(r.header.Get("Retry-After"))
	require.NoError(r.t, err, "Retry-After: %s", r.raw)
	require.GreaterOrEqual(r.t, n, 1)
	require.LessOrEqual(r.t, n, 300)
	return n
}

// events lists the audit events of an action, oldest first.
func (a *agent) events(query string) []string {
	a.t.Helper()
	r := a.must(200, "GET", "/v1/audit?limit=200&"+query, nil)
	var out []string
	rows, _ := r.body["data"].([]any)
	for _, row := range rows {
		m, _ := row.(map[string]any)
		out = append(out, fmt.Sprint(m["event"]))
	}
	return out
}

// eventually waits for a condition that other goroutines or processes make
// true, and fails if they do not within the time. The condition runs on the
// test's own goroutine, so it may insist on things.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for until := time.Now().Add(within); !ok(); <-tick.C {
		require.True(t, time.Now().Before(until), "in %s: %s", within, what)
	}
}

// gated is a vendor's behaviour that waits for the gate to be closed.
func gated(gate <-chan struct{}, then vendortest.Behaviour) vendortest.Behaviour {
	return func(c *vendortest.Call) {
		select {
		case <-gate:
			then(c)
		case <-c.Done(): // the test has ended
		}
	}
}

// rawMember returns the exact bytes of a member of a JSON object.
func rawMember(t testing.TB, raw []byte, name string) string {
	t.Helper()
	members, err := strictjson.Members(raw)
	require.NoError(t, err)
	for _, m := range members {
		if m.Name == name {
			return string(m.Value)
		}
	}
	return ""
}
