package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/vendortest"
)

// The hours of held writes are seconds here: a lease of three, a time-out of 300 ms,
// a settle of one, and a reconciler that looks every 50 ms.
const heldLease = 3 * time.Second

func heldConfig(t *testing.T, cfg Config) Config {
	cfg.Lease = heldLease
	cfg.reconcile = actions.Reconcile{Every: 50 * time.Millisecond, First: 100 * time.Millisecond, Most: 500 * time.Millisecond}
	for name, manifest := range shopManifests() {
		writeManifest(t, cfg.ConnectorsDir, name, "1.0.0", manifest)
	}
	return cfg
}

// byHand is heldConfig with a reconciler that never comes by.
func byHand(t *testing.T, cfg Config) Config {
	cfg = heldConfig(t, cfg)
	cfg.reconcile = actions.Reconcile{Every: time.Hour, First: time.Hour, Most: time.Hour}
	return cfg
}

// shopManifests are connectors of vendors of each class (vendortest.Shop).
func shopManifests() map[string]string {
	const form = `
apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: %s, version: 1.0.0}
base_url: {allow: ["https://shop.example"]}
auth: {type: bearer, prefix: Bearer, secret: token}
redact: {params: [/secret]}
actions:
  buy:
    effect: create
    input: {type: object, additionalProperties: false, required: [n], properties: {n: {type: integer}, secret: {type: string}}}
    %s
    request: {method: POST, path: /things, encoding: json, body: {n: {$: params.n}, marker: {$: op.marker}}}
    timeout: 300ms
    outcomes:
      - {when: 'status == 201', is: succeeded}
      - {when: 'status == 409', is: unknown}
      - {when: 'status == 422', is: refused, code: body.error}
      - {when: 'status == 429', is: retryable, retry_after: 'headers["retry-after"]'}
    result: {id: {$: body.id}, n: {$: body.n}}
    check: %s
`
	const (
		replaying = "idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 24h, strength: documented}"
		shortLife = "idempotency: {in: header, name: Idempotency-Key, format: hex, max_len: 64, retention: 6s, strength: documented}"
		clientID  = "idempotency: {in: body, name: id, format: uuid, max_len: 36, retention: unknown, strength: weak}"
		search    = `{lookup: {request: {method: GET, path: /things, query: {marker: {$: op.marker}, secret: {$opt: "params.?secret"}}}, settle: %s, match: 'body.data.filter(x, x.marker == op.marker)', absent: %s}}`
		byID      = `{lookup: {request: {method: GET, path: "/things/{op.vendor_key}"}, settle: %s, match: 'status == 404 ? [] : [body]', absent: not_performed}}`
	)
	one := func(step string, args ...any) string { return "[" + fmt.Sprintf(step, args...) + "]" }
	return map[string]string{
		"shop-a":       fmt.Sprintf(form, "shop-a", replaying, "[{resend: {within: 23h}}]"),
		"shop-a-short": fmt.Sprintf(form, "shop-a-short", shortLife, "[{resend: {within: 5s}}]"),
		"shop-a-slow":  strings.Replace(fmt.Sprintf(form, "shop-a-slow", replaying, "[{resend: {within: 23h}}]"), "timeout: 300ms", "timeout: 3s", 1),
		"shop-b":       fmt.Sprintf(form, "shop-b", clientID, one(byID, "1s")),
		"shop-b-slow":  fmt.Sprintf(form, "shop-b-slow", clientID, one(byID, "3s")),
		"shop-c":       fmt.Sprintf(form, "shop-c", "", one(search, "1s", "still_unknown")),
		"shop-c-slow": strings.Replace(fmt.Sprintf(form, "shop-c-slow", "", one(search, "5s", "still_unknown")),
			"timeout: 300ms", "timeout: 20s", 1),
		"shop-d": fmt.Sprintf(form, "shop-d", "", "[]"),
	}
}

// shopping boots a gateway and a shop whose first answer is lost.
func shopping(t *testing.T, cfg Config, connector string, shop vendortest.ShopConfig) (*agent, *vendortest.Shop) {
	t.Helper()
	if shop.Answer == nil {
		shop.Answer = firstLost
	}
	app, _ := boot(t, cfg)
	s := vendortest.NewShop(shop)
	vendor := vendortest.New(t, s.Serve)
	a := newAgent(t, app.URL())
	a.connect("shop", connector, vendor.URL())
	return a, s
}

