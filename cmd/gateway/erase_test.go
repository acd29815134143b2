package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/vendortest"
)

// TestDeletingATenantErasesIt: of a deleted tenant's writes, answers and requests
// nothing is left in the store, while what is audited of them can still be read
// by the host, and by nobody else: not by the tenant that is made under its name.
func TestDeletingATenantErasesIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		cfg.AuditArchive = folderPrefix + t.TempDir()
		var served atomic.Int64
		vendor := vendortest.New(t, func(c *vendortest.Call) {
			c.JSON(200, fmt.Sprintf(`{"arrival":%d,"name":"personal-%d"}`, served.Add(1), served.Load()))
		})
		app, _ := boot(t, cfg)
		admin := &agent{t: t, base: app.URL(), key: testAdminKey}
		a, other := newAgent(t, app.URL()), newAgent(t, app.URL())
		for _, who := range []*agent{a, other} {
			who.connect("c", "probe@1", vendor.URL())
			for i := range 105 {
				who.do("c", "create", fmt.Sprintf(`{"n":%d}`, i)).is(200, "succeeded")
			}
			who.do("c", "create", `{"n":0}`).replayed()
		}
		old, err := app.directory.FindLife(t.Context(), a.name, "")
		require.NoError(t, err)
		kept := a.must(200, "GET", "/v1/audit?event=succeeded&limit=200", nil).body["data"].([]any)
		require.Len(t, kept, 105)
		figures := a.must(200, "GET", "/v1/usage", nil).body["total"]

		admin.must(204, "DELETE", "/v1/tenants/"+a.name, nil)
		admin.must(201, "POST", "/v1/tenants", map[string]any{"id": a.name})
		require.NotContains(t, string(admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit?event=succeeded", nil).raw), "succeeded", "of another life")
		young := &agent{t: t, base: a.base, name: a.name}
		young.key = admin.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"scopes": []string{"do", "read", "manage"}}).text("key")

		of := "?life=" + old.TenantID
		eventually(t, 30*time.Second, "the tenant is erased", func() bool {
			snap, err := app.store.Entries(t.Context(), ledger.Platform, ledger.EntryRange{Index: ledger.ByErasure, Limit: 1})
			return err == nil && len(snap) == 0
		})
		require.Empty(t, admin.must(200, "GET", "/v1/tenants/"+a.name+"/actions"+of, nil).body["data"])
		for _, index := range []ledger.Index{ledger.ByCreated, ledger.ByAlias, ledger.ByHold, ledger.ByLease, ledger.ByCheck, ledger.ByName} {
			left, err := app.store.Entries(t.Context(), old.Scope, ledger.EntryRange{Index: index, Limit: 1})
			require.NoError(t, err)
			require.Empty(t, left, "index %c", index)
		}

		// The audit is as it was, for the host alone.
		require.Equal(t, kept, admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit"+of+"&event=succeeded&limit=200", nil).body["data"])
		after := admin.must(200, "GET", "/v1/tenants/"+a.name+"/usage"+of, nil).body["total"]
		require.Equal(t, figures, after)
		require.NotContains(t, string(young.must(200, "GET", "/v1/audit?limit=200", nil).raw), "succeeded")
		require.Contains(t, string(young.must(200, "GET", "/v1/usage", nil).raw), `"writes":0`)
		young.connect("c", "probe@1", vendor.URL())
		young.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
		a.call("GET", "/v1/actions", nil).is(401, "unauthenticated")
		require.Len(t, other.must(200, "GET", "/v1/actions?limit=200", nil).body["data"], 105)
		proof := admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit/verify"+of, nil)
		require.Equal(t, []any{true, true}, []any{proof.body["whole"], proof.body["final"]}, "the log has a sealed end: %s", proof.raw)
		rows := admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit"+of+"&event=tenant.purged", nil)
		require.GreaterOrEqual(t, strings.Count(string(rows.raw), `"subject":"writes:`), 2, "step by step")
	})
}

// TestErasureSurvivesAKill: a gateway is killed when it has answered that the
// tenant is deleted, and again while it erases; the next one ends it.
func TestErasureSurvivesAKill(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, vendortest.OK)
		p := spawn(t, cfg)
		admin := &agent{t: t, base: p.url(), key: testAdminKey}
		a := newAgent(t, p.url())
		a.connect("c", "probe@1", vendor.URL())
		var writers sync.WaitGroup
		for w := range 8 {
			writers.Go(func() {
				for i := range 30 {
					a.do("c", "create", fmt.Sprintf(`{"n":%d}`, 100*w+i))
				}
			})
		}
		writers.Wait()
		first := a.auditRows()[0]
		require.Equal(t, audit.TenantCreated, first.Event)
		life := first.Subject
		admin.must(204, "DELETE", "/v1/tenants/"+a.name, nil)
		of := "/v1/tenants/" + a.name + "/audit?life=" + life + "&event=tenant.purged&limit=200"
		erased := func() int {
			return strings.Count(string(admin.must(200, "GET", of, nil).raw), `"subject":"writes:`)
		}
		for _, after := range []int{0, 1} {
			eventually(t, 60*time.Second, "it erases", func() bool { return erased() >= after })
			p.kill()
			p = spawn(t, cfg)
			admin.base = p.url()
		}
		eventually(t, 60*time.Second, "nothing is left", func() bool {
			return len(admin.must(200, "GET", "/v1/tenants/"+a.name+"/actions?life="+life, nil).body["data"].([]any)) == 0
		})
		require.Equal(t, 3, erased(), "240 writes, a hundred in each step")
		require.Contains(t, string(admin.must(200, "GET", strings.Replace(of, "tenant.purged", "succeeded", 1), nil).raw), `"event":"succeeded"`)
	})
}
