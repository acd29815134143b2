package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// accounts is over how many connections the held writes of the test of two
// replicas are spread, as a gateway looks at one connection at a time.
const accounts = 10

// hold makes n held writes at once and returns when all of them are.
func hold(t *testing.T, a *agent, n int) {
	t.Helper()
	var all sync.WaitGroup
	errs := make(chan string, n)
	slots := make(chan struct{}, 32)
	for i := range n {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			r, err := a.send(t.Context(), "POST", "/v1/do", doBody(fmt.Sprintf("shop%d", i%accounts), "buy", fmt.Sprintf(`{"n":%d}`, i)), nil)
			if err != nil || r.status != 423 {
				errs <- fmt.Sprint(err, r.status, string(r.raw))
			}
		})
	}
	all.Wait()
	close(errs)
	for e := range errs {
		require.Fail(t, "not held", e)
	}
}

// TestThousandHeldWritesOverTwoReplicas (fewer under the race detector): with a restart in the middle, every
// write is settled, none has a second effect, and no write ever has two
// look-ups under way.
func TestThousandHeldWritesOverTwoReplicas(t *testing.T) {
	t.Parallel()
	cfg := heldConfig(t, testConfig(t))
	cfg.Store = redisShared.url(t)
	cfg.breakerRest = 50 * time.Millisecond // every answer is lost here
	idle := cfg
	idle.reconcile.Every = time.Hour
	first, _ := boot(t, idle)
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.MarkerOnly, Answer: allUnclear})
	vendor := vendortest.New(t, shop.Serve)
	a := newAgent(t, first.URL())
	for i := range accounts {
		a.connect(fmt.Sprintf("shop%d", i), "shop-c@1", vendor.URL())
	}
	hold(t, a, fanned)
	require.Len(t, shop.Effects(), fanned)

	one, _ := boot(t, cfg)
	two, _ := boot(t, cfg)
	eventually(t, 30*time.Second, "some are settled", func() bool { return shop.Lookups() > fanned/10 })
	require.NoError(t, one.Close())
	three, _ := boot(t, cfg)
	a = a.at(three.URL())
	eventually(t, 60*time.Second, "all are settled", func() bool { return heldLeft(a) == 0 })
	require.LessOrEqual(t, shop.Crowd(), 1, "at most one check of a write at a time")
	require.Equal(t, fanned, shop.Writes(), "nothing was sent again")
	for n, effects := range shop.Effects() {
		require.Equal(t, 1, effects, n)
	}
	a.at(two.URL()).do("shop7", "buy", `{"n":7}`).is(200, "succeeded").replayed()
}

// allUnclear loses every answer without tripping over a broken connection.
func allUnclear(int) vendortest.Behaviour {
	return func(c *vendortest.Call) { c.JSON(420, `{"error":"lost"}`) }
}

func heldLeft(a *agent) int {
	a.t.Helper()
	r := a.must(200, "GET", "/v1/actions?state=held&limit=200", nil)
	list, _ := r.body["data"].([]any)
	if r.text("next_cursor") != "" {
		return len(list) + 1
	}
	return len(list)
}

// TestKilledInTheMiddleOfACheck: the check is made again by who is left, once
// the lease of the dead one is over.
func TestKilledInTheMiddleOfACheck(t *testing.T) {
	t.Parallel()
	cfg := heldConfig(t, testConfig(t))
	cfg.Store = redisShared.url(t)
	cfg.Lease = 5 * time.Second
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.MarkerOnly, Answer: firstLost})
	vendor := vendortest.New(t, shop.Serve)
	left, _ := boot(t, cfg)
	doomed := spawn(t, cfg, "--lease="+cfg.Lease.String())
	a := newAgent(t, doomed.url())
	a.connect("shop", "shop-c-slow@1", vendor.URL())
	id := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown").text("action_id")
	vendor.Queue(vendortest.Hang) // the look-up, of which the gateway dies
	go func() { _, _ = a.send(t.Context(), "POST", "/v1/actions/"+id+"/check", nil, nil) }()
	vendor.AwaitArrivals(2)
	doomed.kill()

	a = a.at(left.URL())
	a.check(id).is(409, "check_running").retryAfter()
	a.call("POST", "/v1/actions/"+id+"/resolve", `{"outcome":"not_performed","note":"?"}`).is(409, "check_running").retryAfter()
	require.Equal(t, "check", a.settles(1).text("evidence"))
	require.Equal(t, map[string]int{"1": 1}, shop.Effects())
}

