package main

import (
	"cmp"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// The folders under testdata/golden are stores as a release left them, killed in
// the middle of a write, with what was true of them. `make golden` adds one and
// replaces none (golden_make_test.go). Whatever the present program is, it must be
// able to go on from each of them.

const goldenDir = "testdata/golden"

// golden is what was true of a store when its last gateway was killed.
type golden struct {
	At         time.Time         `json:"at"`     // when that was
	Vendor     string            `json:"vendor"` // the address that its connections name
	Tenant     string            `json:"tenant"`
	Keys       map[string]string `json:"keys"` // by what they are for
	Writes     []goldenWrite     `json:"writes"`
	Events     []string          `json:"events"`     // of the tenant's audit, newest first
	Connection json.RawMessage   `json:"connection"` // as it was shown
	Usage      map[string]int64  `json:"usage"`      // that was counted
	AuditKeys  []string          `json:"audit_keys"` // flags of `gateway audit verify`
	Checkpoint string            `json:"checkpoint"`

	dir string
}

// goldenWrite is one write and how it stood.
type goldenWrite struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Do     string `json:"do"`               // the request, byte for byte
	Other  string `json:"other,omitempty"`  // another payload under the same key
	Action string `json:"action,omitempty"` // its id
	Answer string `json:"answer,omitempty"` // what must be replayed, byte for byte
	Sent   string `json:"sent,omitempty"`   // what the vendor was sent, byte for byte
	Key    string `json:"key,omitempty"`    // and under which key of its own
}

// States of golden writes beyond those of an action.
const (
	goldenTold     = "succeeded"
	goldenRefused  = "refused"
	goldenReleased = "released" // the vendor said: not now
	goldenFreed    = "freed"    // a person said: not performed
	goldenHeld     = "held"
	goldenResend   = "held, to be sent again"
	goldenJudge    = "held, its answer could not be judged"
	goldenTwin     = "twin"
	goldenOrphan   = "in flight, its gateway was killed"
)

// readGolden returns the stores of one kind that earlier releases left.
func readGolden(t *testing.T, store string) []*golden {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(goldenDir, "*", store))
	require.NoError(t, err)
	require.NotEmpty(t, dirs)
	var out []*golden
	for _, dir := range dirs {
		raw, err := os.ReadFile(filepath.Join(dir, "true.json"))
		require.NoError(t, err)
		g := &golden{dir: dir}
		require.NoError(t, json.Unmarshal(raw, g))
		out = append(out, g)
	}
	return out
}

func (g *golden) name() string { return filepath.Base(filepath.Dir(g.dir)) }

// copied is a copy of the store's files.
func (g *golden) copied(t *testing.T) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	require.NoError(t, os.CopyFS(to, os.DirFS(filepath.Join(g.dir, "files"))))
	return to
}

// vendor listens where the golden connections point to.
func (g *golden) vendor(t *testing.T) *vendortest.Vendor {
	t.Helper()
	eventually(t, 30*time.Second, "the vendor's port is free", func() bool {
		l, err := net.Listen("tcp", g.Vendor)
		return err == nil && l.Close() == nil
	})
	return vendortest.Start(t, vendortest.Config{Addr: g.Vendor, Behaviour: func(c *vendortest.Call) { c.JSON(201, `{"now":true}`) }})
}

// agent speaks with one of the golden keys.
func (g *golden) agent(t *testing.T, base, key string) *agent {
	t.Helper()
	require.NotEmpty(t, g.Keys[key])
	return &agent{t: t, base: base, key: g.Keys[key], name: g.Tenant}
}

func (w goldenWrite) do(a *agent) reply { return a.call("POST", "/v1/do", w.Do) }

// replayedAs is what an answer says that must never change.
func replayedAs(t testing.TB, r reply) string {
	parts := []string{resultOf(r)}
	for _, member := range []string{"result_base64", "vendor", "outcome"} {
		parts = append(parts, rawMember(t, r.raw, member))
	}
	return strings.Join(parts, "|")
}

