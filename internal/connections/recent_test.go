package connections_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
)

func TestRecentRemembersUntilItForgets(t *testing.T) {
	f := newFixture(t)
	made := f.put("billing", stripe())
	recent := connections.NewRecent(f.Book)
	recall := func(scope ledger.Scope, name string) (connections.Connection, bool) {
		t.Helper()
		c, recalled, err := recent.Recall(t.Context(), f.tenant, name)
		require.NoError(t, err)
		return c, recalled
	}
	first, recalled := recall(f.tenant, "billing")
	require.False(t, recalled)
	require.Equal(t, made.Version, first.Version)
	same, recalled := recall(f.tenant, "billing")
	require.True(t, recalled)
	require.Equal(t, first, same)
	require.Equal(t, f.get("billing").Expect(), same.Expect())

	now := f.put("billing", connections.Spec{Paused: on(true)})
	old, recalled := recall(f.tenant, "billing")
	require.True(t, recalled)
	require.False(t, old.Paused)
	require.False(t, f.claims(old, "a"), "a step that expects what is remembered is not made")
	recent.Forget(f.tenant, "billing")
	fresh, recalled := recall(f.tenant, "billing")
	require.False(t, recalled)
	require.True(t, fresh.Paused)
	require.Equal(t, now.Version, fresh.Version)

	creds, err := recent.Credentials(same)
	require.NoError(t, err)
	require.NotEmpty(t, creds)
}

func TestRecentRemembersNothingThatIsNotThere(t *testing.T) {
	f := newFixture(t)
	recent := connections.NewRecent(f.Book)
	_, _, err := recent.Recall(t.Context(), f.tenant, "billing")
	require.ErrorIs(t, err, connections.ErrNotFound)
	f.put("billing", stripe())
	_, recalled, err := recent.Recall(t.Context(), f.tenant, "billing")
	require.NoError(t, err)
	require.False(t, recalled)
	_, _, err = recent.Recall(t.Context(), ledger.ScopeOf("another"), "billing")
	require.ErrorIs(t, err, connections.ErrNotFound, "another tenant's is another's")
}

func TestRecentIsBounded(t *testing.T) {
	f := newFixture(t)
	recent := connections.NewRecent(f.Book)
	recent.Limit(3)
	for i := range 5 {
		name := fmt.Sprintf("c%d", i)
		f.put(name, stripe())
		_, recalled, err := recent.Recall(t.Context(), f.tenant, name)
		require.NoError(t, err)
		require.False(t, recalled)
		require.LessOrEqual(t, recent.Len(), 3)
	}
}

// TestRecentRemembersNoLargeConnection: those of one tenant could be as large as all
// memory together.
func TestRecentRemembersNoLargeConnection(t *testing.T) {
	f := newFixture(t)
	recent := connections.NewRecent(f.Book)
	large := strings.Repeat("x", 16<<10)
	config, credentials := stripe(), stripe()
	config.Config = []byte(`{"site":"` + large + `"}`)
	credentials.Credentials = connections.Credentials{"api_key": sentinel, "other": large}
	f.put("config", config)
	f.put("credentials", credentials)
	for _, name := range []string{"config", "credentials"} {
		for range 2 {
			c, recalled, err := recent.Recall(t.Context(), f.tenant, name)
			require.NoError(t, err)
			require.Equal(t, name, c.Name)
			require.False(t, recalled)
		}
	}
	require.Zero(t, recent.Len())
}