func firstLost(n int) vendortest.Behaviour {
	if n == 1 {
		return vendortest.CloseAfterBody
	}
	return nil
}

func allLost(int) vendortest.Behaviour { return vendortest.CloseAfterBody }

func (a *agent) autoResend(name string) {
	a.t.Helper()
	a.must(200, "PUT", "/v1/connections/"+name, map[string]any{"auto_resend": true})
}

func (a *agent) check(id string) reply {
	a.t.Helper()
	return a.call("POST", "/v1/actions/"+id+"/check", nil)
}

// settles waits until a repeat of the write is answered with success.
func (a *agent) settles(n int) reply {
	a.t.Helper()
	var last reply
	eventually(a.t, 45*time.Second, "the held write is settled by itself", func() bool {
		last = a.do("shop", "buy", fmt.Sprintf(`{"n":%d}`, n))
		return last.status == 200
	})
	return last.replayed()
}

func historyOf(r reply) string {
	var words []string
	list, _ := r.body["history"].([]any)
	for _, line := range list {
		m, _ := line.(map[string]any)
		words = append(words, fmt.Sprint(m["event"], " ", m["detail"]))
	}
	return strings.Join(words, "\n")
}

// TestClassAIsSettledByOneResend: a lost answer, one byte-identical repeat under
// the vendor's key, one effect.
func TestClassAIsSettledByOneResend(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, cfg Config) {
		a, shop := shopping(t, heldConfig(t, cfg), "shop-a@1", vendortest.ShopConfig{Class: vendortest.Replaying})
		a.autoResend("shop")
		held := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown").fresh()
		require.Equal(t, "true", held.text("check.automatic"), "%s", held.raw)
		require.Equal(t, "resend", held.text("check.how"))
		done := a.settles(1)
		require.Equal(t, "check", done.text("evidence"))
		require.Equal(t, "thing_1", done.text("result.id"))
		require.Equal(t, map[string]int{"1": 1}, shop.Effects())
		require.Equal(t, 2, shop.Writes())
		view := a.must(200, "GET", "/v1/actions/"+held.text("action_id"), nil)
		require.Contains(t, historyOf(view), "checked resend: sending")
		require.Contains(t, historyOf(view), "checked resend: succeeded, status 201, sha256 ")
		rows := strings.Join(a.events("action_id="+held.text("action_id")), " ")
		require.Equal(t, 2, strings.Count(rows, "checked"), "%s", rows)
		require.Contains(t, rows, "succeeded checked")
	})
}

// TestClassAWaitsForAPersonUnlessTold: without auto_resend nothing is sent until
// somebody asks; the stored bytes are then sent as they were.
func TestClassAWaitsForAPersonUnlessTold(t *testing.T) {
	t.Parallel()
	cfg := heldConfig(t, embedded(t))
	app, _ := boot(t, cfg)
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.Replaying, Answer: firstLost})
	vendor := vendortest.New(t, shop.Serve)
	a := newAgent(t, app.URL())
	a.connect("shop", "shop-a@1", vendor.URL())
	held := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
	require.Equal(t, "false", held.text("check.automatic"))
	id := held.text("action_id")
	began := time.Now()
	eventually(t, 5*time.Second, "the reconciler has had its chances", func() bool { return time.Since(began) > time.Second })
	require.Equal(t, 1, vendor.Arrivals())
	got := a.check(id)
	require.Equal(t, 200, got.status, "%s", got.raw)
	require.Equal(t, "succeeded", got.text("verdict"), "%s", got.raw)
	require.Equal(t, "thing_1", got.text("action.result.id"))
	requests := vendor.Requests()
	require.Len(t, requests, 2)
	require.Equal(t, requests[0].Body, requests[1].Body)
	require.Equal(t, requests[0].Header, requests[1].Header, "the credential and the vendor's key included")
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
	require.Contains(t, metricsOf(t, app), `holdfast_checks_total{by="operator",verdict="succeeded"} 1`)
	a.check(id).is(409, "not_held")
	a.do("shop", "buy", `{"n":1}`).is(200, "succeeded").replayed()
}