// onGolden runs a test on a copy of each golden store, at a time after its end.
// Replay windows are over by the clock of today, so the store's clock is put back:
// the embedded store is given one, and Redis runs under a false one.
func onGolden(t *testing.T, after time.Duration, run func(t *testing.T, g *golden, app *App)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		for _, g := range readGolden(t, "embedded") {
			t.Run(g.name(), func(t *testing.T) {
				cfg, files := embeddedConfig(t), g.copied(t)
				cfg.ConnectorsDir = ""
				cfg.AuditArchive = folderPrefix + filepath.Join(files, auditFolder)
				began := time.Now()
				cfg.lookAt = func(empty ledger.Store) ledger.Store {
					s, err := pebblestore.Open(files, pebblestore.Options{
						Clock: func() time.Time { return g.At.Add(after).Add(time.Since(began)) },
					})
					require.NoError(t, err)
					return inPlaceOf{Store: s, other: empty}
				}
				app, _ := boot(t, cfg)
				run(t, g, app)
			})
		}
	})
	t.Run("redis", func(t *testing.T) {
		for _, g := range readGolden(t, "redis") {
			t.Run(g.name(), func(t *testing.T) {
				cfg, files := testConfig(t), g.copied(t)
				cfg.ConnectorsDir = ""
				cfg.AuditArchive = folderPrefix + filepath.Join(files, auditFolder)
				cfg.Store = oldRedis(t, files, time.Until(g.At.Add(after)))
				app, _ := boot(t, cfg)
				run(t, g, app)
			})
		}
	})
}

// inPlaceOf is a store instead of the one that the program opened.
type inPlaceOf struct {
	ledger.Store
	other io.Closer
}

func (s inPlaceOf) Close() error { return cmp.Or(s.Store.Close(), s.other.Close()) }

// oldRedis runs a Redis on files, with a clock that is off.
func oldRedis(t *testing.T, files string, off time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	s, err := redistest.LaunchShifted(dir, redistest.Durable()...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Kill()) })
	require.NoError(t, s.Shift(off))
	require.NoError(t, s.Stop())
	const kept = "appendonlydir"
	require.NoError(t, os.RemoveAll(filepath.Join(dir, kept)))
	require.NoError(t, os.CopyFS(filepath.Join(dir, kept), os.DirFS(filepath.Join(files, kept))))
	require.NoError(t, s.Start())
	return s.URL()
}

