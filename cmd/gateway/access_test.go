package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	gateway "holdfast.dev/gateway"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/vendortest"
)

// The kinds of keys a request may come with.
const (
	noKey, typo, otherScheme, revoked, expired, deleted = "none", "typo", "other scheme", "revoked", "expired", "of a deleted tenant"

	onlyDo, onlyRead, onlyResolve, onlyManage = "do", "read", "resolve", "manage"

	full, ungranted, suspended, foreign, platformAdmin = "full", "no grant", "suspended", "another tenant's", "platform"
)

// strangers are all that is no key.
func strangers() []string { return []string{noKey, typo, otherScheme, revoked, expired, deleted} }

// members are the keys of tenants that are good.
func goodKeys() []string {
	return []string{onlyDo, onlyRead, onlyResolve, onlyManage, full, ungranted, suspended, foreign}
}

// population is one gateway with keys of every kind. Tenant and other have the
// same connections, keys and writes.
type population struct {
	base   string
	admin  *agent
	tenant *agent // full key of the tenant that the table is about
	other  *agent // full key of another tenant
	asleep *agent // full key of a suspended tenant
	auth   map[string]string
	vendor *vendortest.Vendor

	calls *atomic.Int64 // store round trips
}

// write is the one write each tenant has made before the table begins.
const write = `{"connection":"c","action":"create","body":{"n":1},"idempotency_key":"order-1"}`

func populate(t *testing.T, base string, calls *atomic.Int64) *population {
	p := &population{base: base, calls: calls, auth: map[string]string{}, admin: &agent{t: t, base: base, key: testAdminKey}}
	var served atomic.Int64
	p.vendor = vendortest.New(t, func(c *vendortest.Call) { c.JSON(200, fmt.Sprintf(`{"served":%d}`, served.Add(1))) })
	for _, who := range []**agent{&p.tenant, &p.other, &p.asleep} {
		*who = newAgent(t, base)
		(*who).connect("c", "probe@1", p.vendor.URL())
		(*who).call("POST", "/v1/do", write).is(200, "succeeded").fresh()
	}
	p.admin.must(200, "PATCH", "/v1/tenants/"+p.asleep.name, map[string]any{"suspended": true})
	for _, scope := range []string{onlyDo, onlyRead, onlyResolve, onlyManage} {
		p.auth[scope] = p.newKey(p.tenant, map[string]any{"scopes": []string{scope}}).text("key")
	}
	p.auth[ungranted] = p.newKey(p.tenant, map[string]any{
		"scopes": []string{"do"}, "grants": []any{map[string]any{"connection": "c", "actions": []string{"remove"}}},
	}).text("key")
	p.auth[full], p.auth[foreign], p.auth[suspended], p.auth[platformAdmin] = p.tenant.key, p.other.key, p.asleep.key, testAdminKey

	all := []string{"do", "read", "resolve", "manage"}
	gone := p.newKey(p.tenant, map[string]any{"scopes": all})
	p.admin.must(204, "DELETE", "/v1/tenants/"+p.tenant.name+"/keys/"+gone.text("id"), nil)
	brief := p.newKey(p.tenant, map[string]any{"scopes": all, "expires_at": time.Now().Add(1200 * time.Millisecond).UTC().Format(time.RFC3339Nano)})
	short := newAgent(t, base)
	p.admin.must(204, "DELETE", "/v1/tenants/"+short.name, nil)
	p.auth[revoked], p.auth[expired], p.auth[deleted] = gone.text("key"), brief.text("key"), short.key
	// One letter of the secret, which the checksum gives away.
	wrong := []byte(p.tenant.key)
	if wrong[60] == 'a' {
		wrong[60] = 'b'
	} else {
		wrong[60] = 'a'
	}
	p.auth[typo] = string(wrong)
	for kind, key := range p.auth {
		p.auth[kind] = "Bearer " + key
	}
	p.auth[noKey], p.auth[otherScheme] = "", "Basic "+p.tenant.key
	eventually(t, 5*time.Second, "the key expires", func() bool { return p.ask(t, expired, "GET", "/v1/connections", "").status == 401 })
	return p
}

func (p *population) newKey(of *agent, body map[string]any) reply {
	return p.admin.must(201, "POST", "/v1/tenants/"+of.name+"/keys", body)
}

// ask makes a request with a key of a kind.
func (p *population) ask(t *testing.T, kind, method, path, body string) reply {
	t.Helper()
	auth, known := p.auth[kind]
	require.True(t, known, kind)
	req, err := http.NewRequestWithContext(t.Context(), method, p.base+path, strings.NewReader(body))
	require.NoError(t, err)
	if auth != "" {
		req.Header.Set("Authorization", auth)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	_ = resp.Body.Close()
	r := reply{t: t, status: resp.StatusCode, header: resp.Header, raw: raw}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		require.NoError(t, json.Unmarshal(raw, &r.body))
	}
	return r
}