// TestNoResendPastTheKeysLife: what the vendor may have forgotten is not sent
// again, however often somebody asks.
func TestNoResendPastTheKeysLife(t *testing.T) {
	t.Parallel()
	cfg := heldConfig(t, embedded(t))
	a, shop := shopping(t, cfg, "shop-a-short@1", vendortest.ShopConfig{
		Class: vendortest.Replaying, KeyLife: time.Millisecond, Answer: allLost})
	held := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
	eventually(t, 10*time.Second, "the key's life is over", func() bool {
		created := a.must(200, "GET", "/v1/actions/"+held.text("action_id"), nil).text("created_at")
		at, err := time.Parse(time.RFC3339, created)
		require.NoError(t, err)
		return time.Since(at) > 5*time.Second-heldLease+100*time.Millisecond
	})
	a.autoResend("shop")
	for range 3 {
		got := a.check(held.text("action_id"))
		if got.status == 200 { // 409 while the reconciler checks
			require.Equal(t, "still_unknown", got.text("verdict"))
		}
	}
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
	require.Equal(t, 1, shop.Writes())
}

// TestClassBIsSettledByItsID: by a look-up of the id we chose; what is not there
// once all has settled was not done, and the next do runs.
func TestClassBIsSettledByItsID(t *testing.T) {
	t.Parallel()
	onBothStores(t, func(t *testing.T, cfg Config) {
		a, shop := shopping(t, heldConfig(t, cfg), "shop-b@1", vendortest.ShopConfig{Class: vendortest.ClientID})
		held := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
		require.Equal(t, "lookup", held.text("check.how"))
		require.Equal(t, "true", held.text("check.automatic"))
		done := a.settles(1)
		require.Equal(t, "check", done.text("evidence"))
		require.Equal(t, "1", done.text("result.n"))
		require.Equal(t, map[string]int{"1": 1}, shop.Effects())
		require.Equal(t, 1, shop.Writes())
	})
}

func TestClassBProvesWhatWasNotDone(t *testing.T) {
	t.Parallel()
	cfg := embedded(t)
	app, _ := boot(t, heldConfig(t, cfg))
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.ClientID})
	vendor := vendortest.New(t, shop.Serve)
	vendor.Queue(vendortest.CloseAfterBody) // lost before the shop saw it
	a := newAgent(t, app.URL())
	a.connect("shop", "shop-b@1", vendor.URL())
	held := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
	began := time.Now()
	eventually(t, 15*time.Second, "the write is known not to be done", func() bool {
		return a.must(200, "GET", "/v1/actions/"+held.text("action_id"), nil).text("state") == "not_done"
	})
	require.Greater(t, time.Since(began), heldLease-500*time.Millisecond, "not before the deadline")
	require.Empty(t, shop.Effects())
	fresh := a.do("shop", "buy", `{"n":1}`).is(200, "succeeded").fresh()
	require.Equal(t, held.text("action_id"), fresh.text("previous_write.id"))
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
}

// TestClassCProvesDoneNeverNotDone: a marker that is found settles; one that is
// not leaves the write held, whatever the time.
func TestClassCProvesDoneNeverNotDone(t *testing.T) {
	t.Parallel()
	cfg := embedded(t)
	app, _ := boot(t, heldConfig(t, cfg))
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.MarkerOnly, Answer: firstLost})
	vendor := vendortest.New(t, shop.Serve)
	a := newAgent(t, app.URL())
	a.connect("shop", "shop-c@1", vendor.URL())
	a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
	require.Equal(t, "check", a.settles(1).text("evidence"))

	vendor.Queue(vendortest.CloseAfterBody) // the shop never sees it
	lost := a.do("shop", "buy", `{"n":2}`).is(423, "outcome_unknown")
	path := "/v1/actions/" + lost.text("action_id")
	eventually(t, 15*time.Second, "several look-ups past deadline and settle", func() bool {
		v := a.must(200, "GET", path, nil)
		deadline, err := time.Parse(time.RFC3339, v.text("deadline"))
		require.NoError(t, err)
		return time.Now().After(deadline.Add(1500*time.Millisecond)) && strings.Count(historyOf(v), "lookup: none") >= 2
	})
	require.Equal(t, "held", a.must(200, "GET", path, nil).text("state"))
	a.do("shop", "buy", `{"n":2}`).is(423, "outcome_unknown")
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
}

