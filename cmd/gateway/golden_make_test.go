//go:build golden

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// goldenNameEnv names the folder that is made.
const goldenNameEnv = "GOLDEN"

// goldenManifest is registered in the catalog and nowhere else.
const goldenManifest = `apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: golden, version: 1.0.0}
base_url: {allow: ["https://vendor.example"]}
auth: {type: bearer, prefix: Bearer, secret: token}
actions:
  create:
    effect: create
    input: {type: object, additionalProperties: false, required: [n, say], properties: {n: {type: integer}, say: {type: string}}}
    idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 24h, strength: documented}
    request: {method: POST, path: /things, encoding: json, body: {n: {$: params.n}, say: {$: params.say}}}
    timeout: 5s
    outcomes:
      - {when: 'status >= 200 && status < 300', is: succeeded}
      - {when: 'status in [400, 404, 409, 413, 422]', is: refused, code: 'body.code', message: 'body.message'}
      - {when: 'status == 429', is: retryable, retry_after: 'headers["retry-after"]'}
    check: [{resend: {within: 23h}}]
  once:
    effect: create
    input: {type: object, additionalProperties: false, required: [n, say], properties: {n: {type: integer}, say: {type: string}}}
    request: {method: POST, path: /once, encoding: json, body: {n: {$: params.n}, say: {$: params.say}}}
    timeout: 60s
    outcomes:
      - {when: 'status >= 200 && status < 300', is: succeeded}
      - {when: 'status in [400, 404, 409, 413, 422]', is: refused, code: 'body.code', message: 'body.message'}
      - {when: 'status == 429', is: retryable, retry_after: 'headers["retry-after"]'}
    check: []
  judge:
    effect: create
    input: {type: object, additionalProperties: false, required: [n, say], properties: {n: {type: integer}, say: {type: string}}}
    request: {method: POST, path: /judge, encoding: json, body: {n: {$: params.n}, say: {$: params.say}}}
    timeout: 5s
    outcomes: [{when: 'body.deep.inside == 1', is: succeeded}]
    check: []
`

// goldenVendor does what the write says.
func goldenVendor(c *vendortest.Call) {
	var body struct {
		N   int    `json:"n"`
		Say string `json:"say"`
	}
	_ = json.Unmarshal(c.ReadBody(), &body)
	switch body.Say {
	case "large":
		c.JSON(201, fmt.Sprintf(`{"n":%d,"text":%q}`, body.N, strings.Repeat("all work and no play; ", 200)))
	case "text":
		c.Respond(200, "text/plain", "done, but not in JSON\n")
	case "refuse":
		c.JSON(422, `{"code":"no_such_thing","message":"There is none.","list":[]}`)
	case "later":
		c.JSON(429, `{}`, "Retry-After: 1")
	case "cut":
		vendortest.CloseAfterBody(c)
	case "hang":
		vendortest.Hang(c)
	default:
		c.JSON(201, fmt.Sprintf(`{"n":%d,"amount":12.50,"list":[],"big":12345678901234567890.10}`, body.N))
	}
}

// TestMakeGolden writes stores as the present program leaves them beside those of
// earlier releases, which stay as they are.
func TestMakeGolden(t *testing.T) {
	name := os.Getenv(goldenNameEnv)
	require.NotEmpty(t, name, "%s must name the release and its format", goldenNameEnv)
	to := filepath.Join(goldenDir, name)
	require.NoDirExists(t, to, "what a release left is never replaced")
	require.Less(t, time.Now().UTC().Hour(), 23, "the tests play in the hour behind it, and count writes by the day")

	t.Run("embedded", func(t *testing.T) {
		cfg := embeddedConfig(t)
		m := newGoldenMaker(t, cfg, "127.0.0.1:20997")
		m.first()
		compact(t, cfg.folder())
		m.second()
		require.NoError(t, os.Remove(filepath.Join(cfg.folder(), "LOCK")))
		m.keep(filepath.Join(to, "embedded"), map[string]string{"": cfg.folder()})
	})
	t.Run("redis", func(t *testing.T) {
		cfg := testConfig(t)
		server := redistest.Start(t, redistest.Durable()...)
		require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
		cfg.Store = server.URL()
		archive := filepath.Join(t.TempDir(), auditFolder)
		m := newGoldenMaker(t, cfg, "127.0.0.1:20998", "--audit-archive="+folderPrefix+archive)
		m.first()
		_, err := server.Do(t.Context(), "BGREWRITEAOF")
		require.NoError(t, err)
		eventually(t, 20*time.Second, "the append-only file is written anew", func() bool {
			info, err := server.Do(t.Context(), "INFO", "persistence")
			require.NoError(t, err)
			return strings.Contains(info, "aof_rewrite_in_progress:0") && strings.Contains(info, "aof_rewrites:1")
		})
		m.second()
		require.NoError(t, server.Stop())
		m.keep(filepath.Join(to, "redis"), map[string]string{"appendonlydir": filepath.Join(server.Dir(), "appendonlydir"), auditFolder: archive})
	})
}