// want is the one right answer: a status, and the code of a problem.
type want struct {
	status int
	code   string
}

func (w want) check(t *testing.T, r reply, what string) {
	t.Helper()
	code := ""
	if r.status >= 400 {
		code = r.text("code")
	}
	require.Equal(t, w, want{r.status, code}, "%s: %s", what, r.raw)
}

// accessRow is one call of the API. For each kind of key it is answered: with
// done if the key's scope is in may (or the key is the platform's and may says
// so), and forbidden otherwise; except says what else is right.
type accessRow struct {
	method, path string // as openapi.yaml has them
	may          string
	done         want
	body         string
	// target makes the path, about something of an agent's; a call that
	// destroys gets something new each time. nil: the path has no parameter.
	target func(t *testing.T, p *population, of *agent) string
	except map[string]want
	// list: another tenant gets its own things here, and none of the tenant's.
	list bool
}

func accessTable() []accessRow {
	const platform, tenantsOwn = "platform", "do read resolve manage"
	var (
		notFound      = want{404, "not_found"}
		ownActionOnly = map[string]want{onlyDo: notFound, ungranted: notFound, foreign: notFound}
		hidden        = map[string]want{foreign: notFound}
		notHeld       = want{409, "not_held"}
	)
	ofAction := func(suffix string) func(*testing.T, *population, *agent) string {
		return func(_ *testing.T, _ *population, of *agent) string { return "/v1/actions/" + of.action() + suffix }
	}
	ofTenant := func(suffix string) func(*testing.T, *population, *agent) string {
		return func(_ *testing.T, _ *population, of *agent) string { return "/v1/tenants/" + of.name + suffix }
	}
	fresh := func(_ *testing.T, p *population, _ *agent) string {
		return "/v1/tenants/" + newAgent(p.admin.t, p.base).name
	}
	newConnection := func(_ *testing.T, p *population, of *agent) string {
		name := newTenantName()
		of.connect(name, "probe@1", p.vendor.URL())
		return "/v1/connections/" + name
	}
	return []accessRow{
		{method: "POST", path: "/v1/do", may: "do", body: write, done: want{200, ""}, list: true,
			except: map[string]want{ungranted: {403, "forbidden"}}},

		{method: "GET", path: "/v1/actions", may: "do read", done: want{200, ""}, list: true},
		{method: "GET", path: "/v1/actions/{id}", may: "do read", done: want{200, ""}, target: ofAction(""), except: ownActionOnly},
		{method: "POST", path: "/v1/actions/{id}/check", may: "resolve", done: notHeld, target: ofAction("/check"), except: hidden},
		{method: "POST", path: "/v1/actions/{id}/resolve", may: "resolve", done: notHeld, target: ofAction("/resolve"), except: hidden,
			body: `{"outcome":"not_performed"}`},

		{method: "POST", path: "/v1/tenants", may: platform, done: want{409, "already_exists"},
			body: `{"id":"already-there"}`},
		{method: "GET", path: "/v1/tenants", may: platform, done: want{200, ""}},
		{method: "GET", path: "/v1/tenants/{tenant}", may: platform, done: want{200, ""}, target: ofTenant("")},
		{method: "PATCH", path: "/v1/tenants/{tenant}", may: platform, done: want{200, ""}, target: ofTenant(""), body: `{"name":"x"}`},
		{method: "DELETE", path: "/v1/tenants/{tenant}", may: platform, done: want{204, ""}, target: fresh},
		{method: "GET", path: "/v1/tenants/{tenant}/actions", may: platform, done: want{200, ""}, target: ofTenant("/actions")},
		{method: "GET", path: "/v1/tenants/{tenant}/audit", may: platform, done: want{200, ""}, target: ofTenant("/audit")},
		{method: "GET", path: "/v1/tenants/{tenant}/audit/verify", may: platform, done: want{200, ""}, target: ofTenant("/audit/verify")},
		{method: "GET", path: "/v1/tenants/{tenant}/audit/checkpoints", may: platform, done: want{200, ""}, target: ofTenant("/audit/checkpoints")},
		{method: "GET", path: "/v1/tenants/{tenant}/usage", may: platform, done: want{200, ""}, target: ofTenant("/usage?by=connection")},

		{method: "POST", path: "/v1/tenants/{tenant}/keys", may: "platform manage", done: want{201, ""}, target: ofTenant("/keys"),
			body: `{"scopes":["read"]}`, except: hidden},
		{method: "GET", path: "/v1/tenants/{tenant}/keys", may: "platform manage", done: want{200, ""}, target: ofTenant("/keys"), except: hidden},
		{method: "DELETE", path: "/v1/tenants/{tenant}/keys/{id}", may: "platform manage", done: want{204, ""}, except: hidden,
			target: func(_ *testing.T, p *population, of *agent) string {
				return "/v1/tenants/" + of.name + "/keys/" + p.newKey(of, map[string]any{"scopes": []string{"read"}}).text("id")
			}},

		{method: "GET", path: "/v1/connections", may: "do read manage", done: want{200, ""}, list: true},
		{method: "GET", path: "/v1/connections/{name}", may: "do read manage", done: want{200, ""}, target: newConnection, except: hidden},
		{method: "PUT", path: "/v1/connections/{name}", may: "manage", done: want{200, ""}, body: `{"paused":true}`, target: newConnection,
			// Nobody else's is changed: it reads as a new one that names no connector.
			except: map[string]want{foreign: {400, "invalid_request"}}},
		{method: "DELETE", path: "/v1/connections/{name}", may: "manage", done: want{204, ""}, target: newConnection, except: hidden},
		{method: "POST", path: "/v1/connections/{name}/test", may: "manage", done: want{200, ""},
			target: func(t *testing.T, p *population, of *agent) string { return newConnection(t, p, of) + "/test" },
			except: map[string]want{foreign: {404, "not_found"}, suspended: {403, "tenant_suspended"}}},

		{method: "GET", path: "/v1/tools", may: tenantsOwn, done: want{200, ""}, list: true},

		{method: "GET", path: "/v1/connectors", may: tenantsOwn, done: want{200, ""}},
		{method: "GET", path: "/v1/connectors/{name}", may: tenantsOwn, done: want{200, ""},
			target: func(*testing.T, *population, *agent) string { return "/v1/connectors/probe@1" }},
		// A manifest is YAML, and nothing uses the version that is to go.
		{method: "PUT", path: "/v1/connectors/{name}/{version}", may: platform, done: want{415, "unsupported_media_type"}, body: `{}`,
			target: func(*testing.T, *population, *agent) string { return "/v1/connectors/probe/9.9.9" }},
		{method: "DELETE", path: "/v1/connectors/{name}/{version}", may: platform, done: want{404, "not_found"},
			target: func(*testing.T, *population, *agent) string { return "/v1/connectors/probe/9.9.9" }},

		{method: "GET", path: "/v1/audit", may: "platform read", done: want{200, ""}, list: true},

		{method: "GET", path: "/v1/audit/verify", may: "platform read", done: want{200, ""}, list: true},
		{method: "GET", path: "/v1/audit/checkpoints", may: "platform read", done: want{200, ""}, list: true},

		{method: "GET", path: "/v1/usage", may: "read", done: want{200, ""}, list: true},

		// Whoever may speak at all is told that this is no message.
		{method: "POST", path: "/mcp", may: tenantsOwn, done: want{400, ""}, body: `{}`},
	}
}

