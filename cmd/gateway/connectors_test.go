package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// someConnector is a manifest whose one rule decides on the status and whose
// look-up goes to a path of its own.
func someConnector(name, version, lookup, doneStatus string) string {
	return fmt.Sprintf(`apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: %s, version: %s}
base_url: {allow: ["https://vendor.example"]}
auth: {type: bearer, secret: token}
actions:
  create:
    effect: create
    input: {type: object, additionalProperties: false, properties: {n: {type: integer}}}
    request: {method: POST, path: /things, encoding: json, body: {n: {$opt: "params.?n"}}}
    timeout: 5s
    outcomes:
      - {when: 'status == %s', is: succeeded}
    check:
      - lookup: {request: {method: GET, path: %s}, settle: 1s, match: 'body.data', absent: still_unknown}
`, name, version, doneStatus, lookup)
}

// register sends a manifest to a replica with the platform's key.
func register(t *testing.T, base, name, version, manifest string) reply {
	t.Helper()
	admin := &agent{t: t, base: base, key: testAdminKey}
	return admin.call("PUT", "/v1/connectors/"+name+"/"+version, manifest, "Content-Type", "application/yaml")
}

// uniqueName keeps tests on the shared Redis apart.
func uniqueName(t *testing.T) string {
	return "reg-" + strings.ReplaceAll(newTenantName(), "_", "-")
}

// TestRegisteredConnectorIsUsableOnBothReplicas: no restart, a broken one
// changes nothing and says why.
func TestRegisteredConnectorIsUsableOnBothReplicas(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	one, _ := boot(t, cfg)
	cfg.ConnectorsDir = ""
	two, _ := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.OK)
	name := uniqueName(t)

	bad := register(t, one.URL(), name, "1.0.0", strings.Replace(someConnector(name, "1.0.0", "/q", "200"), "is: succeeded", "is: perfect", 1))
	require.Equal(t, 400, bad.status, "%s", bad.raw)
	require.Contains(t, string(bad.raw), "line 13: ")
	a := newAgent(t, one.URL())
	require.Equal(t, 400, a.call("PUT", "/v1/connections/c", map[string]any{
		"connector": name + "@1", "base_url": vendor.URL(), "credentials": map[string]string{"token": sentinel},
	}).status, "a broken one changes nothing")

	require.Equal(t, 201, register(t, one.URL(), name, "1.0.0", someConnector(name, "1.0.0", "/q", "200")).status)
	require.Equal(t, 200, register(t, two.URL(), name, "1.0.0", someConnector(name, "1.0.0", "/q", "200")).status, "the same bytes again")
	register(t, two.URL(), name, "1.0.0", someConnector(name, "1.0.0", "/other", "200")).is(409, "already_exists")

	a.at(two.URL()).connect("c", name+"@1", vendor.URL())
	a.at(two.URL()).do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
	a.do("c", "create", `{"n":2}`).is(200, "succeeded").fresh()
	require.Equal(t, 2, vendor.Arrivals())

	// A newer version arrives at the other replica by itself.
	require.Equal(t, 201, register(t, one.URL(), name, "1.1.0", someConnector(name, "1.1.0", "/q", "200")).status)
	eventually(t, 10*time.Second, "the new version is loaded at the other replica", func() bool {
		return a.at(two.URL()).must(200, "GET", "/v1/connectors/"+name, nil).text("version") == "1.1.0"
	})

	admin := &agent{t: t, base: one.URL(), key: testAdminKey}
	admin.must(204, "DELETE", "/v1/connectors/"+name+"/1.1.0", nil)
	admin.call("DELETE", "/v1/connectors/"+name+"/1.0.0", nil).is(409, "connector_in_use")
	a.must(204, "DELETE", "/v1/connections/c", nil)
	admin.must(204, "DELETE", "/v1/connectors/"+name+"/1.0.0", nil)
	admin.call("DELETE", "/v1/connectors/"+name+"/1.0.0", nil).is(404, "not_found")
}

