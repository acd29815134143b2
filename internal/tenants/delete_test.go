package tenants_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

func TestDeletedTenantIsGone(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, id := f.key(made.Ref)
	f.authenticate(text)
	other := f.create("globex")
	otherKey, _ := f.key(other.Ref)

	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))

	f.locked(text)
	_, err := f.GetTenant(t.Context(), "acme")
	require.ErrorIs(t, err, tenants.ErrNotFound)
	require.Equal(t, []string{"globex"}, f.list())
	require.Equal(t, []ledger.Scope{other.Scope}, f.scopes())
	require.ErrorIs(t, f.DeleteTenant(t.Context(), f.caller, "acme"), tenants.ErrNotFound)
	_, err = f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Suspended: ptr(false)})
	require.ErrorIs(t, err, tenants.ErrNotFound)
	_, _, err = f.ListKeys(t.Context(), made.Ref, "", 10)
	require.ErrorIs(t, err, tenants.ErrNotFound)
	require.ErrorIs(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id), tenants.ErrNotFound)
	_, _, err = f.CreateKey(t.Context(), f.caller, made.Ref, tenants.NewKey{Scopes: []tenants.KeyScope{tenants.ScopeDo}})
	require.ErrorIs(t, err, tenants.ErrNotFound)

	require.Equal(t, []string{"tenant.created", "key.created", "tenant.closing", "tenant.deleted", "tenant.purged"}, f.events(made.Scope))
	platform := f.rows(ledger.Platform)
	last := platform[len(platform)-1]
	require.Equal(t, audit.TenantDeleted, last.Event)
	require.Equal(t, "acme", last.Tenant)
	require.Equal(t, made.TenantID, last.Subject, "so that the host can find the rows")
	f.authenticate(otherKey)
}

// Whatever stands under a name goes, whichever package put it there.
func TestDeletionRemovesWhatIsNamed(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	for i := range 250 {
		k := ledger.Key{Kind: ledger.Connection, ID: fmt.Sprint("c", i)}
		require.True(t, f.apply(made.Scope, ledger.Step{
			Put:   []ledger.Put{{Key: k, Data: []byte("sealed credentials")}},
			Index: []ledger.Entry{{Index: ledger.ByName, Score: f.store.Now(), Member: "c/" + k.ID}},
		}))
	}
	_, id := f.key(made.Ref)
	require.Len(t, f.named(made.Scope), 251)

	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))

	require.Empty(t, f.named(made.Scope))
	for _, k := range []ledger.Key{
		{Kind: ledger.Connection, ID: "c0"}, {Kind: ledger.Connection, ID: "c249"}, {Kind: ledger.APIKey, ID: id}, {Kind: ledger.Tenant},
	} {
		_, ok := f.value(made.Scope, k)
		require.False(t, ok, "%c %s", k.Kind, k.ID)
	}
}

// The host finds what deleted tenants did, each life by itself.
func TestFormerLivesOfAnIDAreFound(t *testing.T) {
	f := newFixture(t)
	find := func(id, incarnation string) (tenants.Ref, error) {
		return f.FindLife(t.Context(), id, incarnation)
	}
	missing := func(id, incarnation string) {
		t.Helper()
		_, err := find(id, incarnation)
		require.ErrorIs(t, err, tenants.ErrNotFound)
	}
	missing("acme", "")
	missing("No Such/Form", "")
	var lives []tenants.Tenant
	for range 3 {
		made := f.create("acme")
		got, err := find("acme", "")
		require.NoError(t, err)
		require.Equal(t, made.Ref, got, "who has the id comes first")
		lives = append(lives, made)
		require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
		got, err = find("acme", "")
		require.NoError(t, err)
		require.Equal(t, made.Ref, got, "then who had it last")
	}
	for _, l := range lives {
		got, err := find("acme", l.TenantID)
		require.NoError(t, err)
		require.Equal(t, l.Ref, got)
	}
	missing("globex", lives[0].TenantID)
	missing("acme", "0123")
	require.Empty(t, f.list())
}

// The whole point of incarnations.
func TestTenantOfTheSameIDNeverMeetsTheOldOne(t *testing.T) {
	f := newFixture(t)
	old := f.create("acme")
	oldKey, _ := f.key(old.Ref)
	leftover := ledger.Key{Kind: ledger.Action, ID: "write of the old one"}
	require.True(t, f.apply(old.Scope, ledger.Step{Put: []ledger.Put{{Key: leftover, Data: []byte("answer")}}}))
	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))

	young := f.create("acme")

	require.NotEqual(t, old.TenantID, young.TenantID)
	require.NotEqual(t, old.Scope, young.Scope)
	_, ok := f.value(young.Scope, leftover)
	require.False(t, ok)
	f.locked(oldKey)
	require.Equal(t, []string{"tenant.created"}, f.events(young.Scope))

	// A call that began before the deletion holds the old reference.
	_, _, err := f.CreateKey(t.Context(), f.caller, old.Ref, tenants.NewKey{Scopes: []tenants.KeyScope{tenants.ScopeManage}})
	require.ErrorIs(t, err, tenants.ErrNotFound)
	keys, _, err := f.ListKeys(t.Context(), young.Ref, "", 10)
	require.NoError(t, err)
	require.Empty(t, keys)
}

