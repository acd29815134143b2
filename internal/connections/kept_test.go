package connections_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
)

// rotate gives the connection new credentials.
func (f *fixture) rotate(value string) connections.Connection {
	f.Helper()
	return f.put("billing", connections.Spec{Credentials: connections.Credentials{"api_key": value}})
}

func (f *fixture) keptVersions() (out []int64) {
	f.Helper()
	list, err := f.Kept(f.Context(), f.get("billing"))
	require.NoError(f, err)
	for _, k := range list {
		out = append(out, k.Version)
	}
	return out
}

// opens says which credential the connection has now.
func (f *fixture) opens() string {
	f.Helper()
	creds, err := f.Credentials(f.get("billing"))
	require.NoError(f, err)
	return creds["api_key"]
}

func TestCredentialsAreRotatedAndRolledBack(t *testing.T) {
	f := newFixture(t)
	first := f.put("billing", stripe())
	require.EqualValues(t, 1, first.CredentialVersion)
	require.Empty(t, f.keptVersions())
	second := f.rotate("two")
	require.EqualValues(t, 2, second.CredentialVersion)
	require.Equal(t, []int64{1}, f.keptVersions())
	require.Equal(t, second.Version, f.rotate("two").Version, "the same ones again change nothing")

	back := f.put("billing", connections.Spec{CredentialVersion: 1})
	require.EqualValues(t, 1, back.CredentialVersion)
	require.Equal(t, first.Fingerprint, back.Fingerprint)
	require.Equal(t, first.CredentialsAt, back.CredentialsAt)
	require.NotEqual(t, second.Version, back.Version, "claims stand on the version")
	require.Equal(t, sentinel, f.opens())
	require.Equal(t, []int64{2}, f.keptVersions())
	require.Equal(t, back.Version, f.put("billing", connections.Spec{CredentialVersion: 1}).Version, "it is there already")

	third := f.rotate("three")
	require.EqualValues(t, 3, third.CredentialVersion, "a number is never used twice")
	require.Equal(t, []int64{2, 1}, f.keptVersions())
	f.put("billing", connections.Spec{CredentialVersion: 2})
	require.Equal(t, "two", f.opens())
	require.Equal(t, []int64{3, 1}, f.keptVersions())

	rows := f.rows()
	require.Equal(t, []string{"credentials"}, rows[len(rows)-1].Changed)
	require.Len(t, rows, 5)
}

func TestAFewReplacedCredentialsAreKept(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	for n := 2; n <= 3+connections.MaxKept; n++ {
		f.rotate(fmt.Sprint(n))
	}
	require.Len(t, f.keptVersions(), connections.MaxKept)
	_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", connections.Spec{CredentialVersion: 1})
	var spec *connections.SpecError
	require.ErrorAs(t, err, &spec)
	require.Equal(t, "/credential_version", spec.Pointer)
}

func TestGoingBackIsRefused(t *testing.T) {
	f := newFixture(t)
	for name, s := range map[string]connections.Spec{
		"a new connection":     {Connector: "stripe@1", CredentialVersion: 1},
		"with new credentials": {CredentialVersion: 1, Credentials: connections.Credentials{"api_key": "x"}},
		"no number":            {CredentialVersion: -1},
	} {
		_, _, err := f.Put(t.Context(), f.caller, f.tenant, "other", s)
		var spec *connections.SpecError
		require.ErrorAs(t, err, &spec, name)
		require.Equal(t, "/credential_version", spec.Pointer, name)
	}
	// The connector has its say, as about new ones.
	f.put("billing", stripe())
	f.rotate("two")
	f.refusal = errors.New("no longer")
	_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", connections.Spec{CredentialVersion: 1})
	require.ErrorIs(t, err, f.refusal)
	require.Equal(t, sentinel, f.asked[len(f.asked)-1].Credentials["api_key"])
	require.Equal(t, "two", f.opens())
}

func TestKeptCredentialsGoWithTheConnection(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	f.rotate("two")
	page, _, err := f.List(t.Context(), f.tenant, "", 10)
	require.NoError(t, err)
	require.Len(t, page, 1, "what is kept is no connection")
	require.NoError(t, f.delete("billing", settled))
	left, err := f.store.Entries(t.Context(), f.tenant, ledger.EntryRange{Index: ledger.ByName, Limit: 10})
	require.NoError(t, err)
	require.Empty(t, left)
	f.put("billing", stripe())
	require.Empty(t, f.keptVersions())
}

func TestAccountIsALabel(t *testing.T) {
	f := newFixture(t)
	name := "Acme GmbH, EU"
	s := stripe()
	s.Account = &name
	require.Equal(t, name, f.put("billing", s).Account)
	require.Equal(t, name, f.put("billing", connections.Spec{Paused: on(true)}).Account)
	other := ""
	require.Empty(t, f.put("billing", connections.Spec{Account: &other}).Account)
	for _, wrong := range []string{"a\nb", "\xff", string(make([]byte, 201))} {
		_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", connections.Spec{Account: &wrong})
		var spec *connections.SpecError
		require.ErrorAs(t, err, &spec)
	}
}

func TestReseal(t *testing.T) {
	f := newFixture(t)
	f.Book = f.book(ring(t, keyText(1)))
	f.put("billing", stripe())
	f.rotate("two")
	f.put("other", stripe())
	both := f.book(ring(t, keyText(2)+","+keyText(1)))
	f.Book = both
	f.put("young", stripe())

	cli := audit.Caller{Actor: audit.System(), Front: "cli"}
	out, err := both.Reseal(t.Context(), cli, f.tenant)
	require.NoError(t, err)
	require.Equal(t, connections.Resealed{Connections: 2}, out)
	rows := f.rows()
	require.Equal(t, []string{"sealing"}, rows[len(rows)-1].Changed)
	again, err := both.Reseal(t.Context(), cli, f.tenant)
	require.NoError(t, err)
	require.Zero(t, again.Connections)
	require.Len(t, f.rows(), len(rows))

	f.Book = f.book(ring(t, keyText(2))) // the old key is gone
	require.Equal(t, "two", f.opens())
	require.EqualValues(t, 2, f.get("billing").CredentialVersion)
	f.put("billing", connections.Spec{CredentialVersion: 1})
	require.Equal(t, sentinel, f.opens())

	f.Book = f.book(ring(t, keyText(3)))
	out, err = f.Reseal(t.Context(), cli, f.tenant)
	require.NoError(t, err)
	require.Equal(t, connections.Resealed{Failed: []string{"billing", "other", "young"}}, out)
}
