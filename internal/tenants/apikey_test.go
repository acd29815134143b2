package tenants_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

func TestCreateKey(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	f.caller.Actor = audit.Actor{Kind: audit.KindKey, KeyID: "k0"}
	spec := tenants.NewKey{
		Label: "agent", Scopes: []tenants.KeyScope{tenants.ScopeDo, tenants.ScopeRead},
		Grants:    []tenants.Grant{{Connection: "billing", Actions: []string{"create_invoice"}}, {Connection: "crm"}},
		ExpiresAt: noon.Add(time.Hour),
	}
	text, key, err := f.CreateKey(t.Context(), f.caller, made.Ref, spec)
	require.NoError(t, err)
	require.Regexp(t, `^hf_[a-z2-7]{39}_[a-z2-7]{59}$`, text)
	require.Equal(t, key.ID, strings.Split(text, "_")[1])
	require.Equal(t, tenants.APIKey{
		ID: key.ID, Label: "agent", Scopes: spec.Scopes, Grants: spec.Grants,
		ExpiresAt: noon.Add(time.Hour), CreatedAt: noon, CreatedBy: f.caller.Actor,
	}, key)

	keys, next, err := f.ListKeys(t.Context(), made.Ref, "", 10)
	require.NoError(t, err)
	require.Empty(t, next)
	require.Equal(t, []tenants.APIKey{key}, keys)

	p := f.authenticate(text)
	require.Equal(t, made.Ref, p.Ref())
	require.Equal(t, key.ID, p.KeyID)
	require.Equal(t, spec.Scopes, p.Scopes)
	require.Equal(t, spec.Grants, p.Grants)

	require.Equal(t, audit.Row{
		Event: audit.KeyCreated, At: noon, Tenant: "acme", Actor: f.caller.Actor, Front: "rest", RequestID: "req_1", Subject: key.ID,
	}, f.rows(made.Scope)[1])
}

func TestSecretIsNowhereInTheStore(t *testing.T) {
	f := newFixture(t)
	var steps []ledger.Step
	f.store.before = func(s ledger.Step) error { steps = append(steps, s); return nil }
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	secret := []byte(strings.Split(text, "_")[2])
	require.NotEmpty(t, steps)
	for _, s := range steps {
		for _, p := range s.Put {
			require.False(t, bytes.Contains(p.Data, secret[:16]))
		}
		for _, row := range s.Rows {
			require.False(t, bytes.Contains(row, secret[:16]))
		}
	}
}

func TestNewKeyIsChecked(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	do := []tenants.KeyScope{tenants.ScopeDo}
	many := make([]tenants.Grant, 65)
	for name, tt := range map[string]struct {
		spec tenants.NewKey
		want []string
	}{
		"no scopes":       {tenants.NewKey{}, []string{"/scopes"}},
		"odd scopes":      {tenants.NewKey{Scopes: []tenants.KeyScope{"do", "admin", "do", "Read", ""}}, []string{"/scopes/1", "/scopes/2", "/scopes/3", "/scopes/4"}},
		"long label":      {tenants.NewKey{Scopes: do, Label: strings.Repeat("x", 201)}, []string{"/label"}},
		"expired":         {tenants.NewKey{Scopes: do, ExpiresAt: noon}, []string{"/expires_at"}},
		"no grants":       {tenants.NewKey{Scopes: do, Grants: []tenants.Grant{}}, []string{"/grants"}},
		"many grants":     {tenants.NewKey{Scopes: do, Grants: many}, []string{"/grants"}},
		"grant of what":   {tenants.NewKey{Scopes: do, Grants: []tenants.Grant{{}, {Connection: "A b"}}}, []string{"/grants/0/connection", "/grants/1/connection"}},
		"no actions":      {tenants.NewKey{Scopes: do, Grants: []tenants.Grant{{Connection: "a", Actions: []string{}}}}, []string{"/grants/0/actions"}},
		"many actions":    {tenants.NewKey{Scopes: do, Grants: []tenants.Grant{{Connection: "a", Actions: make([]string, 65)}}}, []string{"/grants/0/actions"}},
		"odd action":      {tenants.NewKey{Scopes: do, Grants: []tenants.Grant{{Connection: "a", Actions: []string{"ok", "*"}}}}, []string{"/grants/0/actions/1"}},
		"several at once": {tenants.NewKey{Label: "\x00", Grants: []tenants.Grant{}}, []string{"/label", "/scopes", "/grants"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := f.CreateKey(t.Context(), f.caller, made.Ref, tt.spec)
			require.Equal(t, tt.want, pointers(t, err))
		})
	}
	require.Equal(t, []string{"tenant.created"}, f.events(made.Scope))
}

