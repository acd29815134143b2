package tenants_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// lastUsed is when a listing says the tenant's first key was used.
func (f *fixture) lastUsed(ref tenants.Ref) time.Time {
	f.t.Helper()
	keys, _, err := f.ListKeys(f.t.Context(), ref, "", 10)
	require.NoError(f.t, err)
	return keys[0].LastUsedAt
}

func TestLastUseIsKeptBesideTheKey(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	require.Zero(t, f.lastUsed(made.Ref))
	writes := 0
	f.store.after = func(ledger.Step) error { writes++; return nil }

	guards := f.authenticate(text).Guards()
	require.Zero(t, f.lastUsed(made.Ref), "no call waits for it")
	require.NoError(t, f.SaveUses(t.Context()))
	require.Equal(t, noon, f.lastUsed(made.Ref))
	require.Equal(t, 1, writes)

	// A burst is one write, and the key stays the one that claims stand on.
	for range 5 {
		f.clock.Advance(time.Second)
		require.Equal(t, guards, f.authenticate(text).Guards())
		require.NoError(t, f.SaveUses(t.Context()))
	}
	require.Equal(t, 1, writes)
	f.clock.Advance(time.Minute)
	require.Equal(t, guards, f.authenticate(text).Guards())
	require.NoError(t, f.SaveUses(t.Context()))
	require.Equal(t, noon.Add(65*time.Second), f.lastUsed(made.Ref))
	require.Equal(t, 2, writes)

	// A wrong secret is no use.
	f.clock.Advance(time.Hour)
	f.locked(text[:len(text)-1])
	require.NoError(t, f.SaveUses(t.Context()))
	require.Equal(t, 2, writes)
	require.Len(t, f.rows(made.Scope), 2, "uses are not audited one by one")
}

// Another replica's later word stands.
func TestLastUseNeverGoesBack(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	f.authenticate(text)
	other := f.replica()
	f.clock.Advance(time.Hour)
	_, err := other.Authenticate(t.Context(), text)
	require.NoError(t, err)
	require.NoError(t, other.SaveUses(t.Context()))
	require.NoError(t, f.SaveUses(t.Context()))
	require.Equal(t, noon.Add(time.Hour), f.lastUsed(made.Ref))
}

func TestLastUseGoesWithTheKey(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	for _, end := range []func(id string){
		func(id string) { require.NoError(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id)) },
		func(string) { require.NoError(t, f.DeleteTenant(t.Context(), f.caller, "acme")) },
	} {
		text, id := f.key(made.Ref)
		used := ledger.Key{Kind: ledger.APIKey, ID: id + "/used"}
		f.authenticate(text)
		require.NoError(t, f.SaveUses(t.Context()))
		_, there := f.value(made.Scope, used)
		require.True(t, there)

		f.clock.Advance(time.Hour)
		f.authenticate(text)
		end(id)
		require.NoError(t, f.SaveUses(t.Context()), "a use that was noted before")
		_, there = f.value(made.Scope, used)
		require.False(t, there)
	}
}
