package tenants_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

func TestCreatedTenantIsFound(t *testing.T) {
	f := newFixture(t)
	made, err := f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{
		ID: "acme", Name: "Acme Ltd. 株式会社", Limits: tenants.Limits{WritesPerSecond: 10},
	})
	require.NoError(t, err)
	require.Equal(t, "acme", made.Tenant)
	require.Regexp(t, `^[0-9a-f]{32}$`, made.TenantID)
	require.Equal(t, ledger.ScopeOf(made.TenantID), made.Scope)
	require.Equal(t, noon, made.CreatedAt)
	require.Equal(t, made, f.get("acme"))
	require.Equal(t, []string{"acme"}, f.list())
	require.Equal(t, []ledger.Scope{made.Scope}, f.scopes())

	require.Equal(t, []audit.Row{{
		Event: audit.TenantCreated, At: noon, Tenant: "acme", Actor: f.caller.Actor, Front: "rest", RequestID: "req_1", Subject: made.TenantID,
	}}, f.rows(made.Scope))
	require.Equal(t, []string{"tenant.reserved"}, f.events(ledger.Platform))

	_, err = f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "acme"})
	require.ErrorIs(t, err, tenants.ErrExists)
	require.Equal(t, made, f.get("acme"))
	_, err = f.GetTenant(t.Context(), "globex")
	require.ErrorIs(t, err, tenants.ErrNotFound)
}

func TestNewTenantIsChecked(t *testing.T) {
	f := newFixture(t)
	for _, id := range []string{"", "-a", "A", "a_b", "a/b", "a b", "ä", "a\n", strings.Repeat("a", 64), strings.Repeat("a", 300), "/closed"} {
		_, err := f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: id})
		require.Equal(t, []string{"/id"}, pointers(t, err), "%q", id)
		_, err = f.GetTenant(t.Context(), id)
		require.ErrorIs(t, err, tenants.ErrNotFound)
		require.ErrorIs(t, f.DeleteTenant(t.Context(), f.caller, id), tenants.ErrNotFound)
	}
	_, err := f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{
		ID: "", Name: strings.Repeat("x", 201),
		Limits: tenants.Limits{WritesPerSecond: -1, ConcurrentCalls: -1, NewIdentities: -1, MaxBody: -1},
	})
	require.Equal(t, []string{
		"/id", "/name", "/limits/writes_per_second", "/limits/concurrent_calls", "/limits/new_identities", "/limits/max_body",
	}, pointers(t, err), "all problems at once")
	require.ErrorContains(t, err, "and 5 more")
	for _, name := range []string{"a\x00b", "a\nb", "a\xff"} {
		_, err := f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "a", Name: name})
		require.Equal(t, []string{"/name"}, pointers(t, err))
	}
	require.Empty(t, f.list())
	require.Empty(t, f.rows(ledger.Platform))
	for _, id := range []string{"0", "a-", strings.Repeat("a", 63), "closed"} {
		f.create(id)
	}
}

func TestUpdateTenant(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	f.clock.Advance(time.Minute)

	changed, err := f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{
		Name: ptr("New"), Limits: &tenants.Limits{MaxBody: 5}, Suspended: ptr(true),
	})
	require.NoError(t, err)
	require.Equal(t, "New", changed.Name)
	require.Equal(t, int64(5), changed.Limits.MaxBody)
	require.True(t, changed.Suspended)
	require.Equal(t, noon.Add(time.Minute), changed.UpdatedAt)
	require.Equal(t, made.CreatedAt, changed.CreatedAt)
	require.Equal(t, made.Ref, changed.Ref)
	require.Equal(t, changed, f.get("acme"))
	require.Equal(t, []string{"tenant.created", "tenant.updated", "tenant.suspended"}, f.events(made.Scope))
	require.Equal(t, []string{"name", "limits"}, f.rows(made.Scope)[1].Changed)

	same, err := f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Name: ptr("New"), Suspended: ptr(true)})
	require.NoError(t, err)
	require.Equal(t, changed, same)
	require.Len(t, f.rows(made.Scope), 3, "no change, no row")

	_, err = f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Suspended: ptr(false)})
	require.NoError(t, err)
	require.False(t, f.get("acme").Suspended)
	require.Equal(t, "New", f.get("acme").Name, "what a patch leaves out stays")
	require.Equal(t, "tenant.resumed", f.events(made.Scope)[3])

	_, err = f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Name: ptr("a\x00"), Limits: &tenants.Limits{MaxBody: -1}})
	require.Equal(t, []string{"/name", "/limits/max_body"}, pointers(t, err))
	_, err = f.UpdateTenant(t.Context(), f.caller, "globex", tenants.Patch{})
	require.ErrorIs(t, err, tenants.ErrNotFound)
}