// compact leaves the folder one table, so that what comes later stands in the log.
func compact(t *testing.T, folder string) {
	t.Helper()
	db, err := pebble.Open(folder, &pebble.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	require.NoError(t, db.Close())
}

type goldenMaker struct {
	t      *testing.T
	cfg    Config
	flags  []string
	vendor *vendortest.Vendor
	golden golden
}

func newGoldenMaker(t *testing.T, cfg Config, vendor string, flags ...string) *goldenMaker {
	cfg.ConnectorsDir = t.TempDir()
	m := &goldenMaker{t: t, cfg: cfg, flags: append(flags, "--audit-seal-after=1s")}
	m.golden = golden{Vendor: vendor, Tenant: "golden", Keys: map[string]string{}}
	m.vendor = vendortest.Start(t, vendortest.Config{Addr: vendor, Behaviour: goldenVendor})
	return m
}

func (m *goldenMaker) agent(p *process) *agent {
	return &agent{t: m.t, base: p.url(), key: m.golden.Keys["all"], name: m.golden.Tenant}
}

// first is the life of a gateway that ends in good order.
func (m *goldenMaker) first() {
	p := spawn(m.t, m.cfg, m.flags...)
	admin := &agent{t: m.t, base: p.url(), key: testAdminKey}
	m.tenants(admin)
	registered := register(m.t, p.url(), "golden", "1.0.0", goldenManifest)
	require.Equal(m.t, 201, registered.status, "%s", registered.raw)
	a := m.agent(p)
	a.connect("c", "golden@1", "http://"+m.golden.Vendor)
	a.must(200, "PUT", "/v1/connections/c", map[string]any{"credentials": map[string]string{"token": sentinel + "-2"}})
	m.writes(a)
	m.golden.Connection = a.must(200, "GET", "/v1/connections/c", nil).raw
	m.sealed(a)
	p.signal(syscall.SIGTERM)
	<-p.done
	require.NoError(m.t, p.cmd.Wait(), p.logged())
}

// second is the life of one that is killed in the middle of a write.
func (m *goldenMaker) second() {
	p := spawn(m.t, m.cfg, m.flags...)
	a := m.agent(p)
	m.told(a, "in the log", doBody("c", "create", `{"n":90,"say":"ok"}`))
	m.held(a, "in the log, held", goldenHeld, doBody("c", "once", `{"n":91,"say":"cut"}`))
	orphan := goldenWrite{Name: "orphan", State: goldenOrphan, Do: doBody("c", "once", `{"n":92,"say":"hang"}`)}
	arrived := m.vendor.Arrivals()
	go func() { _, _ = a.send(m.t.Context(), "POST", "/v1/do", orphan.Do, nil) }()
	m.vendor.AwaitArrivals(arrived + 1)
	orphan.Action = orphan.do(a).is(409, "in_flight").text("action_id")
	m.golden.Writes = append(m.golden.Writes, orphan)
	m.golden.At = time.Now().UTC()
	p.kill()
}

func (m *goldenMaker) tenants(admin *agent) {
	admin.must(201, "POST", "/v1/tenants", map[string]any{
		"id": m.golden.Tenant, "name": "Golden", "limits": map[string]any{"new_identities": 100}, "audit_retention_days": 3000,
	})
	for _, id := range []string{"golden-suspended", "golden-deleted"} {
		admin.must(201, "POST", "/v1/tenants", map[string]any{"id": id})
	}
	admin.must(200, "PATCH", "/v1/tenants/golden-suspended", map[string]any{"suspended": true})
	require.Less(m.t, admin.call("DELETE", "/v1/tenants/golden-deleted", nil).status, 300)
	for label, body := range map[string]map[string]any{
		"all":     {"scopes": []string{"do", "read", "resolve", "manage"}},
		"read":    {"scopes": []string{"read"}},
		"resolve": {"scopes": []string{"resolve"}},
		"manage":  {"scopes": []string{"manage"}},
		"narrow":  {"scopes": []string{"do"}, "grants": []any{map[string]any{"connection": "c", "actions": []string{"create"}}}},
		"revoked": {"scopes": []string{"do", "read"}},
	} {
		body["label"] = label
		made := admin.must(201, "POST", "/v1/tenants/"+m.golden.Tenant+"/keys", body)
		m.golden.Keys[label] = made.text("key")
		if label == "revoked" {
			admin.must(204, "DELETE", "/v1/tenants/"+m.golden.Tenant+"/keys/"+made.text("id"), nil)
		}
	}
}

// writes makes one in every state there is.
func (m *goldenMaker) writes(a *agent) {
	own := func(key, action, body string) string {
		return doBody("c", action, body, fmt.Sprintf(`"idempotency_key":%q`, key), `"meta":{"run":"7"}`)
	}
	m.told(a, "derived key", doBody("c", "create", `{"n":1,"say":"ok"}`))
	m.told(a, "own key", own("own-1", "create", `{"n":2,"say":"ok"}`)).Other = own("own-1", "create", `{"n":3,"say":"ok"}`)
	m.told(a, "large answer", doBody("c", "create", `{"n":4,"say":"large"}`))
	m.told(a, "no JSON", doBody("c", "create", `{"n":5,"say":"text"}`))
	m.refused(a, "refused", doBody("c", "create", `{"n":6,"say":"refuse"}`))
	again := own("own-2", "create", `{"n":7,"say":"refuse"}`)
	a.call("POST", "/v1/do", again).is(424, "vendor_refused")
	a.call("POST", "/v1/do", strings.TrimSuffix(again, "}")+`,"retry_refused":true}`).is(424, "vendor_refused").fresh()
	m.refused(a, "refused twice", again).Other = own("own-2", "create", `{"n":8,"say":"ok"}`)

	later := doBody("c", "create", `{"n":9,"say":"later"}`)
	a.call("POST", "/v1/do", later).is(429, "vendor_rate_limited")
	m.golden.Writes = append(m.golden.Writes, goldenWrite{Name: "released", State: goldenReleased, Do: later})

	held := m.held(a, "held", goldenHeld, own("held-1", "once", `{"n":10,"say":"cut"}`))
	held.Other = own("held-1", "once", `{"n":11,"say":"ok"}`)
	twin := goldenWrite{Name: "twin", State: goldenTwin, Do: own("held-2", "once", `{"n":10,"say":"cut"}`)}
	twin.Action = twin.do(a).is(423, "twin_unsettled").text("action_id")
	m.held(a, "resend", goldenResend, doBody("c", "create", `{"n":12,"say":"cut"}`))
	m.held(a, "judge", goldenJudge, doBody("c", "judge", `{"n":13,"say":"ok"}`))
	m.golden.Writes = append(m.golden.Writes, twin)

	resolved := doBody("c", "once", `{"n":14,"say":"cut"}`)
	id := a.call("POST", "/v1/do", resolved).is(423, "outcome_unknown").text("action_id")
	a.must(200, "POST", "/v1/actions/"+id+"/resolve", `{"outcome":"succeeded","result":{"seen":true,"amount":1.10},"note":"looked"}`)
	m.told(a, "resolved", resolved)
	freed := doBody("c", "once", `{"n":15,"say":"cut"}`)
	id = a.call("POST", "/v1/do", freed).is(423, "outcome_unknown").text("action_id")
	a.must(200, "POST", "/v1/actions/"+id+"/resolve", `{"outcome":"not_performed","note":"looked"}`)
	m.golden.Writes = append(m.golden.Writes, goldenWrite{Name: "freed", State: goldenFreed, Do: freed})
}

// told makes a write that succeeds, if it was not made, and keeps its replay.
func (m *goldenMaker) told(a *agent, name, do string) *goldenWrite {
	a.call("POST", "/v1/do", do).is(200, "succeeded")
	r := a.call("POST", "/v1/do", do).is(200, "succeeded").replayed()
	return m.add(goldenWrite{Name: name, State: goldenTold, Do: do, Action: r.text("id"), Answer: replayedAs(m.t, r)})
}

func (m *goldenMaker) refused(a *agent, name, do string) *goldenWrite {
	a.call("POST", "/v1/do", do).is(424, "vendor_refused")
	r := a.call("POST", "/v1/do", do).is(424, "vendor_refused").replayed()
	return m.add(goldenWrite{Name: name, State: goldenRefused, Do: do, Action: r.text("action_id"), Answer: replayedAs(m.t, r)})
}

func (m *goldenMaker) held(a *agent, name, state, do string) *goldenWrite {
	before := m.vendor.Arrivals()
	id := a.call("POST", "/v1/do", do).is(423, "outcome_unknown").text("action_id")
	sent := m.vendor.Requests()[before]
	return m.add(goldenWrite{Name: name, State: state, Do: do, Action: id, Sent: string(sent.Body), Key: sent.Header.Get("Idempotency-Key")})
}

func (m *goldenMaker) add(w goldenWrite) *goldenWrite {
	m.golden.Writes = append(m.golden.Writes, w)
	return &m.golden.Writes[len(m.golden.Writes)-1]
}

// sealed waits until all that was done is in the archive, and keeps the proof.
func (m *goldenMaker) sealed(a *agent) {
	m.golden.Events = a.events("")
	rows := int64(len(m.golden.Events))
	eventually(m.t, 30*time.Second, "the audit is sealed", func() bool {
		var page struct{ Data []struct{ Seq int64 } }
		require.NoError(m.t, json.Unmarshal(a.must(200, "GET", "/v1/audit/checkpoints", nil).raw, &page))
		return len(page.Data) > 0 && page.Data[0].Seq >= rows
	})
	m.golden.AuditKeys, m.golden.Checkpoint = proofOf(a)
	m.golden.Usage = usageOf(m.t, a, time.Now().UTC().Format(time.DateOnly))
	require.Positive(m.t, m.golden.Usage["writes"])
}

// keep writes what was made.
func (m *goldenMaker) keep(to string, folders map[string]string) {
	for name, from := range folders {
		require.NoError(m.t, os.CopyFS(filepath.Join(to, "files", name), os.DirFS(from)))
	}
	raw, err := json.MarshalIndent(m.golden, "", " ")
	require.NoError(m.t, err)
	require.NoError(m.t, os.WriteFile(filepath.Join(to, "true.json"), append(raw, '\n'), 0o644))
}
