package connections_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
)

func TestPutCreatesAConnection(t *testing.T) {
	f := newFixture(t)
	before := f.store.Now()

	made, created, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
	require.NoError(t, err)
	require.True(t, created)
	require.Regexp(t, `^con_[A-Z2-7]{26}$`, made.ID)
	require.Equal(t, "billing", made.Name)
	require.Equal(t, "stripe@1", made.Connector)
	require.Equal(t, `{"site":"eu","n":1.10}`, string(made.Config), "digits stay as they were given")
	require.Equal(t, "https://api.stripe.com", made.BaseURL)
	require.False(t, made.Paused)
	require.False(t, made.Closing)
	require.False(t, made.AutoResend)
	require.Equal(t, []string{"api_key"}, made.CredentialNames)
	require.Regexp(t, `^[0-9a-f]{16}$`, made.Fingerprint)
	require.Equal(t, made.CreatedAt, made.UpdatedAt)
	require.WithinRange(t, made.CreatedAt, before.Truncate(time.Millisecond), f.store.Now())
	require.NotZero(t, made.Version)
	require.Equal(t, f.raw(f.tenant, "billing").Version, made.Version)
	require.True(t, f.claims(made, "w1"), "what Put returned can be claimed on")

	require.Equal(t, made, f.get("billing"))

	rows := f.rows()
	require.Len(t, rows, 1)
	require.Equal(t, audit.Row{
		Event: audit.ConnectionCreated, At: made.CreatedAt, Tenant: "acme", Actor: f.caller.Actor, Front: "rest",
		RequestID: "req_1", Connection: "billing", Subject: made.ID,
	}, rows[0])
}

func TestWhatIsLeftOutAtCreation(t *testing.T) {
	f := newFixture(t)
	c := f.put("bare", connections.Spec{Connector: "none@0"})
	require.Equal(t, `{}`, string(c.Config))
	require.Empty(t, c.BaseURL)
	require.Empty(t, c.CredentialNames)
	creds, err := f.Credentials(f.get("bare"))
	require.NoError(t, err)
	require.Empty(t, creds)

	require.Len(t, f.asked, 1)
	require.Equal(t, `{}`, string(f.asked[0].Config))
	require.NotNil(t, f.asked[0].Credentials, "the hook must see that there are none, not that they are kept")

	c = f.put("held-back", connections.Spec{Connector: "none@0", Paused: on(true), AutoResend: on(true)})
	require.True(t, c.Paused)
	require.True(t, c.AutoResend)
	require.False(t, c.SendTrace)
	require.True(t, f.put("traced", connections.Spec{Connector: "none@0", SendTrace: on(true)}).SendTrace)
}

func TestPutUpdates(t *testing.T) {
	f := newFixture(t)
	first := f.put("billing", stripe())
	f.clock.Add(int64(time.Minute))

	second, created, err := f.Put(t.Context(), f.caller, f.tenant, "billing", connections.Spec{
		Credentials: connections.Credentials{"api_key": "rotated"}, Paused: on(true), AutoResend: on(true), SendTrace: on(true),
	})
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, second, f.get("billing"))

	require.Equal(t, first.ID, second.ID, "rotating credentials keeps the identity of writes")
	require.Equal(t, first.CreatedAt, second.CreatedAt)
	require.True(t, second.UpdatedAt.After(first.UpdatedAt))
	require.NotEqual(t, first.Version, second.Version)
	require.NotEqual(t, first.Fingerprint, second.Fingerprint)
	require.True(t, second.Paused)
	require.True(t, second.AutoResend)
	require.True(t, second.SendTrace)
	creds, err := f.Credentials(second)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"api_key": "rotated"}, creds)

	rows := f.rows()
	require.Len(t, rows, 2)
	require.Equal(t, audit.ConnectionUpdated, rows[1].Event)
	require.Equal(t, []string{"credentials", "paused", "auto_resend", "send_trace"}, rows[1].Changed)
	require.Equal(t, "billing", rows[1].Connection)
	require.Equal(t, first.ID, rows[1].Subject)
}