func TestListingPagesInOrderOfCreation(t *testing.T) {
	f := newFixture(t)
	var want []string
	for i := range 7 {
		id := fmt.Sprintf("t%d", 9-i)
		f.create(id)
		f.clock.Advance(time.Second)
		want = append(want, id)
	}
	require.Equal(t, want, f.list())
	require.Len(t, f.scopes(), 7)

	_, cursor, err := f.ListTenants(t.Context(), "", 3)
	require.NoError(t, err)
	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "t7"), "the last of the first page")
	page, _, err := f.ListTenants(t.Context(), cursor, 3)
	require.NoError(t, err)
	require.Equal(t, "t6", page[0].Tenant, "a cursor outlives what it points to")

	page, next, err := f.ListTenants(t.Context(), "", 6)
	require.NoError(t, err)
	require.Len(t, page, 6)
	require.Empty(t, next, "a full last page has no next one")

	for _, bad := range []string{"!", "AAAA", "AAAAAAAAAAA", cursor + "A", strings.Repeat("A", 400)} {
		_, _, err := f.ListTenants(t.Context(), bad, 3)
		require.ErrorIs(t, err, tenants.ErrCursor, "%q", bad)
	}
	for _, limit := range []int{-1, 0, tenants.MaxPage + 1} {
		_, _, err := f.ListTenants(t.Context(), "", limit)
		require.ErrorIs(t, err, tenants.ErrLimit)
	}
	stop := errors.New("enough")
	n := 0
	require.ErrorIs(t, f.Scopes(t.Context(), func(ledger.Scope) error { n++; return stop }), stop)
	require.Equal(t, 1, n)
}

func TestCreationsAtOnceMakeOneTenant(t *testing.T) {
	f := newFixture(t)
	var wg sync.WaitGroup
	results := make(chan tenants.Tenant, 16)
	losses := make(chan error, 16)
	for range 16 {
		d := f.replica()
		wg.Go(func() {
			got, err := d.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "acme"})
			if err != nil {
				losses <- err
				return
			}
			results <- got
		})
	}
	wg.Wait()
	close(results)
	close(losses)
	for err := range losses {
		require.ErrorIs(t, err, tenants.ErrExists)
	}
	var made []tenants.Tenant
	for got := range results {
		made = append(made, got)
	}
	require.Len(t, made, 1)
	require.Equal(t, made[0], f.get("acme"))
	require.Equal(t, []string{"tenant.created"}, f.events(made[0].Scope))
	require.Equal(t, []string{"tenant.reserved"}, f.events(ledger.Platform))
}

// beforePut runs an interruption once, before the first step that puts a key.
func (f *fixture) beforePut(k ledger.Key, interrupt func()) {
	done := false
	f.store.before = func(step ledger.Step) error {
		if !done && len(step.Put) == 1 && step.Put[0].Key == k {
			done = true
			interrupt()
		}
		return nil
	}
}