// TestWriteKeepsTheVersionItWasClaimedWith: after an upgrade that judges and
// checks in another way, an old write is described by its own version, on any
// replica, and replayed as it was.
func TestWriteKeepsTheVersionItWasClaimedWith(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		name := uniqueName(t)
		vendor := vendortest.New(t, vendortest.OK)
		require.Equal(t, 201, register(t, app.URL(), name, "1.0.0", someConnector(name, "1.0.0", "/old", "200")).status)
		a := newAgent(t, app.URL())
		a.connect("c", name+"@1", vendor.URL())
		first := a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
		vendor.Use(vendortest.CloseAfterBody)
		heldWrite := a.do("c", "create", `{"n":2}`).is(423, "outcome_unknown")
		require.Contains(t, heldWrite.text("check.request.url"), "/old")
		vendor.Use(vendortest.OK)

		// 201 is success now, 200 is nothing, and the look-up has moved.
		require.Equal(t, 201, register(t, app.URL(), name, "1.1.0", someConnector(name, "1.1.0", "/new", "201")).status)
		requireSameResult(t, first, a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed())
		again := a.must(200, "GET", "/v1/actions/"+heldWrite.text("action_id"), nil)
		require.Contains(t, again.text("check.request.url"), "/old")
		newer := a.do("c", "create", `{"n":3}`).is(423, "outcome_unknown") // 200 by the new rules
		require.Contains(t, newer.text("check.request.url"), "/new")

		// And after a restart without any of it registered any more.
		admin := &agent{t: t, base: app.URL(), key: testAdminKey}
		admin.must(204, "DELETE", "/v1/connectors/"+name+"/1.0.0", nil)
		require.NoError(t, app.Close())
		app, _ = boot(t, cfg)
		b := a.at(app.URL())
		again = b.must(200, "GET", "/v1/actions/"+heldWrite.text("action_id"), nil)
		require.Contains(t, again.text("check.request.url"), "/old")
		requireSameResult(t, first, b.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed())
	})
}

// TestFolderIsReloaded: a connector dropped into the folder is usable after
// SIGHUP; a broken one changes nothing, and file and line are in the log.
func TestFolderIsReloaded(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	app, out := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	writeManifest(t, cfg.ConnectorsDir, "dropped", "1.0.0", someConnector("dropped", "1.0.0", "/q", "200"))
	require.NoError(t, app.Reload(t.Context()))
	a.connect("c", "dropped@1", vendor.URL())
	a.do("c", "create", `{"n":1}`).is(200, "succeeded")

	writeManifest(t, cfg.ConnectorsDir, "broken", "1.0.0", strings.Replace(someConnector("broken", "1.0.0", "/q", "200"), "timeout: 5s", "timeout: soon", 1))
	writeManifest(t, cfg.ConnectorsDir, "later", "1.0.0", someConnector("later", "1.0.0", "/q", "200"))
	require.Error(t, app.Reload(t.Context()))
	require.Contains(t, out.String(), filepath.Join("broken", "1.0.0", "connector.yaml")+":11 (/actions/create/timeout)")
	a.call("GET", "/v1/connectors/later", nil).is(404, "not_found")
	a.do("c", "create", `{"n":2}`).is(200, "succeeded")
	require.Contains(t, scrape(t, app), "holdfast_connector_reload_failures_total 1")

	require.NoError(t, os.RemoveAll(filepath.Join(cfg.ConnectorsDir, "broken")))
	require.NoError(t, app.Reload(t.Context()))
	a.must(200, "GET", "/v1/connectors/later", nil)
}

// TestFolderOfTwoReplicas: a folder that both mount, reloaded at each.
func TestFolderOfTwoReplicas(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	one, _ := boot(t, cfg)
	two, _ := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.OK)
	name := uniqueName(t)
	writeManifest(t, cfg.ConnectorsDir, name, "1.0.0", someConnector(name, "1.0.0", "/q", "200"))
	require.NoError(t, one.Reload(t.Context()))
	require.NoError(t, two.Reload(t.Context()))
	a := newAgent(t, one.URL())
	a.connect("c", name+"@1", vendor.URL())
	a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	a.at(two.URL()).do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
	a.at(two.URL()).do("c", "create", `{"n":2}`).is(200, "succeeded").fresh()
	require.Equal(t, 2, vendor.Arrivals())
}

func scrape(t *testing.T, app *App) string {
	t.Helper()
	resp, err := http.Get(app.AdminURL() + "/metrics")
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(raw)
}

func TestHangUpReloadsTheFolder(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
	p := spawn(t, cfg)
	a := newAgent(t, p.url())
	a.call("GET", "/v1/connectors/dropped", nil).is(404, "not_found")
	writeManifest(t, cfg.ConnectorsDir, "dropped", "1.0.0", someConnector("dropped", "1.0.0", "/q", "200"))
	p.signal(syscall.SIGHUP)
	eventually(t, 10*time.Second, "the connector is loaded", func() bool {
		return a.call("GET", "/v1/connectors/dropped", nil).status == 200
	})
	writeManifest(t, cfg.ConnectorsDir, "broken", "1.0.0", "kind: nothing\n")
	p.signal(syscall.SIGHUP)
	eventually(t, 10*time.Second, "the log names the file", func() bool {
		return strings.Contains(p.logged(), filepath.Join("broken", "1.0.0", "connector.yaml")+":1")
	})
	a.must(200, "GET", "/v1/connectors/dropped", nil)
}