func TestRevokedKeyIsOut(t *testing.T) {
	f := newFixture(t)
	made, other := f.create("acme"), f.create("globex")
	text, id := f.key(made.Ref)
	staying, stayingID := f.key(made.Ref)
	f.authenticate(text)

	require.ErrorIs(t, f.RevokeKey(t.Context(), f.caller, other.Ref, id), tenants.ErrNotFound, "another tenant's key cannot be named")
	require.ErrorIs(t, f.RevokeKey(t.Context(), f.caller, made.Ref, "nonsense"), tenants.ErrNotFound)
	f.authenticate(text)

	require.NoError(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id))
	f.locked(text)
	require.ErrorIs(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id), tenants.ErrNotFound)
	f.authenticate(staying)
	keys, _, err := f.ListKeys(t.Context(), made.Ref, "", 10)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, stayingID, keys[0].ID)
	require.Len(t, f.named(made.Scope), 1)
	rows := f.rows(made.Scope)
	require.Equal(t, audit.KeyRevoked, rows[len(rows)-1].Event)
	require.Equal(t, id, rows[len(rows)-1].Subject)
}

func TestKeysArePagedPastWhatElseHasAName(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	var want []string
	for i := range 5 {
		_, id := f.key(made.Ref)
		want = append(want, id)
		f.clock.Advance(time.Second)
		require.True(t, f.apply(made.Scope, ledger.Step{Index: []ledger.Entry{
			{Index: ledger.ByName, Score: f.store.Now(), Member: "c/k" + string(rune('a'+i))},
			{Index: ledger.ByName, Score: f.store.Now(), Member: "k"},
			{Index: ledger.ByName, Score: f.store.Now(), Member: "kk"},
		}}))
		f.clock.Advance(time.Second)
	}
	var got []string
	pages := 0
	for cursor := ""; ; {
		pages++
		keys, next, err := f.ListKeys(t.Context(), made.Ref, cursor, 2)
		require.NoError(t, err)
		for _, k := range keys {
			got = append(got, k.ID)
		}
		if next == "" {
			break
		}
		cursor = next
	}
	require.Equal(t, want, got)
	require.Equal(t, 3, pages, "what else has a name takes no place in a page")
}

// A key made while the answer was lost is a key nobody knows; it shows in the
// list and can be revoked, and asking again makes another.
func TestCreateKeyWhoseAnswerIsLost(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	lost := 0
	f.store.after = func(ledger.Step) error {
		if lost++; lost == 1 {
			return ledger.ErrUnavailable
		}
		return nil
	}
	text, id := f.key(made.Ref)
	require.Equal(t, 2, lost, "the step was repeated under its nonce")
	keys, _, err := f.ListKeys(t.Context(), made.Ref, "", 10)
	require.NoError(t, err)
	require.Len(t, keys, 1)
	require.Equal(t, id, keys[0].ID)
	f.authenticate(text)
}

func TestRevocationsAtOnceLeaveOneRow(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	_, id := f.key(made.Ref)
	once := true
	f.store.before = func(ledger.Step) error {
		if once {
			once = false
			return f.replica().RevokeKey(t.Context(), f.caller, made.Ref, id)
		}
		return nil
	}
	require.ErrorIs(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id), tenants.ErrNotFound)
	require.Equal(t, []string{"tenant.created", "key.created", "key.revoked"}, f.events(made.Scope))
}

func TestKeyRecordsWithHolesAreUnreadable(t *testing.T) {
	for name, change := range map[string][2]string{
		"no scopes":  {`"scopes":["do"]`, `"scopes":[]`},
		"no hash":    {`"hash":"`, `"hash":"","label":"`},
		"short hash": {`"hash":"`, `"hash":"AAAA","label":"`},
	} {
		f := newFixture(t)
		made := f.create("acme")
		text, id := f.key(made.Ref)
		k := ledger.Key{Kind: ledger.APIKey, ID: id}
		v, _ := f.value(made.Scope, k)
		holed := strings.Replace(string(v.Data), change[0], change[1], 1)
		require.NotEqual(t, string(v.Data), holed, name)
		require.True(t, f.apply(made.Scope, ledger.Step{Put: []ledger.Put{{Key: k, Data: []byte(holed)}}}))
		_, err := f.Authenticate(t.Context(), text)
		require.ErrorIs(t, err, ledger.ErrCorrupt, name)
	}
}
