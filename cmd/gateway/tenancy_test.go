package main

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// everywhere is how long a change of who may do what takes to reach every
// replica; the one that took it knows at once.
const everywhere = 2 * time.Second

// within insists that an answer comes about inside of the bound, counted from
// since.
func within(t *testing.T, since time.Time, what string, ok func() bool) {
	t.Helper()
	eventually(t, everywhere, what, ok)
	require.Less(t, time.Since(since), everywhere, what)
}

// TestAccessEndsEverywhere: two processes on one Redis, both of which have just
// seen the key work. What one of them is told ends access there at once, on the
// other within two seconds, and new writes on both at once: not one more reaches
// the vendor.
func TestAccessEndsEverywhere(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	here, there := spawn(t, cfg), spawn(t, cfg)
	vendor := vendortest.New(t, func(c *vendortest.Call) { c.JSON(200, `{"arrival":1}`) })
	admin := &agent{t: t, base: here.url(), key: testAdminKey}

	// known makes a tenant whose key both processes remember.
	n := 0
	known := func() (near, far *agent, id string) {
		near = newAgent(t, here.url())
		near.connect("c", "probe@1", vendor.URL())
		made := admin.must(201, "POST", "/v1/tenants/"+near.name+"/keys", map[string]any{"scopes": []string{"do", "read"}})
		near.key = made.text("key")
		far = near.at(there.url())
		far.do("c", "create", `{"n":0}`).is(200, "succeeded")
		near.do("c", "create", `{"n":0}`).is(200, "succeeded").replayed()
		far.must(200, "GET", "/v1/actions", nil)
		return near, far, made.text("id")
	}
	// stopped makes new writes until the answer is the final one; none is sent.
	stopped := func(a *agent, since time.Time, status int, code string) {
		t.Helper()
		sent := vendor.Arrivals()
		within(t, since, "new writes are answered "+code, func() bool {
			n++
			r := a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n))
			require.NotEqual(t, 200, r.status, "%s", r.raw)
			return r.status == status && r.text("code") == code
		})
		require.Equal(t, sent, vendor.Arrivals())
	}

	near, far, id := known()
	since := time.Now()
	admin.must(204, "DELETE", "/v1/tenants/"+near.name+"/keys/"+id, nil)
	near.call("GET", "/v1/actions", nil).is(401, "unauthenticated")
	stopped(far, since, 401, "unauthenticated")
	within(t, since, "the key is out on the other replica", func() bool { return far.call("GET", "/v1/actions", nil).status == 401 })

	near, far, _ = known()
	since = time.Now()
	admin.must(200, "PATCH", "/v1/tenants/"+near.name, map[string]any{"suspended": true})
	n++
	near.do("c", "create", fmt.Sprintf(`{"n":%d}`, n)).is(403, "tenant_suspended")
	stopped(far, since, 403, "tenant_suspended")
	far.do("c", "create", `{"n":0}`).is(200, "succeeded").replayed()
	admin.must(200, "PATCH", "/v1/tenants/"+near.name, map[string]any{"suspended": false})
	near.do("c", "create", fmt.Sprintf(`{"n":%d}`, n)).is(200, "succeeded")
	within(t, time.Now(), "the other replica writes again", func() bool {
		n++
		return far.do("c", "create", fmt.Sprintf(`{"n":%d}`, n)).status == 200
	})

	near, far, _ = known()
	since = time.Now()
	admin.must(204, "DELETE", "/v1/tenants/"+near.name, nil)
	near.call("GET", "/v1/actions", nil).is(401, "unauthenticated")
	stopped(far, since, 401, "unauthenticated")
}

// TestReadingEndsEverywhere: a key that only reads takes no new write, so nothing
// but the two seconds bound it on the other replica.
func TestReadingEndsEverywhere(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	here, _ := boot(t, cfg)
	there, _ := boot(t, cfg)
	near := newAgent(t, here.URL())
	far := near.at(there.URL())
	far.must(200, "GET", "/v1/actions", nil)
	since := time.Now()
	(&agent{t: t, base: here.URL(), key: testAdminKey}).must(204, "DELETE", "/v1/tenants/"+near.name, nil)
	near.call("GET", "/v1/actions", nil).is(401, "unauthenticated")
	within(t, since, "reading ends", func() bool { return far.call("GET", "/v1/actions", nil).status == 401 })
}