func TestDeletionWaitsForUnsettledWrites(t *testing.T) {
	for name, index := range map[string]ledger.Index{"in flight": ledger.ByLease, "held": ledger.ByHold} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			made := f.create("acme")
			text, _ := f.key(made.Ref)
			write := ledger.Entry{Index: index, Score: noon.Add(time.Hour), Member: "a write"}
			require.True(t, f.apply(made.Scope, ledger.Step{Index: []ledger.Entry{write}}))

			require.ErrorIs(t, f.DeleteTenant(t.Context(), f.caller, "acme"), tenants.ErrUnsettled)

			require.False(t, f.get("acme").Closing, "it goes on as before")
			require.False(t, f.authenticate(text).Suspended)
			require.Equal(t, []string{"tenant.created", "key.created", "tenant.closing", "tenant.reopened"}, f.events(made.Scope))

			require.True(t, f.apply(made.Scope, ledger.Step{Unindex: []ledger.Entry{write}}))
			require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
		})
	}
}

// claim is what a claim of a new write does to the store.
func claim(f *fixture, p tenants.Principal) bool {
	return f.apply(p.Scope, ledger.Step{
		Expect: p.Guards(),
		Index:  []ledger.Entry{{Index: ledger.ByLease, Score: f.store.Now().Add(time.Minute), Member: rand.Text()}},
	})
}

// No claim may slip in between the look for unsettled writes and the end.
func TestNoWriteIsTakenDuringADeletion(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	p := f.authenticate(text)
	taken := 0
	f.store.before = func(step ledger.Step) error {
		for _, k := range step.Delete {
			if k.Kind == ledger.Tenant && k.ID == "" {
				if claim(f, p) { // the look is over, the end is next
					taken++
				}
			}
		}
		return nil
	}
	require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
	require.Zero(t, taken)
	require.False(t, claim(f, p), "nor afterwards")
}

// Between the look and the end the tenant is reopened, takes a write and is
// marked again by another deletion: what the look saw is no longer so.
func TestDeletionLooksAgainAfterAReopening(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	once := true
	f.store.before = func(step ledger.Step) error {
		for _, k := range step.Delete {
			if once && k.Kind == ledger.Tenant && k.ID == "" {
				once = false
				_, err := f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Suspended: ptr(false)})
				require.NoError(t, err)
				require.True(t, claim(f, f.authenticate(text)))
				require.ErrorIs(t, f.replica().DeleteTenant(t.Context(), f.caller, "acme"), tenants.ErrUnsettled)
				v, _ := f.value(made.Scope, ledger.Key{Kind: ledger.Tenant})
				require.True(t, f.apply(made.Scope, ledger.Step{Put: []ledger.Put{{
					Key: ledger.Key{Kind: ledger.Tenant}, Data: closing(v.Data),
				}}}))
			}
		}
		return nil
	}
	require.ErrorIs(t, f.DeleteTenant(t.Context(), f.caller, "acme"), tenants.ErrUnsettled)
	require.False(t, once)
	require.False(t, f.get("acme").Closing)
}

// A look that fails is no look: the tenant stays, open.
func TestDeletionThatCannotLookIsGivenUp(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	ctx, cancel := context.WithCancel(t.Context())
	f.store.after = func(ledger.Step) error {
		cancel() // the caller hangs up right after the mark
		return nil
	}
	require.Error(t, f.DeleteTenant(ctx, f.caller, "acme"))
	f.store.after = nil
	require.False(t, f.get("acme").Closing)
	require.Equal(t, []string{"tenant.created", "tenant.closing", "tenant.reopened"}, f.events(made.Scope))
}

var errCrash = fmt.Errorf("process died: %w", ledger.ErrUnavailable)

// crashAt makes the store stop at the n-th step: applied or not, no answer
// comes, and no later step is made.
func crashAt(f *fixture, n int, applied bool) (crashed *bool) {
	crashed = new(bool)
	seen := 0
	f.store.before = func(ledger.Step) error {
		if *crashed {
			return errCrash
		}
		seen++
		if seen == n && !applied {
			*crashed = true
			return errCrash
		}
		return nil
	}
	f.store.after = func(ledger.Step) error {
		if seen == n && applied {
			*crashed = true
			return errCrash
		}
		return nil
	}
	return crashed
}

// restart is a new process on the same data.
func restart(f *fixture) {
	f.store.before, f.store.after = nil, nil
	f.Directory = f.replica()
}