// TestGoldenWrites: what an earlier release wrote is answered as that release
// would have, and what it left in doubt is not sent.
func TestGoldenWrites(t *testing.T) {
	onGolden(t, 10*time.Minute, func(t *testing.T, g *golden, app *App) {
		vendor := g.vendor(t)
		a := g.agent(t, app.URL(), "all")
		for _, w := range g.Writes {
			if w.State == goldenReleased || w.State == goldenFreed {
				continue // the next is to be done
			}
			switch r := w.do(a); w.State {
			case goldenTold:
				r.is(200, "succeeded").replayed()
				require.Equal(t, w.Action, r.text("id"), w.Name)
				require.Equal(t, w.Answer, replayedAs(t, r), w.Name)
			case goldenRefused:
				r.is(424, "vendor_refused").replayed()
				require.Equal(t, w.Action, r.text("action_id"), w.Name)
				require.Equal(t, w.Answer, replayedAs(t, r), w.Name)
			case goldenHeld, goldenResend, goldenJudge, goldenOrphan:
				r.is(423, "outcome_unknown")
				require.Equal(t, w.Action, r.text("action_id"), w.Name)
			case goldenTwin:
				r.is(423, "twin_unsettled")
				require.Equal(t, w.Action, r.text("action_id"), w.Name)
			}
			if w.Other != "" {
				a.call("POST", "/v1/do", w.Other).is(422, "key_reused")
			}
		}
		require.Zero(t, vendor.Arrivals(), "nothing of all this was sent")

		for _, w := range g.Writes {
			switch w.State {
			case goldenReleased, goldenFreed:
				w.do(a).is(200, "succeeded").fresh()
			case goldenResend:
				before := vendor.Arrivals()
				require.Equal(t, "succeeded", a.check(w.Action).text("verdict"), w.Name)
				sent := vendor.Requests()[before]
				require.Equal(t, w.Sent, string(sent.Body), "the sealed plan")
				require.Equal(t, w.Key, sent.Header.Get("Idempotency-Key"))
				require.Equal(t, "Bearer "+sentinel+"-2", sent.Header.Get("Authorization"), "the newest credential")
				require.JSONEq(t, `{"now":true}`, resultOf(w.do(a).is(200, "succeeded").replayed()))
			case goldenJudge:
				checked := a.check(w.Action)
				require.Equal(t, "still_unknown", checked.text("verdict"), w.Name)
				rows := string(a.must(200, "GET", "/v1/audit?event=checked&action_id="+w.Action, nil).raw)
				require.Contains(t, rows, `"reason":"judge_unknown","vendor_status":201`, "the sealed answer is read again")
				a.resolve(w.Action, `{"outcome":"succeeded","result":{"by":"hand"},"note":"seen"}`)
				require.JSONEq(t, `{"by":"hand"}`, resultOf(w.do(a).is(200, "succeeded").replayed()))
			case goldenHeld:
				a.resolve(w.Action, `{"outcome":"succeeded","result":{"by":"hand"},"note":"seen"}`)
				require.JSONEq(t, `{"by":"hand"}`, resultOf(w.do(a).is(200, "succeeded").replayed()))
			case goldenOrphan:
				require.Equal(t, "owner_lost", w.do(a).text("outcome.reason"))
				a.resolve(w.Action, `{"outcome":"not_performed","note":"looked"}`)
				w.do(a).is(200, "succeeded").fresh()
			}
		}
		for _, w := range g.Writes { // whose twin has settled
			if w.State == goldenTwin {
				w.do(a).is(200, "succeeded").replayed()
			}
		}
		a.do("c", "create", `{"n":1000,"say":"new"}`).is(200, "succeeded").fresh()

		// The writes of the day are counted: with the quota used up, one may still
		// find that out.
		(&agent{t: t, base: app.URL(), key: testAdminKey}).must(200, "PATCH", "/v1/tenants/"+g.Tenant,
			map[string]any{"limits": map[string]any{"new_identities": 5}})
		eventually(t, 10*time.Second, "the quota is known", func() bool {
			return strings.Contains(a.call("GET", "/v1/connections", nil).header.Get("RateLimit-Policy"), `"new-identities";q=5;`)
		})
		a.do("c", "create", `{"n":1002,"say":"new"}`).is(429, "rate_limited")
	})
}

// resolve says what became of a held write.
func (a *agent) resolve(id, verdict string) {
	a.t.Helper()
	a.must(200, "POST", "/v1/actions/"+id+"/resolve", verdict)
}

// TestGoldenOrphanIsInFlight: before its lease is over, the write of the gateway
// that was killed is in flight, and is not sent.
func TestGoldenOrphanIsInFlight(t *testing.T) {
	onGolden(t, 2*time.Second, func(t *testing.T, g *golden, app *App) {
		vendor := g.vendor(t)
		a := g.agent(t, app.URL(), "all")
		for _, w := range g.Writes {
			if w.State == goldenOrphan {
				r := w.do(a)
				require.Contains(t, []int{409, 423}, r.status, "%s", r.raw) // 423 on a machine that took half a minute
				require.Equal(t, w.Action, r.text("action_id"))
			}
		}
		require.Zero(t, vendor.Arrivals())
	})
}

// TestGoldenRest: keys, grants, tenants, connections, the catalog, usage and the
// audit, sealed or not.
func TestGoldenRest(t *testing.T) {
	onGolden(t, 10*time.Minute, func(t *testing.T, g *golden, app *App) {
		g.stands(t, app.URL())
		usage := usageOf(t, g.agent(t, app.URL(), "read"), g.At.UTC().Format(time.DateOnly))
		for name, n := range g.Usage {
			require.GreaterOrEqual(t, usage[name], n, name)
		}
	})
}