// Whether the actions are tools of their own is kept, and a connection of before
// there was such a thing has none.
func TestToolsOfAConnection(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	require.NotContains(t, string(f.raw(f.tenant, "billing").Data), "mcp_tools", "stored as it was before")
	require.False(t, f.get("billing").MCPTools)
	f.put("billing", connections.Spec{MCPTools: on(true)})
	require.True(t, f.get("billing").MCPTools)
	f.put("billing", connections.Spec{Paused: on(true)})
	require.True(t, f.get("billing").MCPTools)
	rows := f.rows()
	require.Equal(t, []string{"mcp_tools"}, rows[1].Changed)
	made := stripe()
	made.MCPTools = on(true)
	require.True(t, f.put("other", made).MCPTools)
	require.True(t, f.get("other").MCPTools)
}

func TestWhatAnUpdateLeavesOutStays(t *testing.T) {
	f := newFixture(t)
	spec := stripe()
	spec.Paused, spec.AutoResend = on(true), on(true)
	first := f.put("billing", spec)

	second := f.put("billing", connections.Spec{AutoResend: on(false)})
	require.True(t, second.Paused, "a pause is not undone by a caller who did not speak of it")
	require.Equal(t, first.Config, second.Config)
	require.Equal(t, first.BaseURL, second.BaseURL)
	require.Equal(t, first.Fingerprint, second.Fingerprint)
	creds, err := f.Credentials(second)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"api_key": sentinel}, creds)
}

func TestPutOfTheSameChangesNothing(t *testing.T) {
	f := newFixture(t)
	spec := stripe()
	spec.Paused = on(false)
	first := f.put("billing", spec)
	spec.Config = []byte(" {\n \"n\" : 1.1, \"site\" : \"\\u0065u\" } ")
	for _, same := range []connections.Spec{spec, {}, {Connector: "stripe@1"}, {Credentials: spec.Credentials}} {
		again, created, err := f.Put(t.Context(), f.caller, f.tenant, "billing", same)
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, first, again)
	}
	require.Equal(t, first, f.get("billing"))
	require.Equal(t, []audit.Event{audit.ConnectionCreated}, f.events(), "no change, no row")
}

func TestFixedMembers(t *testing.T) {
	f := newFixture(t)
	first := f.put("billing", stripe())
	for member, spec := range map[string]connections.Spec{
		"connector": {Connector: "stripe@2", Paused: on(true)},
		"base_url":  {BaseURL: "https://evil.example", Paused: on(true)},
		"config":    {Config: []byte(`{"site":"us","n":1.10}`), Paused: on(true)},
	} {
		_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", spec)
		require.ErrorIs(t, err, connections.ErrFixed, member)
		require.ErrorContains(t, err, member)
	}
	require.Equal(t, first, f.get("billing"), "nothing of a refused update is done")
	require.Equal(t, []audit.Event{audit.ConnectionCreated}, f.events())
}

func TestValidateIsAskedAboutWhatIsNewOnly(t *testing.T) {
	f := newFixture(t)
	f.refusal = errors.New("no such connector")
	_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
	require.Equal(t, f.refusal, err, "as it is")
	_, err = f.Get(t.Context(), f.tenant, "billing")
	require.ErrorIs(t, err, connections.ErrNotFound)
	require.Empty(t, f.events())

	f.refusal = nil
	f.put("billing", stripe())

	f.asked, f.refusal = nil, errors.New("connector is broken")
	f.put("billing", connections.Spec{Connector: "stripe@1", Config: stripe().Config, BaseURL: stripe().BaseURL, Paused: on(true)})
	require.Empty(t, f.asked, "a pause needs nobody's consent")

	_, _, err = f.Put(t.Context(), f.caller, f.tenant, "billing", connections.Spec{Credentials: connections.Credentials{"api_key": "new"}})
	require.Equal(t, f.refusal, err)
	require.Len(t, f.asked, 1)
	require.Equal(t, "stripe@1", f.asked[0].Connector, "credentials are judged with what they are for")
	require.Equal(t, string(stripe().Config), string(f.asked[0].Config))
	require.Equal(t, "https://api.stripe.com", f.asked[0].BaseURL)
}