// TestDeletedTenantIsAuditable: access is over, the host still reads the audit of
// what was done (the writes themselves are erased), and a tenant made under the same id begins with an empty log.
func TestDeletedTenantIsAuditable(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, func(c *vendortest.Call) { c.JSON(200, `{"arrival":1}`) })
		app, _ := boot(t, cfg)
		admin := &agent{t: t, base: app.URL(), key: testAdminKey}
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		done := a.do("c", "create", `{"n":1}`).is(200, "succeeded").text("id")
		admin.must(204, "DELETE", "/v1/tenants/"+a.name, nil)

		a.call("GET", "/v1/actions", nil).is(401, "unauthenticated")
		admin.must(404, "GET", "/v1/tenants/"+a.name, nil)
		require.Contains(t, string(admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit?action_id="+done, nil).raw), "claimed")
		rows := admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit?event=tenant.created", nil)
		list, _ := rows.body["data"].([]any)
		first, _ := list[0].(map[string]any)
		life := fmt.Sprint(first["subject"])

		admin.must(201, "POST", "/v1/tenants", map[string]any{"id": a.name})
		require.NotContains(t, string(admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit", nil).raw), done)
		require.Contains(t, string(admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit?life="+life, nil).raw), done)
		admin.must(404, "GET", "/v1/tenants/"+newTenantName()+"/audit?life="+life, nil)
	})
}

// TestTenantsNeverMeet: tenants, connections and keys whose names, joined with
// any separator or none, read the same; every write is its own.
func TestTenantsNeverMeet(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		var served atomic.Int64
		vendor := vendortest.New(t, func(c *vendortest.Call) { c.JSON(200, fmt.Sprintf(`{"arrival":%d}`, served.Add(1))) })
		app, _ := boot(t, cfg)
		admin := &agent{t: t, base: app.URL(), key: testAdminKey}
		prefix := newTenantName()
		var agents []*agent
		for _, name := range []string{prefix, prefix + "-c", prefix + "-c-c", prefix + "c"} {
			admin.must(201, "POST", "/v1/tenants", map[string]any{"id": name})
			key := admin.must(201, "POST", "/v1/tenants/"+name+"/keys", map[string]any{"scopes": []string{"do", "read", "manage"}}).text("key")
			agents = append(agents, &agent{t: t, base: app.URL(), name: name, key: key})
		}
		type place struct{ connection, action, body, key string }
		var places []place
		for _, connection := range []string{"c", "c-c", "c-c-c", "cc"} {
			for _, key := range []string{"", "k", "c:create:k", "create/k"} {
				places = append(places, place{connection: connection, action: "create", body: `{"n":1}`, key: key})
			}
		}
		seen := map[string]string{}
		run := func(fresh bool) {
			for _, a := range agents {
				for _, p := range places {
					var extra []string
					if p.key != "" {
						extra = append(extra, fmt.Sprintf(`"idempotency_key":%q`, p.key))
					}
					r := a.do(p.connection, p.action, p.body, extra...).is(200, "succeeded")
					where := fmt.Sprint(a.name, p)
					if fresh {
						r.fresh()
						seen[where] = r.text("result.arrival")
						continue
					}
					r.replayed()
					require.Equal(t, seen[where], r.text("result.arrival"), where)
				}
			}
		}
		for _, a := range agents {
			for _, connection := range []string{"c", "c-c", "c-c-c", "cc"} {
				a.connect(connection, "probe@1", vendor.URL())
			}
		}
		run(true)
		run(false)
		values := map[string]bool{}
		for _, v := range seen {
			values[v] = true
		}
		require.Len(t, values, len(agents)*len(places), "no two writes share an answer")
		require.Equal(t, len(values), vendor.Arrivals())
	})
}

// TestMadeAgainIsAnother: a connection, then a tenant, deleted and made again
// under the same name knows nothing of the writes of the first.
func TestMadeAgainIsAnother(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		var served atomic.Int64
		vendor := vendortest.New(t, func(c *vendortest.Call) { c.JSON(200, fmt.Sprintf(`{"arrival":%d}`, served.Add(1))) })
		app, _ := boot(t, cfg)
		admin := &agent{t: t, base: app.URL(), key: testAdminKey}
		a := newAgent(t, app.URL())
		// both makes the write under a derived and under an own key.
		both := func(derived, supplied string, check func(reply) reply) {
			t.Helper()
			require.Equal(t, derived, check(a.do("c", "create", `{"n":1}`).is(200, "succeeded")).text("result.arrival"))
			require.Equal(t, supplied, check(a.do("c", "create", `{"n":1}`, `"idempotency_key":"k"`).is(200, "succeeded")).text("result.arrival"))
		}
		a.connect("c", "probe@1", vendor.URL())
		both("1", "2", reply.fresh)
		both("1", "2", reply.replayed)
		a.must(204, "DELETE", "/v1/connections/c", nil)
		a.do("c", "create", `{"n":1}`).is(404, "unknown_connection")
		a.connect("c", "probe@1", vendor.URL())
		both("3", "4", reply.fresh)

		old := a.key
		admin.must(204, "DELETE", "/v1/tenants/"+a.name, nil)
		admin.must(201, "POST", "/v1/tenants", map[string]any{"id": a.name})
		a.key = admin.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"scopes": []string{"do", "read", "manage"}}).text("key")
		a.do("c", "create", `{"n":1}`).is(404, "unknown_connection")
		a.connect("c", "probe@1", vendor.URL())
		both("5", "6", reply.fresh)
		require.Equal(t, 6, vendor.Arrivals())
		require.Len(t, a.must(200, "GET", "/v1/actions", nil).body["data"], 2)
		a.key = old
		a.call("GET", "/v1/actions", nil).is(401, "unauthenticated")
	})
}

// TestAConnectionChangesEverywhereAtOnce: a replica that remembers a connection
// answers by it as it is, from the moment that another replica has changed it.
func TestAConnectionChangesEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	here, _ := boot(t, cfg)
	there, _ := boot(t, cfg)
	vendor, other := vendortest.New(t, vendortest.OK), vendortest.New(t, vendortest.OK)
	near := newAgent(t, here.URL())
	near.connect("c", "probe@1", vendor.URL())
	far := near.at(there.URL())
	far.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	far.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()

	pause := func(on bool) { near.must(200, "PUT", "/v1/connections/c", map[string]any{"paused": on}) }
	pause(true)
	far.do("c", "create", `{"n":2}`).is(403, "connection_paused")
	far.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
	pause(false)
	far.do("c", "create", `{"n":2}`).is(200, "succeeded").fresh()
	require.Equal(t, 2, vendor.Arrivals())

	near.must(204, "DELETE", "/v1/connections/c", nil)
	far.do("c", "create", `{"n":1}`).is(404, "unknown_connection")
	near.connect("c", "probe@1", other.URL())
	far.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	near.must(204, "DELETE", "/v1/connections/c", nil)
	near.connect("c", "probe@1", vendor.URL())
	far.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	require.Equal(t, 3, vendor.Arrivals())
	require.Equal(t, 1, other.Arrivals())
}