// TestGoldenToday: the same by the clock of today, on which windows and leases
// have ended long ago, with the program in a process of its own.
func TestGoldenToday(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		for _, g := range readGolden(t, "embedded") {
			cfg := embeddedConfig(t)
			cfg.ConnectorsDir, cfg.Store = t.TempDir(), embeddedPrefix+g.copied(t)
			g.stands(t, spawn(t, cfg).url())
		}
	})
	t.Run("redis", func(t *testing.T) {
		for _, g := range readGolden(t, "redis") {
			cfg, files := testConfig(t), g.copied(t)
			server, err := redistest.Launch(files, redistest.Durable()...)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, server.Kill()) })
			cfg.ConnectorsDir, cfg.Store = t.TempDir(), server.URL()
			g.stands(t, spawn(t, cfg, "--audit-archive="+folderPrefix+filepath.Join(files, auditFolder)).url())
		}
	})
}

// stands insists on everything golden that no clock ends.
func (g *golden) stands(t *testing.T, url string) {
	t.Helper()
	admin := &agent{t: t, base: url, key: testAdminKey}
	eventually(t, 10*time.Second, "it serves", func() bool { return g.agent(t, url, "all").call("GET", "/v1/connections", nil).status == 200 })

	reader, manager, resolver := g.agent(t, url, "read"), g.agent(t, url, "manage"), g.agent(t, url, "resolve")
	a, narrow := g.agent(t, url, "all"), g.agent(t, url, "narrow")
	require.Equal(t, 200, reader.call("GET", "/v1/actions", nil).status)
	require.Equal(t, 403, reader.do("c", "create", `{"n":1,"say":"ok"}`).status)
	require.Equal(t, 200, manager.call("GET", "/v1/connections", nil).status)
	require.Equal(t, 404, resolver.call("POST", "/v1/actions/act_01KB7T0A4X5S8R9P2M3N6Q7V1W/resolve", `{"outcome":"not_performed","note":"?"}`).status)
	require.Equal(t, 403, narrow.do("c", "once", `{"n":1,"say":"ok"}`).status)
	require.Equal(t, "execute", narrow.do("c", "create", `{"n":2000,"say":"ok"}`, `"dry_run":true`).text("would"))
	require.Equal(t, 401, g.agent(t, url, "revoked").call("GET", "/v1/connections", nil).status)
	require.Equal(t, 401, (&agent{t: t, base: url, key: g.Keys["all"] + "x"}).call("GET", "/v1/connections", nil).status)
	require.Equal(t, "true", admin.must(200, "GET", "/v1/tenants/golden-suspended", nil).text("suspended"))
	require.Equal(t, "100", admin.must(200, "GET", "/v1/tenants/"+g.Tenant, nil).text("limits.new_identities"))
	require.Equal(t, 404, admin.call("GET", "/v1/tenants/golden-deleted", nil).status)

	require.JSONEq(t, string(g.Connection), string(a.must(200, "GET", "/v1/connections/c", nil).raw))
	require.Equal(t, "1.0.0", a.must(200, "GET", "/v1/connectors/golden", nil).text("version"))
	for _, action := range []string{"create", "once", "judge"} {
		planned := a.do("c", action, `{"n":2001,"say":"ok"}`, `"dry_run":true`)
		require.Equal(t, "execute", planned.text("would"), "%s: %s", action, planned.raw)
	}

	events := reader.events("")
	require.GreaterOrEqual(t, len(events), len(g.Events))
	require.Equal(t, g.Events, events[len(events)-len(g.Events):])
	require.Equal(t, "true", reader.must(200, "GET", "/v1/audit/verify", nil).text("whole"))
	log, _, err := exported(t, reader, "--sealed")
	require.NoError(t, err)
	out, err := runCommand(t, append([]string{"audit", "verify", kept(t, log), "--tenant", g.Tenant, "--checkpoint", g.Checkpoint}, g.AuditKeys...)...)
	require.NoError(t, err, out)
	require.Contains(t, out, "it leads to the later checkpoint")
}

// usageOf is what a day's figures come to.
func usageOf(t *testing.T, a *agent, day string) map[string]int64 {
	t.Helper()
	next, err := time.Parse(time.DateOnly, day)
	require.NoError(t, err)
	var page struct{ Total map[string]int64 }
	raw := a.must(200, "GET", "/v1/usage?from="+day+"&to="+next.AddDate(0, 0, 1).Format(time.DateOnly), nil).raw
	require.NoError(t, json.Unmarshal(raw, &page), "%s", raw)
	return page.Total
}
