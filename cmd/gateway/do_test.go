package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// TestOneWrite is the contract's plain story against a vendor that counts.
func TestOneWrite(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, func(c *vendortest.Call) {
			c.JSON(201, `{"id":9007199254740993, "list":[], "amount": 1.10}`)
		})
		a.connect("billing", "probe@1", vendor.URL())

		first := a.do("billing", "create", `{"n":1,"pad":"x"}`).is(200, "succeeded").fresh()
		require.Equal(t, `{"id":9007199254740993, "list":[], "amount": 1.10}`, rawMember(t, first.raw, "result"))
		require.Equal(t, "201", first.text("vendor.status"))
		require.Equal(t, "derived", first.text("key.source"))
		require.Len(t, first.text("key.id"), 16)
		require.Equal(t, "vendor", first.text("evidence"))
		require.Equal(t, "/v1/actions/"+first.text("id"), first.header.Get("Location"))
		require.Equal(t, first.text("request_id"), first.header.Get("Request-Id"))

		again := a.do("billing", "create", `{"n":1,"pad":"x"}`).is(200, "succeeded").replayed()
		requireSameResult(t, first, again)
		require.Equal(t, "1", again.text("replays"))
		require.Equal(t, first.text("request_id"), again.text("original.request_id"))
		require.Contains(t, again.text("notice"), "Not sent again")
		require.NotEqual(t, first.text("request_id"), again.text("request_id"))

		reordered := a.call("POST", "/v1/do", `{"body": {"pad":"x",  "n":1.0}, "action":"create", "connection":"billing"}`)
		reordered.is(200, "succeeded").replayed()
		require.Equal(t, "2", reordered.text("replays"))
		require.Equal(t, 1, vendor.Arrivals())

		a.do("billing", "create", `{"n":2}`).is(200, "succeeded").fresh()
		require.Equal(t, 2, vendor.Arrivals())

		got := a.must(200, "GET", "/v1/actions/"+first.text("id"), nil)
		require.Equal(t, rawMember(t, first.raw, "result"), rawMember(t, got.raw, "result"))
		require.Equal(t, []string{"claimed", "succeeded", "replayed", "replayed"}, a.events("order=oldest&action_id="+first.text("id")))
	})
}

func TestOwnKeys(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, vendortest.OK)
		a.connect("c", "probe@1", vendor.URL())
		key := `"idempotency_key":"order 7"`
		first := a.do("c", "create", `{"n":1}`, key).is(200, "succeeded").fresh()
		require.Equal(t, "supplied", first.text("key.source"))
		a.do("c", "create", `{"n":1}`, key).is(200, "succeeded").replayed()
		a.call("POST", "/v1/do", doBody("c", "create", `{"n":1}`), "Idempotency-Key", `"order 7"`).is(200, "succeeded").replayed()
		require.Equal(t, "use_new_key", a.do("c", "create", `{"n":2}`, key).is(422, "key_reused").text("next"))
		a.call("POST", "/v1/do", doBody("c", "create", `{"n":1}`, key), "Idempotency-Key", "order 8").is(400, "invalid_key")
		require.Equal(t, 1, vendor.Arrivals())

		// The same request under another key, or none, is another write once the
		// first has settled.
		a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
		a.do("c", "create", `{"n":1}`, `"idempotency_key":"order 9"`).is(200, "succeeded").fresh()
		require.Equal(t, 3, vendor.Arrivals())
	})
}

func TestRefusalsAreReplayedAndRunAgainOnRequest(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, vendortest.Status(422))
		a.connect("c", "probe@1", vendor.URL())
		first := a.do("c", "create", `{"n":1}`).is(424, "vendor_refused").fresh()
		a.do("c", "create", `{"n":1}`).is(424, "vendor_refused").replayed()
		require.Equal(t, 1, vendor.Arrivals())
		vendor.Use(vendortest.OK)
		again := a.do("c", "create", `{"n":1}`, `"retry_refused":true`).is(200, "succeeded").fresh()
		require.Equal(t, first.text("action_id"), again.text("previous_write.id"))
		require.Equal(t, "refused", again.text("previous_write.state"))
		a.do("c", "create", `{"n":1}`, `"retry_refused":true`).is(200, "succeeded").replayed()
		require.Equal(t, 2, vendor.Arrivals())
		keys := vendor.Requests()
		require.NotEqual(t, keys[0].Header.Get("Idempotency-Key"), keys[1].Header.Get("Idempotency-Key"), "vendors replay refusals")
	})
}

