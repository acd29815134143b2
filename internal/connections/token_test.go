package connections_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
)

// issue stores a token of the connection billing.
func (f *fixture) issue(token connections.Token) {
	f.Helper()
	c := f.get("billing")
	lease, mine, err := f.LeaseRefresh(f.Context(), c, 20*time.Second)
	require.NoError(f, err)
	require.True(f, mine)
	require.NoError(f, f.EndRefresh(f.Context(), f.caller, c, lease, &token))
}

func (f *fixture) token() connections.Token {
	f.Helper()
	token, err := f.Token(f.Context(), f.get("billing"))
	require.NoError(f, err)
	return token
}

func TestTokensAreKeptSealedAndGoWithTheirCredentials(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	require.Zero(t, f.token())
	want := connections.Token{Access: sentinel + "-access", Refresh: sentinel + "-refresh", Expires: time.UnixMilli(1_900_000_000_000).UTC()}
	before := f.get("billing")
	f.issue(want)
	require.Equal(t, want, f.token())
	require.Equal(t, before, f.get("billing"), "a new token does not move what claims stand on")
	require.NotContains(t, string(f.raw(f.tenant, "billing/token").Data), sentinel)
	rows := f.rows()
	require.Equal(t, []string{"token"}, rows[len(rows)-1].Changed)
	page, _, err := f.List(t.Context(), f.tenant, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 1)

	f.rotate("two")
	require.Zero(t, f.token(), "other credentials have other tokens")
	f.put("billing", connections.Spec{CredentialVersion: 1})
	require.Equal(t, want, f.token())

	require.NoError(t, f.delete("billing", settled))
	left, err := f.store.Entries(t.Context(), f.tenant, ledger.EntryRange{Index: ledger.ByName, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, left)
	f.put("billing", stripe())
	require.Zero(t, f.token())
}

func TestOneHolderOfTheLease(t *testing.T) {
	f := newFixture(t)
	c := f.put("billing", stripe())
	first, mine, err := f.LeaseRefresh(t.Context(), c, 20*time.Second)
	require.NoError(t, err)
	require.True(t, mine)
	_, mine, err = f.LeaseRefresh(t.Context(), c, 20*time.Second)
	require.NoError(t, err)
	require.False(t, mine)
	require.NoError(t, f.EndRefresh(t.Context(), f.caller, c, first, nil))
	_, mine, err = f.LeaseRefresh(t.Context(), c, 20*time.Second)
	require.NoError(t, err)
	require.True(t, mine)
	require.NoError(t, f.EndRefresh(t.Context(), f.caller, c, first, nil))
	_, mine, err = f.LeaseRefresh(t.Context(), c, 20*time.Second)
	require.NoError(t, err)
	require.False(t, mine, "a lease that was over gives back nobody else's")
	f.clock.Add(int64(21 * time.Second))
	_, mine, err = f.LeaseRefresh(t.Context(), c, 20*time.Second)
	require.NoError(t, err)
	require.True(t, mine, "whoever died with it holds it no longer")

	// A token is stored although the lease is somebody else's by now, and not for a
	// connection that is gone.
	require.NoError(t, f.EndRefresh(t.Context(), f.caller, c, first, &connections.Token{Access: "late", Refresh: "r"}))
	require.Equal(t, "late", f.token().Access)
	require.NoError(t, f.delete("billing", settled))
	f.put("billing", stripe())
	require.ErrorIs(t, f.EndRefresh(t.Context(), f.caller, c, first, &connections.Token{Access: "x"}), connections.ErrNotFound)
}

// A refresh token that changes with each use exists nowhere else: it must live
// through a rotation of the secret key.
func TestTokensAreResealed(t *testing.T) {
	f := newFixture(t)
	f.Book = f.book(ring(t, keyText(1)))
	f.put("billing", stripe())
	f.issue(connections.Token{Access: "a", Refresh: "r"})
	f.Book = f.book(ring(t, keyText(2)+","+keyText(1)))
	_, err := f.Reseal(t.Context(), audit.Caller{Actor: audit.System()}, f.tenant)
	require.NoError(t, err)
	f.Book = f.book(ring(t, keyText(2)))
	require.Equal(t, "r", f.token().Refresh)
}