// action is the id of the agent's one write.
func (a *agent) action() string {
	a.t.Helper()
	r := a.must(200, "GET", "/v1/actions?limit=200", nil)
	list, _ := r.body["data"].([]any)
	oldest, _ := list[len(list)-1].(map[string]any)
	return fmt.Sprint(oldest["id"])
}

// want is the right answer for a kind of key.
func (row accessRow) want(kind string) want {
	scopes := map[string]string{
		onlyDo: "do", onlyRead: "read", onlyResolve: "resolve", onlyManage: "manage", ungranted: "do",
		full: "do read resolve manage", suspended: "do read resolve manage", foreign: "do read resolve manage", platformAdmin: "platform",
	}[kind]
	if w, special := row.except[kind]; special {
		return w
	}
	for scope := range strings.SplitSeq(scopes, " ") {
		if slices.Contains(strings.Split(row.may, " "), scope) {
			return row.done
		}
	}
	if slices.Contains(strangers(), kind) {
		return want{401, "unauthenticated"}
	}
	return want{403, "forbidden"}
}

var requestIDForm = regexp.MustCompile(`req_[0-9A-Z]{26}`)

// plain is an answer without what is in each another.
func plain(r reply) string {
	return fmt.Sprint(r.status) + requestIDForm.ReplaceAllString(string(r.raw), "req")
}