func TestTwinsAcrossKeys(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, vendortest.CloseAfterBody)
		a.connect("c", "probe@1", vendor.URL())
		key := func(n int) string { return fmt.Sprintf(`"idempotency_key":"attempt-%d"`, n) }
		first := a.do("c", "create", `{"n":1}`, key(1)).is(423, "outcome_unknown")
		for n := 2; n < 6; n++ {
			r := a.do("c", "create", `{"n":1}`, key(n)).is(423, "twin_unsettled")
			require.Equal(t, first.text("action_id"), r.text("action_id"))
			require.Equal(t, "check_vendor", r.text("next"))
		}
		require.Equal(t, 1, vendor.Arrivals())
		vendor.Use(vendortest.OK)
		a.do("c", "create", `{"n":1}`, key(6), `"allow_duplicate":true`).is(200, "succeeded").fresh()
		require.Equal(t, 2, vendor.Arrivals())
		a.must(200, "POST", "/v1/actions/"+first.text("action_id")+"/resolve",
			`{"outcome":"succeeded","result":{"found":true},"note":"there it is"}`)
		r := a.do("c", "create", `{"n":1}`, key(2)).is(200, "succeeded").replayed()
		require.Equal(t, `{"found":true}`, rawMember(t, r.raw, "result"))
		require.Equal(t, "operator", r.text("evidence"))
		require.Equal(t, 2, vendor.Arrivals())
	})
}

func TestHeldWritesAreResolved(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, vendortest.CloseAfterBody)
		a.connect("c", "probe@1", vendor.URL())
		first := a.do("c", "create", `{"n":1}`).is(423, "outcome_unknown")
		id := first.text("action_id")

		listed := a.must(200, "GET", "/v1/actions?state=held", nil)
		require.Contains(t, string(listed.raw), id)
		checked := a.must(200, "POST", "/v1/actions/"+id+"/check", "{}")
		require.Equal(t, "still_unknown", checked.text("verdict"))

		a.must(200, "POST", "/v1/actions/"+id+"/resolve", `{"outcome":"not_performed","note":"nothing there"}`)
		a.call("POST", "/v1/actions/"+id+"/resolve", `{"outcome":"succeeded","note":"too late"}`).is(409, "not_held")
		vendor.Use(vendortest.OK)
		again := a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
		require.Equal(t, id, again.text("previous_write.id"))
		require.Equal(t, 2, vendor.Arrivals())
		sent := vendor.Requests()
		require.Equal(t, sent[0].Header.Get("Idempotency-Key"), sent[1].Header.Get("Idempotency-Key"),
			"the vendor that remembers the first try will not do it twice")
	})
}

func TestDryRunDoesNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, vendortest.OK)
		a.connect("c", "probe@1", vendor.URL())
		would := func(body string, extra ...string) string {
			r := a.do("c", "create", body, append(extra, `"dry_run":true`)...)
			require.Equal(t, 200, r.status, "%s", r.raw)
			return r.text("would")
		}
		require.Equal(t, "execute", would(`{"n":1}`))
		require.Equal(t, 0, vendor.Arrivals())
		a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
		require.Equal(t, "replay", would(`{"n":1}`))
		require.Equal(t, "1", a.do("c", "create", `{"n":1}`).replayed().text("replays"))
		vendor.Use(vendortest.CloseAfterBody)
		a.do("c", "create", `{"n":2}`).is(423, "outcome_unknown")
		require.Equal(t, "held", would(`{"n":2}`))
		vendor.Use(vendortest.Status(404))
		a.do("c", "create", `{"n":3}`).is(424, "vendor_refused")
		require.Equal(t, "refused", would(`{"n":3}`))
		a.do("c", "create", `{"wrong":1}`, `"dry_run":true`).is(400, "invalid_body")
	})
}