// TestClassDStaysHeldForAPerson.
func TestClassDStaysHeldForAPerson(t *testing.T) {
	t.Parallel()
	a, shop := shopping(t, heldConfig(t, embedded(t)), "shop-d@1", vendortest.ShopConfig{Class: vendortest.Forgetful})
	held := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
	id := held.text("action_id")
	require.Equal(t, "manual", held.text("check.how"))
	require.Equal(t, "false", held.text("check.automatic"))
	got := a.check(id)
	require.Equal(t, "still_unknown", got.text("verdict"))
	require.Contains(t, got.text("detail"), "a person has to look")
	a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
	a.call("POST", "/v1/actions/"+id+"/resolve", `{"outcome":"succeeded","result":{"id":"by hand"},"note":"seen"}`).is(200, "succeeded")
	require.Equal(t, "operator", a.do("shop", "buy", `{"n":1}`).is(200, "succeeded").text("evidence"))
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
	require.Zero(t, shop.Lookups())
}

// TestLateLandingAndLaggingSearch: a vendor that does the work long after our
// deadline, and a search that shows it later still, never lead to a second
// effect.
func TestLateLandingAndLaggingSearch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		connector string
		shop      vendortest.ShopConfig
	}{
		"lands late, by id":          {"shop-b-slow@1", vendortest.ShopConfig{Class: vendortest.ClientID, LandAfter: 2500 * time.Millisecond}},
		"lands late, by resend":      {"shop-a@1", vendortest.ShopConfig{Class: vendortest.Replaying, LandAfter: 2500 * time.Millisecond}},
		"lands late and search lags": {"shop-c@1", vendortest.ShopConfig{Class: vendortest.MarkerOnly, LandAfter: time.Second, SearchLag: 3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, shop := shopping(t, heldConfig(t, embedded(t)), c.connector, c.shop)
			a.autoResend("shop")
			a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown")
			require.Equal(t, "check", a.settles(1).text("evidence"))
			require.Equal(t, map[string]int{"1": 1}, shop.Effects())
		})
	}
}

// TestTwoRecordsAreAConflict: nobody but a person settles that.
func TestTwoRecordsAreAConflict(t *testing.T) {
	t.Parallel()
	a, shop := shopping(t, byHand(t, embedded(t)), "shop-c@1", vendortest.ShopConfig{Class: vendortest.MarkerOnly, Twice: true})
	id := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown").text("action_id")
	got := a.check(id)
	require.Equal(t, "conflict", got.text("verdict"), "%s", got.raw)
	require.Equal(t, "held", got.text("action.state"))
	require.Equal(t, "false", got.text("action.check.automatic"))
	require.Contains(t, historyOf(a.must(200, "GET", "/v1/actions/"+id, nil)), "lookup: many, status 200, matches 2")
	require.Equal(t, map[string]int{"1": 2}, shop.Effects(), "the vendor's doing: one write arrived")
	require.Equal(t, 1, shop.Writes())
}

// TestCheckSaysHow: with the write's own values, and what the manifest redacts
// left out.
func TestCheckSaysHow(t *testing.T) {
	t.Parallel()
	a, shop := shopping(t, byHand(t, embedded(t)), "shop-c@1", vendortest.ShopConfig{Class: vendortest.MarkerOnly})
	held := a.do("shop", "buy", `{"n":1,"secret":"hush-hush"}`).is(423, "outcome_unknown")
	require.NotContains(t, string(held.raw), "hush-hush")
	marker := strings.TrimPrefix(strings.Split(held.text("check.request.url"), "marker=")[1], "")
	marker, _, _ = strings.Cut(marker, "&")
	require.Contains(t, held.text("check.request.url"), "secret=[redacted]")
	require.Contains(t, held.text("check.detail"), "the marker "+marker)
	require.Equal(t, "GET", held.text("check.request.method"))
	require.Equal(t, "1s", held.text("check.settle"))
	require.Equal(t, "succeeded", a.check(held.text("action_id")).text("verdict"))
	require.Equal(t, 1, shop.Lookups())
}

func embedded(t *testing.T) Config {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
	return cfg
}