func TestNames(t *testing.T) {
	f := newFixture(t)
	for _, name := range []string{"a", "0", "a-b_c", strings.Repeat("x", 63)} {
		f.put(name, stripe())
		require.Equal(t, name, f.get(name).Name)
	}
	for _, name := range []string{"", "-a", "_a", "A", "a.b", "a/b", "a b", "é", "a\n", strings.Repeat("x", 64), strings.Repeat("x", 300)} {
		var bad *connections.SpecError
		_, _, err := f.Put(t.Context(), f.caller, f.tenant, name, stripe())
		require.ErrorAs(t, err, &bad, "%q", name)
		require.Empty(t, bad.Pointer)
		_, err = f.Get(t.Context(), f.tenant, name)
		require.ErrorIs(t, err, connections.ErrNotFound)
		require.ErrorIs(t, f.delete(name, settled), connections.ErrNotFound)
	}
}

func TestSpecsThatAreRefused(t *testing.T) {
	f := newFixture(t)
	with := func(change func(*connections.Spec)) connections.Spec {
		s := stripe()
		change(&s)
		return s
	}
	creds := func(c connections.Credentials) connections.Spec {
		return with(func(s *connections.Spec) { s.Credentials = c })
	}
	many := connections.Credentials{}
	for i := range 33 {
		many["k"+strings.Repeat("x", i)] = sentinel
	}
	for name, tt := range map[string]struct {
		spec    connections.Spec
		pointer string
	}{
		"no connector":        {with(func(s *connections.Spec) { s.Connector = "" }), "/connector"},
		"no major":            {with(func(s *connections.Spec) { s.Connector = "stripe" }), "/connector"},
		"a full version":      {with(func(s *connections.Spec) { s.Connector = "stripe@1.0.0" }), "/connector"},
		"odd connector":       {with(func(s *connections.Spec) { s.Connector = "Str ipe@1" }), "/connector"},
		"blank in URL":        {with(func(s *connections.Spec) { s.BaseURL = "https://a b" }), "/base_url"},
		"endless URL":         {with(func(s *connections.Spec) { s.BaseURL = "https://" + strings.Repeat("a", 2048) }), "/base_url"},
		"config no JSON":      {with(func(s *connections.Spec) { s.Config = []byte(`{"` + sentinel) }), "/config"},
		"config array":        {with(func(s *connections.Spec) { s.Config = []byte(`[]`) }), "/config"},
		"config null":         {with(func(s *connections.Spec) { s.Config = []byte(`null`) }), "/config"},
		"config empty":        {with(func(s *connections.Spec) { s.Config = []byte{} }), "/config"},
		"config twice":        {with(func(s *connections.Spec) { s.Config = []byte(`{"` + sentinel + `":1,"` + sentinel + `":1}`) }), "/config/" + sentinel},
		"config inexact":      {with(func(s *connections.Spec) { s.Config = []byte(`{"n":9007199254740993}`) }), "/config/n"},
		"config large":        {with(func(s *connections.Spec) { s.Config = []byte(`{"n":"` + strings.Repeat("x", 64<<10) + `"}`) }), "/config"},
		"name and value":      {creds(connections.Credentials{sentinel + " ": "api_key"}), "/credentials"},
		"no value":            {creds(connections.Credentials{"api_key": ""}), "/credentials"},
		"value no UTF-8":      {creds(connections.Credentials{"api_key": sentinel + "\xff"}), "/credentials"},
		"value large":         {creds(connections.Credentials{"api_key": sentinel + strings.Repeat("x", 16<<10)}), "/credentials"},
		"too many":            {creds(many), "/credentials"},
		"name that is no one": {creds(connections.Credentials{"": sentinel}), "/credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", tt.spec)
			var bad *connections.SpecError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, tt.pointer, bad.Pointer)
			require.NotEmpty(t, bad.Reason)
			require.NotContains(t, err.Error(), sentinel)
		})
	}
	require.Empty(t, f.events())
	require.Empty(t, f.asked, "what cannot be stored is not asked about")
}