// TestEveryRouteWithEveryKey is the table of the whole API: every call that
// openapi.yaml describes on the public listener, with every kind of key there
// is, has the one right answer.
func TestEveryRouteWithEveryKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		cfg.AddressRequests = 0 // strangers ask for a lot here
		app, _ := boot(t, cfg)
		p := populate(t, app.URL(), nil)
		_ = p.admin.call("POST", "/v1/tenants", map[string]any{"id": "already-there"})
		rows := accessTable()
		requireWholeAPI(t, rows)
		for _, row := range rows {
			what := row.method + " " + row.path
			denial := ""
			for _, kind := range slices.Concat(strangers(), goodKeys(), []string{platformAdmin}) {
				of := p.tenant
				if kind == suspended {
					of = p.asleep
				}
				path := row.path
				if row.target != nil {
					path = row.target(t, p, of)
				}
				r := p.ask(t, kind, row.method, path, row.body)
				row.want(kind).check(t, r, what+" with key "+kind)
				if r.status == 401 {
					require.NotEmpty(t, r.header.Get("WWW-Authenticate"), what)
					if denial == "" {
						denial = plain(r)
					}
					require.Equal(t, denial, plain(r), "%s: why a key is not good is not told (%s)", what, kind)
				}
				if kind == foreign && row.list {
					require.NotContains(t, withoutDenied(t, r), p.tenant.action(), what)
				}
			}
		}
	})
}

// withoutDenied is a list without the rows of what its reader was refused: these
// hold the ids that the reader asked for.
func withoutDenied(t *testing.T, r reply) string {
	t.Helper()
	rows, _ := r.body["data"].([]any)
	rows = slices.DeleteFunc(slices.Clone(rows), func(row any) bool { return row.(map[string]any)["event"] == "denied" })
	text, err := json.Marshal(rows)
	require.NoError(t, err)
	return string(text)
}

// requireWholeAPI insists that the table has every call of the description.
func requireWholeAPI(t *testing.T, rows []accessRow) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]yaml.Node `yaml:"paths"`
	}
	require.NoError(t, yaml.Unmarshal(gateway.OpenAPI(), &doc))
	have := map[string]bool{}
	for _, row := range rows {
		have[row.method+" "+row.path] = true
	}
	var missing []string
	for path, item := range doc.Paths {
		if _, admin := item["servers"]; admin || path == "/openapi.yaml" {
			continue // the listener that is not public; and the description itself
		}
		for method := range item {
			call := strings.ToUpper(method) + " " + path
			if method != "parameters" && !have[call] {
				missing = append(missing, call)
			}
		}
	}
	require.Empty(t, missing, "calls without a row in accessTable")
}

// TestNewWritesOfAStoppedCaller: what is new is refused where what exists is
// answered, and a missing grant stops both.
func TestNewWritesOfAStoppedCaller(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		p := populate(t, app.URL(), nil)
		sent := p.vendor.Arrivals()
		again := strings.Replace(write, "order-1", "order-2", 1)
		p.ask(t, suspended, "POST", "/v1/do", again).is(403, "tenant_suspended")
		p.ask(t, suspended, "POST", "/v1/do", write).is(200, "succeeded").replayed()
		p.ask(t, ungranted, "POST", "/v1/do", again).is(403, "forbidden")
		p.ask(t, ungranted, "POST", "/v1/do", write).is(403, "forbidden")
		require.Equal(t, sent, p.vendor.Arrivals())
		require.Contains(t, p.tenant.events("event=denied"), "denied")
		p.ask(t, ungranted, "POST", "/v1/do", `{"connection":"c","action":"remove","body":{"n":"1"}}`).is(200, "succeeded")
	})
}

// counted counts what a store is asked by requests; what the gateway does by
// itself asks it too.
type counted struct {
	ledger.Store
	calls *atomic.Int64
}

func (c counted) count(ctx context.Context) {
	if ctx.Value(http.ServerContextKey) != nil {
		c.calls.Add(1)
	}
}

func (c counted) Apply(ctx context.Context, s ledger.Scope, step ledger.Step) (ledger.Result, error) {
	c.count(ctx)
	return c.Store.Apply(ctx, s, step)
}

func (c counted) Read(ctx context.Context, s ledger.Scope, fetch ...ledger.Fetch) (ledger.Snapshot, error) {
	c.count(ctx)
	return c.Store.Read(ctx, s, fetch...)
}

func (c counted) Entries(ctx context.Context, s ledger.Scope, r ledger.EntryRange) ([]ledger.Entry, error) {
	c.count(ctx)
	return c.Store.Entries(ctx, s, r)
}