// Another creation is faster between the look and either step.
func TestCreationThatIsOvertaken(t *testing.T) {
	for name, at := range map[string]ledger.Key{
		"before the entry":  {Kind: ledger.Tenant, ID: "acme"},
		"before the record": {Kind: ledger.Tenant},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			var made tenants.Tenant
			f.beforePut(at, func() { made = f.create("acme") })
			_, err := f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "acme"})
			require.ErrorIs(t, err, tenants.ErrExists)
			require.Equal(t, made, f.get("acme"))
			require.Equal(t, []ledger.Scope{made.Scope}, f.scopes())
			require.Equal(t, []string{"tenant.created"}, f.events(made.Scope))
		})
	}
}

func TestRecordsThatCannotBeReadDenyAccess(t *testing.T) {
	for name, damage := range map[string]func(data string) string{
		"cut":            func(d string) string { return d[:len(d)/2] },
		"empty":          func(string) string { return "" },
		"newer version":  func(d string) string { return strings.Replace(d, `"v":1`, `"v":2`, 1) },
		"unknown member": func(d string) string { return strings.Replace(d, `"v":1`, `"v":1,"narrowed":true`, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, which := range []string{"entry", "tenant", "key"} {
				f := newFixture(t)
				made := f.create("acme")
				text, id := f.key(made.Ref)
				scope, k := made.Scope, ledger.Key{Kind: ledger.Tenant}
				switch which {
				case "entry":
					scope, k = ledger.Platform, ledger.Key{Kind: ledger.Tenant, ID: "acme"}
				case "key":
					k = ledger.Key{Kind: ledger.APIKey, ID: id}
				}
				v, ok := f.value(scope, k)
				require.True(t, ok)
				require.True(t, f.apply(scope, ledger.Step{Put: []ledger.Put{{Key: k, Data: []byte(damage(string(v.Data)))}}}))

				var err error
				switch which {
				case "entry":
					_, err = f.GetTenant(t.Context(), "acme")
					require.ErrorIs(t, f.Scopes(t.Context(), func(ledger.Scope) error { return nil }), ledger.ErrCorrupt)
				case "tenant":
					_, err = f.GetTenant(t.Context(), "acme")
					require.ErrorIs(t, err, ledger.ErrCorrupt)
					_, err = f.Authenticate(t.Context(), text)
				case "key":
					_, err = f.Authenticate(t.Context(), text)
					require.ErrorIs(t, err, ledger.ErrCorrupt)
					_, _, err = f.ListKeys(t.Context(), made.Ref, "", 10)
				}
				require.ErrorIs(t, err, ledger.ErrCorrupt)
				require.NotErrorIs(t, err, tenants.ErrUnauthenticated)
				if which == "key" {
					require.NoError(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id), "but it can be ended")
					f.locked(text)
				}
			}
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	f := newFixture(t)
	_, err := tenants.New(tenants.Config{AdminKeys: []string{adminKey}})
	require.Error(t, err)
	_, err = tenants.New(tenants.Config{Store: f.store, AdminKeys: []string{adminKey, adminKey[1:]}})
	require.Error(t, err)
	require.NotContains(t, err.Error(), adminKey[1:])
	_, err = tenants.New(tenants.Config{Store: f.store})
	require.NoError(t, err)
}

func TestStoreThatDoesNotAnswer(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, id := f.key(made.Ref)
	f.Forget(id)
	f.store.before = func(ledger.Step) error { return ledger.ErrUnavailable }
	f.store.read = func() error { return ledger.ErrUnavailable }

	_, err := f.Authenticate(t.Context(), text)
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.NotErrorIs(t, err, tenants.ErrUnauthenticated, "a store that is down says nothing about a key")
	_, err = f.GetTenant(t.Context(), "acme")
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	_, err = f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "globex"})
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	_, _, err = f.CreateKey(t.Context(), f.caller, made.Ref, tenants.NewKey{Scopes: []tenants.KeyScope{tenants.ScopeDo}})
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.ErrorIs(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id), ledger.ErrUnavailable)
	require.ErrorIs(t, f.DeleteTenant(t.Context(), f.caller, "acme"), ledger.ErrUnavailable)
}
