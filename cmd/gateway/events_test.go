package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/vendortest"
)

// answeringN answers with the status that the request has as n; 0 hangs up.
func answeringN(c *vendortest.Call) {
	var body struct{ N int }
	_ = json.Unmarshal(c.ReadBody(), &body)
	if body.N == 0 {
		c.Close()
		return
	}
	c.JSON(body.N, `{"private":"`+sentinel+`"}`)
}

// rowsOf are the audit rows of one request, in a tenant's log and the platform's.
func rowsOf(t *testing.T, app *App, scope ledger.Scope, requestID string) (rows []audit.Row, events string) {
	t.Helper()
	var words []string
	for _, of := range []ledger.Scope{ledger.Platform, scope} {
		found, err := app.store.Rows(t.Context(), of, ledger.RowRange{Limit: 10_000})
		require.NoError(t, err)
		for _, stored := range found {
			row, err := audit.Decode(stored.Data)
			require.NoError(t, err)
			if row.RequestID == requestID {
				rows = append(rows, row)
				words = append(words, string(row.Event))
			}
		}
	}
	return rows, strings.Join(words, " ")
}

// TestEachCallLeavesItsRows: a table of calls and the events that each of them
// leaves, no more and no less, whoever the body claims to be. What the clock
// brings about is played by the suite of dedupe (lease_lost, lapsed, recovered,
// late_answer) and by the tests of tenants and connections (reopened, purged).
func TestEachCallLeavesItsRows(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, answeringN)
		app, _ := boot(t, cfg)
		host := &agent{t: t, base: app.URL(), key: testAdminKey}
		a := newAgent(t, app.URL())
		scope := a.scopeOf(app)
		reader := &agent{t: t, base: app.URL(), name: a.name, key: host.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"scopes": []string{"read"}}).text("key")}
		victim := newAgent(t, app.URL())
		a.connect("refusing", "probe@1", "http://127.0.0.1:1")
		held, spare := "", ""
		do := func(n int, more ...string) string { return doBody("c", "create", fmt.Sprintf(`{"n":%d}`, n), more...) }
		for _, c := range []struct {
			who          *agent
			method, path string
			body         any
			status       int
			events       string
			scope        ledger.Scope // where else; zero: the agent's
			then         func(reply)
		}{
			{who: a, method: "PUT", path: "/v1/connections/c", status: 201, events: "connection.created",
				body: map[string]any{"connector": "probe@1", "base_url": vendor.URL(), "credentials": map[string]string{"token": sentinel}}},
			{who: a, method: "PUT", path: "/v1/connections/c", status: 200, events: "connection.updated", body: map[string]any{"paused": true}},
			{who: a, method: "POST", path: "/v1/do", status: 403, events: "denied", body: do(200)},
			{who: a, method: "PUT", path: "/v1/connections/c", status: 200, events: "connection.updated", body: map[string]any{"paused": false}},

			{who: a, method: "POST", path: "/v1/do", status: 200, events: "", body: do(200, `"dry_run":true`)},
			{who: a, method: "POST", path: "/v1/do", status: 200, events: "claimed succeeded", body: do(200)},
			{who: a, method: "POST", path: "/v1/do", status: 200, events: "replayed", body: do(200)},
			{who: a, method: "POST", path: "/v1/do", status: 424, events: "claimed refused", body: do(400, `"idempotency_key":"k"`)},
			{who: a, method: "POST", path: "/v1/do", status: 424, events: "replayed", body: do(400, `"idempotency_key":"k"`)},
			{who: a, method: "POST", path: "/v1/do", status: 424, events: "claimed refused", body: do(400, `"idempotency_key":"k","retry_refused":true`)},
			{who: a, method: "POST", path: "/v1/do", status: 422, events: "key_reused", body: do(404, `"idempotency_key":"k"`)},
			{who: a, method: "POST", path: "/v1/do", status: 429, events: "claimed released", body: do(429)},
			{who: a, method: "POST", path: "/v1/do", status: 503, events: "claimed not_sent", body: doBody("refusing", "create", `{"n":1}`)},
			{who: a, method: "POST", path: "/v1/do", status: 423, events: "claimed held", body: do(0), then: func(r reply) { held = r.text("action_id") }},
			{who: a, method: "POST", path: "/v1/do", status: 423, events: "held_repeat", body: do(0)},
			{who: a, method: "POST", path: "/v1/do", status: 423, events: "twin_refused", body: do(0, `"idempotency_key":"other"`)},
			{who: a, method: "POST", path: "/v1/do", status: 423, events: "claimed held", body: do(500), then: func(r reply) { spare = r.text("action_id") }},
			{who: a, method: "POST", path: "/v1/actions/{held}/check", status: 200, events: "checked"},
			{who: a, method: "POST", path: "/v1/actions/{held}/resolve", status: 200, events: "resolved", body: `{"outcome":"succeeded","note":"seen"}`},
			{who: a, method: "POST", path: "/v1/actions/{held}/resolve", status: 409, events: "denied", body: `{"outcome":"succeeded"}`},
			{who: a, method: "POST", path: "/v1/actions/{spare}/resolve", status: 200, events: "resolved not_done", body: `{"outcome":"not_performed"}`},

			{who: a, method: "POST", path: "/v1/do", status: 400, events: "denied", body: `{"connection":`},
			{who: a, method: "POST", path: "/v1/do", status: 400, events: "denied", body: do(200, `"body":7`)},
			{who: a, method: "POST", path: "/v1/do", status: 404, events: "denied", body: doBody("absent", "create", `{"n":1}`)},
			{who: reader, method: "POST", path: "/v1/do", status: 403, events: "denied", body: do(200)},
			{who: reader, method: "GET", path: "/v1/tenants", status: 403, events: "denied"},
			{who: reader, method: "GET", path: "/v1/audit", status: 200, events: ""},
			{who: reader, method: "GET", path: "/v1/actions/act_01K00000000000000000000000", status: 404, events: ""},
			{who: a, method: "DELETE", path: "/v1/connections/absent", status: 404, events: "denied"},
			{who: a, method: "DELETE", path: "/v1/connections/refusing", status: 204, events: "connection.closing connection.deleted"},

			{who: a, method: "POST", path: "/v1/tenants/{me}/keys", status: 201, events: "key.created", body: `{"scopes":["do"]}`, then: func(r reply) { spare = r.text("id") }},
			{who: a, method: "DELETE", path: "/v1/tenants/{me}/keys/{spare}", status: 204, events: "key.revoked"},
			{who: host, method: "PATCH", path: "/v1/tenants/{me}", status: 200, events: "tenant.updated", body: `{"name":"x"}`, scope: scope},
			{who: host, method: "PATCH", path: "/v1/tenants/{me}", status: 200, events: "tenant.suspended", body: `{"suspended":true}`, scope: scope},
			{who: host, method: "PATCH", path: "/v1/tenants/{me}", status: 200, events: "tenant.resumed", body: `{"suspended":false}`, scope: scope},
			{who: host, method: "PATCH", path: "/v1/tenants/absent", status: 404, events: "denied", body: `{"name":"x"}`},
			{who: host, method: "POST", path: "/v1/do", status: 403, events: "denied", body: do(200)},
			{who: host, method: "POST", path: "/v1/tenants", status: 409, events: "denied", body: `{"id":"` + a.name + `"}`},
		} {
			path := strings.NewReplacer("{held}", held, "{spare}", spare, "{me}", a.name).Replace(c.path)
			name := fmt.Sprintf("%s %s %v", c.method, path, c.body)
			r := c.who.call(c.method, path, c.body, "Request-Id", "req_forged", "X-Forwarded-For", "192.0.2.1")
			require.Equal(t, c.status, r.status, "%s: %s", name, r.raw)
			of := scope
			rows, events := rowsOf(t, app, of, r.header.Get("Request-Id"))
			require.Equal(t, c.events, events, name)
			for _, row := range rows {
				want := audit.Actor{Kind: audit.KindPlatform}
				if c.who != host {
					id, _, _ := strings.Cut(strings.TrimPrefix(c.who.key, "hf_"), "_")
					want = audit.Actor{Kind: audit.KindKey, KeyID: id}
					require.Equal(t, a.name, row.Tenant, name)
				}
				require.Equal(t, want, row.Actor, name)
				require.Equal(t, "rest", row.Front, name)
				require.NotContains(t, string(row.Encode()), sentinel)
				require.WithinDuration(t, time.Now(), row.At, time.Minute)
			}
			if c.then != nil {
				c.then(r)
			}
		}

		before := victim.scopeOf(app)
		r := host.must(204, "DELETE", "/v1/tenants/"+victim.name, nil)
		_, events := rowsOf(t, app, before, r.header.Get("Request-Id"))
		for _, event := range []string{"tenant.closing", "tenant.deleted"} {
			require.Contains(t, events, event)
		}
		name := newTenantName()
		r = host.must(201, "POST", "/v1/tenants", map[string]any{"id": name})
		_, events = rowsOf(t, app, (&agent{t: t, base: app.URL(), name: name}).scopeOf(app), r.header.Get("Request-Id"))
		require.Equal(t, "tenant.reserved tenant.created", events)

		// The life of one write, of which its action tells and which the audit finds. A
		// check that has no way to look changes nothing there.
		view := a.must(200, "GET", "/v1/actions/"+held, nil)
		var told struct{ History []struct{ Event, By string } }
		require.NoError(t, json.Unmarshal(view.raw, &told))
		var words []string
		for _, h := range told.History {
			words = append(words, h.Event)
		}
		require.Equal(t, "claimed held resolved", strings.Join(words, " "))
		require.Equal(t, []string{"claimed", "held", "held_repeat", "twin_refused", "checked", "resolved", "denied"}, a.events("order=oldest&action_id="+held))
	})
}