// TestForeignIsAbsent: a thing of another tenant's and a thing that is not there
// get the same bytes for the same number of questions to the store, which is
// what the time of an answer is made of.
func TestForeignIsAbsent(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		calls := &atomic.Int64{}
		cfg.lookAt = func(s ledger.Store) ledger.Store { return counted{s, calls} }
		app, _ := boot(t, cfg)
		p := populate(t, app.URL(), calls)
		p.tenant.connect("theirs", "probe@1", p.vendor.URL())
		key := p.newKey(p.tenant, map[string]any{"scopes": []string{"read"}}).text("id")
		// The last letter but one of an id is random; the last has fixed bits.
		absentKey := key[:len(key)-2] + "a" + key[len(key)-1:]
		if absentKey == key {
			absentKey = key[:len(key)-2] + "b" + key[len(key)-1:]
		}
		action := p.tenant.action()
		absentAction := action[:len(action)-1] + "0"
		if absentAction == action {
			absentAction = action[:len(action)-1] + "1"
		}
		mine := "/v1/tenants/" + p.other.name
		for _, row := range []struct{ method, theirs, absent, body string }{
			{"GET", "/v1/actions/" + action, "/v1/actions/" + absentAction, ""},
			{"POST", "/v1/actions/" + action + "/check", "/v1/actions/" + absentAction + "/check", ""},
			{"POST", "/v1/actions/" + action + "/resolve", "/v1/actions/" + absentAction + "/resolve", `{"outcome":"not_performed"}`},
			{"GET", "/v1/connections/theirs", "/v1/connections/nobodys", ""},
			{"PUT", "/v1/connections/theirs", "/v1/connections/nobodys", `{"paused":true}`},
			{"DELETE", "/v1/connections/theirs", "/v1/connections/nobodys", ""},
			{"POST", "/v1/connections/theirs/test", "/v1/connections/nobodys/test", ""},
			{"POST", "/v1/tenants/" + p.tenant.name + "/keys", "/v1/tenants/nobody/keys", `{"scopes":["do"]}`},
			{"GET", "/v1/tenants/" + p.tenant.name + "/keys", "/v1/tenants/nobody/keys", ""},
			{"DELETE", "/v1/tenants/" + p.tenant.name + "/keys/" + key, "/v1/tenants/nobody/keys/" + key, ""},
			{"DELETE", mine + "/keys/" + key, mine + "/keys/" + absentKey, ""},
			{"GET", "/v1/actions?connection=theirs", "/v1/actions?connection=nobodys", ""},
			{"GET", "/v1/audit?event=succeeded&action_id=" + action, "/v1/audit?event=succeeded&action_id=" + absentAction, ""},
			{"GET", "/v1/audit?key_id=" + key, "/v1/audit?key_id=" + absentKey, ""},
		} {
			what := row.method + " " + row.theirs
			measure := func(path string) (string, int64) {
				p.ask(t, foreign, "GET", "/v1/connectors", "") // the key is fresh in memory
				before := calls.Load()
				r := p.ask(t, foreign, row.method, path, row.body)
				return plain(r), calls.Load() - before
			}
			requireSameCost(t, what, func() (theirs, absent string, cost, costAbsent int64) {
				theirs, cost = measure(row.theirs)
				absent, costAbsent = measure(row.absent)
				return theirs, absent, cost, costAbsent
			})
		}
		do := func(connection string) (string, int64) {
			p.ask(t, foreign, "GET", "/v1/connectors", "")
			before := calls.Load()
			r := p.ask(t, foreign, "POST", "/v1/do", doBody(connection, "create", `{"n":1}`))
			return plain(r.is(404, "unknown_connection")), calls.Load() - before
		}
		requireSameCost(t, "POST /v1/do", func() (theirs, absent string, cost, costAbsent int64) {
			theirs, cost = do("theirs")
			absent, costAbsent = do("nobodys")
			return theirs, absent, cost, costAbsent
		})
		require.Equal(t, 1, len(p.tenant.must(200, "GET", "/v1/actions", nil).body["data"].([]any)), "nothing of it was touched")
	})
}

// requireSameCost measures until both answers cost the same. On a busy machine a
// key's two seconds in memory can end between the question that makes it fresh
// and the one that is measured; a real difference comes back every time.
func requireSameCost(t *testing.T, what string, measure func() (theirs, absent string, cost, costAbsent int64)) {
	t.Helper()
	var cost, costAbsent int64
	for range 5 {
		var theirs, absent string
		theirs, absent, cost, costAbsent = measure()
		require.Equal(t, absent, theirs, what)
		if cost == costAbsent {
			return
		}
	}
	require.Equal(t, costAbsent, cost, "%s: round trips to the store", what)
}