// TestDuplicatesInFlight: while the vendor works, the same request gets 409 with
// a hint, or waits for the answer if it asks to.
func TestDuplicatesInFlight(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		finish := make(chan struct{})
		vendor := vendortest.New(t, gated(finish, vendortest.OK))
		a.connect("c", "probe@1", vendor.URL())
		results := make(chan reply, 2)
		ask := func(header map[string]string) {
			r, err := a.send(t.Context(), "POST", "/v1/do", doBody("c", "create", `{"n":1}`), header)
			if err == nil {
				results <- r
			}
		}
		go ask(nil)
		vendor.AwaitArrivals(1)
		busy := a.do("c", "create", `{"n":1}`).is(409, "in_flight").fresh()
		busy.retryAfter()
		require.Equal(t, "wait_and_repeat", busy.text("next"))
		go ask(map[string]string{"Prefer": "wait=20"})
		eventually(t, 5*time.Second, "the waiting duplicate has left its row", func() bool {
			return strings.Count(strings.Join(a.events("event=in_flight"), " "), "in_flight") == 2
		})
		close(finish)
		replayed := 0
		for range 2 {
			r := (<-results).is(200, "succeeded")
			if r.header.Get("Idempotent-Replayed") == "true" {
				replayed++
			}
		}
		require.Equal(t, 1, replayed)
		require.Equal(t, 1, vendor.Arrivals())
	})
}

// TestFiftyAtOnce: fifty identical requests, one arrival, one fresh answer.
func TestFiftyAtOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, vendortest.OK)
		a.connect("c", "probe@1", vendor.URL())
		fiftyAtOnce(t, vendor, a)
	})
}

func fiftyAtOnce(t *testing.T, vendor *vendortest.Vendor, agents ...*agent) {
	t.Helper()
	replies := make([]reply, 50)
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range replies {
		wg.Go(func() {
			<-start
			if r, err := agents[i%len(agents)].send(t.Context(), "POST", "/v1/do", doBody("c", "create", `{"n":50}`), nil); err == nil {
				replies[i] = r
			}
		})
	}
	close(start)
	wg.Wait()
	fresh := 0
	for _, r := range replies {
		switch {
		case r.status == 200 && r.header.Get("Idempotent-Replayed") == "false":
			fresh++
		case r.status == 200:
			r.replayed()
		default:
			r.is(409, "in_flight").retryAfter()
		}
	}
	require.Equal(t, 1, fresh)
	require.Equal(t, 1, vendor.Arrivals())
}

// TestCallerHangsUp: the write goes on, and the repeat gets its answer.
func TestCallerHangsUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		finish := make(chan struct{})
		vendor := vendortest.New(t, gated(finish, vendortest.OK))
		a.connect("c", "probe@1", vendor.URL())
		ctx, hangUp := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = a.send(ctx, "POST", "/v1/do", doBody("c", "create", `{"n":1}`), nil)
		}()
		vendor.AwaitArrivals(1)
		hangUp()
		<-gone
		close(finish)
		eventually(t, 5*time.Second, "the answer is stored", func() bool {
			return a.do("c", "create", `{"n":1}`).status == 200
		})
		a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
		require.Equal(t, 1, vendor.Arrivals())
	})
}

// TestWhatIsSettledReplaysWhateverHasChanged.
func TestWhatIsSettledReplaysWhateverHasChanged(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, vendortest.OK)
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
		replays := func(a *agent) {
			t.Helper()
			a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
			require.Equal(t, 1, vendor.Arrivals())
		}

		a.must(200, "PUT", "/v1/connections/c", `{"paused":true}`)
		replays(a)
		require.Equal(t, "ask_operator", a.do("c", "create", `{"n":2}`).is(403, "connection_paused").text("next"))
		a.must(200, "PUT", "/v1/connections/c", `{"paused":false}`)
		require.NoError(t, app.Close())

		// A tightened schema, then a broken file, each found by a new start.
		tightened := strings.ReplaceAll(testManifests()["probe"], "{n: {type: integer}", "{n: {type: integer, minimum: 100}")
		tightened = strings.ReplaceAll(tightened, "version: 1.0.0", "version: 1.0.1")
		writeManifest(t, cfg.ConnectorsDir, "probe", "1.0.1", tightened)
		app, _ = boot(t, cfg)
		replays(a.at(app.URL()))
		a.at(app.URL()).do("c", "create", `{"n":2}`).is(400, "invalid_body")
		require.NoError(t, app.Close())

		for _, version := range []string{"1.0.0", "1.0.1"} {
			writeManifest(t, cfg.ConnectorsDir, "probe", version, "this: [is broken")
		}
		app, log := boot(t, cfg)
		require.Contains(t, log.String(), "connectors not loaded")
		replays(a.at(app.URL()))
		require.Equal(t, "ask_operator", a.at(app.URL()).do("c", "create", `{"n":200}`).is(503, "not_sent").text("next"))
		require.Equal(t, 1, vendor.Arrivals())
	})
}