func TestTenantsWithTheSameNamesNeverMeet(t *testing.T) {
	f := newFixture(t)
	ours, other := f.tenant, ledger.ScopeOf("globex")
	a := f.put("billing", stripe())
	_, err := f.Get(t.Context(), other, "billing")
	require.ErrorIs(t, err, connections.ErrNotFound)
	require.ErrorIs(t, f.Delete(t.Context(), f.caller, other, "billing", settled), connections.ErrNotFound)

	b, created, err := f.Put(t.Context(), f.caller, other, "billing", stripe())
	require.NoError(t, err)
	require.True(t, created)
	require.NotEqual(t, a.ID, b.ID)
	require.NotEqual(t, a.Fingerprint, b.Fingerprint, "nobody can tell that two tenants share an account")

	_, _, err = f.Put(t.Context(), f.caller, other, "billing", connections.Spec{Paused: on(true)})
	require.NoError(t, err)
	require.Equal(t, a, f.get("billing"))

	require.NoError(t, f.Delete(t.Context(), f.caller, other, "billing", func(_ context.Context, scope ledger.Scope, id string) (bool, error) {
		require.Equal(t, other, scope)
		require.Equal(t, b.ID, id)
		return false, nil
	}))
	require.Equal(t, a, f.get("billing"))
	page, _, err := f.List(t.Context(), ours, "", 10)
	require.NoError(t, err)
	require.Equal(t, []connections.Connection{a}, page)
	page, _, err = f.List(t.Context(), other, "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
}

// A store that loses its answer leaves the caller in doubt; the same call again
// is right whether or not the first one was applied.
func TestPutAgainAfterDoubt(t *testing.T) {
	t.Run("applied, answer lost once", func(t *testing.T) {
		f := newFixture(t)
		lost := false
		f.store.after = func(ledger.Step) error {
			if lost {
				return nil
			}
			lost = true
			return errLost
		}
		c := f.put("billing", stripe())
		require.Equal(t, c, f.get("billing"), "the version returned is the one stored")
		require.Equal(t, []audit.Event{audit.ConnectionCreated}, f.events())
	})
	t.Run("applied, answer lost", func(t *testing.T) {
		f := newFixture(t)
		f.store.after = always
		_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		f.store.after = nil
		_, created, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
		require.NoError(t, err)
		require.False(t, created)
		require.Equal(t, []audit.Event{audit.ConnectionCreated}, f.events())
	})
	t.Run("not applied", func(t *testing.T) {
		f := newFixture(t)
		f.store.before = always
		_, _, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		f.store.before = nil
		_, created, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
		require.NoError(t, err)
		require.True(t, created)
	})
}

// Two who create the same connection at once: one creates, the other finds it.
func TestCreationsAtOnce(t *testing.T) {
	f := newFixture(t)
	once := false
	f.store.before = func(ledger.Step) error {
		if !once {
			once = true
			f.put("billing", stripe())
		}
		return nil
	}
	second, created, err := f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
	require.NoError(t, err)
	require.False(t, created)
	require.Equal(t, f.get("billing"), second)
	require.Equal(t, []audit.Event{audit.ConnectionCreated}, f.events())
}

// Two who change different members at once: neither change is lost.
func TestUpdatesAtOnce(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	once := false
	f.store.before = func(ledger.Step) error {
		if !once {
			once = true
			f.put("billing", connections.Spec{Paused: on(true)})
		}
		return nil
	}
	c := f.put("billing", connections.Spec{AutoResend: on(true)})
	require.True(t, c.Paused)
	require.True(t, c.AutoResend)
	require.Equal(t, c, f.get("billing"))
}

func TestUnreadableConnectionsAreNamedSo(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	f.overwrite(f.tenant, "billing", bytes.Replace(f.raw(f.tenant, "billing").Data, []byte(`"paused":false,`), nil, 1))
	_, err := f.Get(t.Context(), f.tenant, "billing")
	require.ErrorIs(t, err, connections.ErrUnreadable)
	require.ErrorIs(t, err, ledger.ErrCorrupt)
	_, _, err = f.Put(t.Context(), f.caller, f.tenant, "billing", stripe())
	require.ErrorIs(t, err, connections.ErrUnreadable)
	require.ErrorIs(t, f.delete("billing", settled), connections.ErrUnreadable)
	_, _, err = f.List(t.Context(), f.tenant, "", 10)
	require.ErrorIs(t, err, connections.ErrUnreadable)
}

func TestNewBookWantsAllItsParts(t *testing.T) {
	f := newFixture(t)
	sealer := ring(t, keyText(1))
	validate := func(connections.Spec) error { return nil }
	for _, c := range []connections.Config{
		{Sealer: sealer, Validate: validate}, {Store: f.store, Validate: validate}, {Store: f.store, Sealer: sealer},
	} {
		_, err := connections.NewBook(c)
		require.Error(t, err)
	}
}