// TestBudgetOfAConnector: what a manifest allows itself of the vendor's rate
// limit ends before the vendor has to say so. A replay needs none of it.
func TestBudgetOfAConnector(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	text := strings.Replace(someConnector("frugal", "1.0.0", "/q", "200"), "actions:\n", "rate_limit: {budget: {requests: 2, per: 10m}}\nactions:\n", 1)
	writeManifest(t, cfg.ConnectorsDir, "frugal", "1.0.0", text)
	app, _ := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "frugal@1", vendor.URL())
	a.do("c", "create", `{"n":1}`).is(200, "succeeded")
	a.do("c", "create", `{"n":2}`).is(200, "succeeded")
	over := a.do("c", "create", `{"n":3}`).is(503, "not_sent")
	require.Greater(t, over.retryAfter(), 200)
	a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
	require.Equal(t, 2, vendor.Arrivals())
}

// TestLinearIsFoundByItsID: the answer to a create is lost; the check asks, with
// a POST that only reads, for the id that the gateway chose, and settles the write.
func TestLinearIsFoundByItsID(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	app, _ := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.CloseAfterBody)
	a := newAgent(t, app.URL())
	a.connect("c", "linear@1", vendor.URL())
	const issue = `{"team_id":"6b7b3f0e-7f2c-4b57-9a51-0a4b1c2d3e4f","title":"Once"}`
	held := a.do("c", "create_issue", issue).is(423, "outcome_unknown")
	require.Equal(t, "lookup", held.text("check.how"))

	var sent struct {
		Variables struct{ Input struct{ ID string } }
	}
	require.NoError(t, json.Unmarshal(vendor.Requests()[0].Body, &sent))
	require.Len(t, sent.Variables.Input.ID, 36)
	vendor.Use(func(c *vendortest.Call) {
		c.JSON(200, `{"data":{"issues":{"nodes":[{"id":"`+sent.Variables.Input.ID+`","identifier":"ENG-7","url":"u"}]}}}`)
	})
	checked := a.must(200, "POST", "/v1/actions/"+held.text("action_id")+"/check", "{}")
	require.Equal(t, "succeeded", checked.text("verdict"), "%s", checked.raw)
	look := vendor.Requests()[1]
	require.Equal(t, "POST", look.Method)
	require.Contains(t, string(look.Body), "query Find(")
	require.Contains(t, string(look.Body), sent.Variables.Input.ID)
	done := a.do("c", "create_issue", issue).is(200, "succeeded").replayed()
	require.Equal(t, "ENG-7", done.text("result.identifier"))
	require.Equal(t, 2, vendor.Arrivals())
}

// TestNothingOfABodyIsLogged: neither what the agent said nor what the vendor
// answered, though a rule takes the vendor's own words over.
func TestNothingOfABodyIsLogged(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	text := strings.Replace(someConnector("chatty", "1.0.0", "/q", "200"), "actions:\n", "redact: {params: [/n], response: [/message]}\nactions:\n", 1)
	text = strings.Replace(text, "is: succeeded}", "is: succeeded}\n      - {when: 'status == 422', is: refused, code: body.code, message: body.message}", 1)
	writeManifest(t, cfg.ConnectorsDir, "chatty", "1.0.0", text)
	app, out := boot(t, cfg)
	vendor := vendortest.New(t, nil)
	a := newAgent(t, app.URL())
	a.connect("c", "chatty@1", vendor.URL())
	vendor.Use(func(c *vendortest.Call) { c.JSON(422, `{"code":"SPOKEN-CODE","message":"SPOKEN-WORDS"}`) })
	refused := a.do("c", "create", `{"n":7340121}`).is(424, "vendor_refused")
	require.Equal(t, "SPOKEN-WORDS", refused.text("vendor.message"))
	vendor.Use(func(c *vendortest.Call) { c.JSON(200, `{"answer":"SPOKEN-ANSWER"}`) })
	a.do("c", "create", `{"n":7340122}`).is(200, "succeeded")
	vendor.Use(vendortest.CloseAfterBody)
	a.do("c", "create", `{"n":7340123}`).is(423, "outcome_unknown")
	audited := string(a.must(200, "GET", "/v1/audit?limit=200", nil).raw)
	for _, word := range []string{"734012", "SPOKEN", sentinel} {
		require.NotContains(t, out.String(), word)
		require.NotContains(t, audited, word)
	}
}