// TestTwoOperators: of two resolutions at once one is made, and the other is
// told that there is nothing held.
func TestTwoOperators(t *testing.T) {
	t.Parallel()
	a, _ := shopping(t, byHand(t, embedded(t)), "shop-d@1", vendortest.ShopConfig{Class: vendortest.Forgetful})
	id := a.do("shop", "buy", `{"n":1}`).is(423, "outcome_unknown").text("action_id")
	var both sync.WaitGroup
	got := make([]reply, 2)
	for i, body := range []string{`{"outcome":"succeeded","note":"saw it"}`, `{"outcome":"not_performed","note":"saw nothing"}`} {
		both.Go(func() { got[i], _ = a.send(t.Context(), "POST", "/v1/actions/"+id+"/resolve", body, nil) })
	}
	both.Wait()
	statuses := []int{got[0].status, got[1].status}
	require.ElementsMatch(t, []int{200, 409}, statuses, "%s %s", got[0].raw, got[1].raw)
}

// TestResolvingWithoutAVendorThatWouldNotice: who says that a write was not
// performed is told where the vendor cannot catch a mistake.
func TestResolvingWithoutAVendorThatWouldNotice(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, byHand(t, embedded(t)))
	shop := vendortest.NewShop(vendortest.ShopConfig{Class: vendortest.Replaying, Answer: allLost})
	vendor := vendortest.New(t, shop.Serve)
	a := newAgent(t, app.URL())
	for connector, warns := range map[string]bool{"shop-a@1": false, "shop-b@1": true, "shop-d@1": false} {
		name := strings.TrimSuffix(connector, "@1")
		a.connect(name, connector, vendor.URL())
		id := a.do(name, "buy", `{"n":1}`).is(423, "outcome_unknown").text("action_id")
		var got reply
		eventually(t, 10*time.Second, "the vendor may not be doing it any more", func() bool {
			got = a.call("POST", "/v1/actions/"+id+"/resolve", `{"outcome":"not_performed","note":"?"}`)
			return got.status == 200 || got.text("code") != "still_possible"
		})
		require.Equal(t, 200, got.status, "%s", got.raw)
		require.Equal(t, warns, got.text("warning") != "", "%s: %s", connector, got.raw)
	}
}

// sdk is a client with the default retry policy of common SDKs: three tries, on
// connection errors, 408, 409, 429 and 5xx, waiting as long as it is told (here
// at most a tenth of a second, so that tests end).
func sdk(t *testing.T, a *agent, body string) reply {
	t.Helper()
	var last reply
	for range 3 {
		r, err := a.send(t.Context(), "POST", "/v1/do", body, nil)
		if err == nil {
			last = r
			if r.status != 408 && r.status != 409 && r.status != 429 && r.status < 500 {
				return r
			}
		}
		timer := time.NewTimer(100 * time.Millisecond)
		<-timer.C
	}
	return last
}

// TestRetryingClientsAndEveryVendorFault: whatever the vendor does, a client that
// retries as SDKs do causes one effect at most, and the last thing it is told says
// what to do.
func TestRetryingClientsAndEveryVendorFault(t *testing.T) {
	t.Parallel()
	cfg := byHand(t, embedded(t))
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	for i, f := range vendortest.Faults() {
		var mu sync.Mutex
		effects := 0
		vendor := vendortest.New(t, func(c *vendortest.Call) {
			mu.Lock()
			effects++
			mu.Unlock()
			c.JSON(201, `{"id":"fresh","n":0}`)
		})
		name := fmt.Sprintf("fault%d", i)
		a.connect(name, "shop-c@1", vendor.URL())
		vendor.Queue(func(c *vendortest.Call) {
			if did := f.Status != 422 && f.Status != 429; did { // those say that nothing was done
				mu.Lock()
				effects++
				mu.Unlock()
			}
			f.Behaviour(c)
		})
		last := sdk(t, a, doBody(name, "buy", fmt.Sprintf(`{"n":%d}`, i)))
		mu.Lock()
		require.LessOrEqual(t, effects, 1, f.Name)
		mu.Unlock()
		switch last.status {
		case 200:
		case 423:
			require.Equal(t, "outcome_unknown", last.text("code"), "%s: %s", f.Name, last.raw)
			require.Contains(t, last.text("detail"), "will not be sent again", f.Name)
			require.Contains(t, last.text("check.detail"), "marker", f.Name)
			require.NotEmpty(t, last.text("action_id"), f.Name)
		case 424:
			require.Contains(t, last.text("detail"), "did not do this", f.Name)
		default:
			require.Fail(t, f.Name, "%d %s", last.status, last.raw)
		}
	}
}

// metricsOf reads the gateway's metrics.
func metricsOf(t *testing.T, app *App) string {
	t.Helper()
	u, err := url.JoinPath(app.AdminURL(), "metrics")
	require.NoError(t, err)
	resp, err := http.Get(u)
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return string(raw)
}