// A crash at any step of a creation leaves no tenant or a whole one, and the
// same call again gives a whole one.
func TestCrashDuringCreation(t *testing.T) {
	for n := 1; ; n++ {
		for _, applied := range []bool{false, true} {
			f := newFixture(t)
			crashed := crashAt(f, n, applied)
			_, err := f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "acme", Name: "Acme"})
			if !*crashed {
				require.NoError(t, err)
				require.Equal(t, 3, n, "a creation has two steps")
				return
			}
			require.ErrorIs(t, err, ledger.ErrUnavailable)
			restart(f)

			before, err := f.GetTenant(t.Context(), "acme")
			whole := err == nil
			if whole {
				require.Equal(t, []string{"acme"}, f.list())
				require.Equal(t, "Acme", before.Name)
			} else {
				require.ErrorIs(t, err, tenants.ErrNotFound)
				require.Empty(t, f.list(), "nothing half visible")
				require.ErrorIs(t, f.DeleteTenant(t.Context(), f.caller, "acme"), tenants.ErrNotFound)
			}
			require.NoError(t, f.Scopes(t.Context(), func(ledger.Scope) error { return nil }))

			_, err = f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "acme", Name: "Acme"})
			if whole {
				require.ErrorIs(t, err, tenants.ErrExists)
			} else {
				require.NoError(t, err)
			}
			after := f.get("acme")
			require.Equal(t, []string{"acme"}, f.list())
			require.Equal(t, []string{"tenant.created"}, f.events(after.Scope), "one row, whatever happened")
			require.Equal(t, []string{"tenant.reserved"}, f.events(ledger.Platform))
			text, _ := f.key(after.Ref)
			f.authenticate(text)
		}
	}
}

// A crash at any step of a deletion leaves a tenant whose writes have ended, or
// none; deleting again finishes, and so does creating again.
func TestCrashDuringDeletion(t *testing.T) {
	for _, next := range []string{"delete", "create"} {
		t.Run("then "+next, func(t *testing.T) {
			for n := 1; ; n++ {
				for _, applied := range []bool{false, true} {
					f := newFixture(t)
					old := f.create("acme")
					text, _ := f.key(old.Ref)
					crashed := crashAt(f, n, applied)
					err := f.DeleteTenant(t.Context(), f.caller, "acme")
					if !*crashed {
						require.NoError(t, err)
						require.Equal(t, 5, n, "a deletion of a tenant with one key has four steps")
						return
					}
					require.ErrorIs(t, err, ledger.ErrUnavailable)
					restart(f)

					now, err := f.GetTenant(t.Context(), "acme")
					exists := err == nil
					if exists {
						require.Equal(t, old.TenantID, now.TenantID)
						require.Equal(t, now.Closing, f.authenticate(text).Suspended)
						require.Equal(t, []string{"acme"}, f.list())
					} else {
						require.ErrorIs(t, err, tenants.ErrNotFound)
						f.locked(text)
						require.Empty(t, f.list())
					}

					if next == "delete" || exists {
						err := f.DeleteTenant(t.Context(), f.caller, "acme")
						if err != nil {
							require.ErrorIs(t, err, tenants.ErrNotFound, "it was finished, only the answer was lost")
						}
					}
					young := f.create("acme")
					require.NotEqual(t, old.TenantID, young.TenantID)
					f.locked(text)
					require.Empty(t, f.named(old.Scope))
					require.Equal(t, []string{"acme"}, f.list())
					require.Equal(t, []ledger.Scope{young.Scope}, f.scopes())
					require.Equal(t, []string{"tenant.reserved", "tenant.deleted", "tenant.reserved"}, f.events(ledger.Platform))
				}
			}
		})
	}
}

// A deletion that died half-way has stopped new writes; whoever resumes the
// tenant makes it whole again.
func TestResumingReopensAHalfDeletedTenant(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	crashAt(f, 1, true)
	require.Error(t, f.DeleteTenant(t.Context(), f.caller, "acme"))
	restart(f)
	require.True(t, f.get("acme").Closing)
	require.True(t, f.authenticate(text).Suspended)

	back, err := f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Suspended: ptr(false)})
	require.NoError(t, err)
	require.False(t, back.Closing)
	require.False(t, f.authenticate(text).Suspended)
	require.Equal(t, "tenant.reopened", f.events(made.Scope)[3])
}

// A creation that stalls after its first step meets the tenant that another
// call has made and deleted meanwhile.
func TestStalledCreationDoesNotRaiseTheDead(t *testing.T) {
	f := newFixture(t)
	first := true
	var other tenants.Tenant
	f.store.before = func(step ledger.Step) error {
		if len(step.Put) == 1 && step.Put[0].Key == (ledger.Key{Kind: ledger.Tenant}) && first {
			first = false
			d := f.replica()
			var err error
			other, err = d.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "acme"})
			require.NoError(t, err)
			require.NoError(t, d.DeleteTenant(t.Context(), f.caller, "acme"))
		}
		return nil
	}
	_, err := f.CreateTenant(t.Context(), f.caller, tenants.NewTenant{ID: "acme"})
	require.ErrorIs(t, err, ledger.ErrUnavailable, "nothing was made; repeat it")
	require.False(t, errors.Is(err, tenants.ErrExists))
	f.store.before = nil
	require.Empty(t, f.list())
	require.NotEqual(t, other.TenantID, f.create("acme").TenantID)
}

// closing is a tenant's record with the mark of a deletion.
func closing(record []byte) []byte {
	return bytes.Replace(record, []byte(`"limits"`), []byte(`"closing":true,"limits"`), 1)
}
