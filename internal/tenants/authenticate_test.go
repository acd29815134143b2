package tenants_test

import (
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

func TestPlatformKey(t *testing.T) {
	f := newFixture(t)
	p := f.authenticate(adminKey)
	require.True(t, p.Platform)
	require.Empty(t, p.TenantName())
	require.Equal(t, ledger.Platform, p.Scope)
	require.Equal(t, audit.Actor{Kind: audit.KindPlatform}, p.Actor())
	for _, s := range []tenants.KeyScope{tenants.ScopeDo, tenants.ScopeRead, tenants.ScopeResolve, tenants.ScopeManage} {
		require.False(t, p.Can(s), "it acts on tenants, not as one")
	}
	require.False(t, p.MayDo("billing", "create_invoice"))
	require.Empty(t, p.Guards())

	for _, wrong := range []string{"", adminKey + "x", adminKey[1:], strings.ToUpper(adminKey), " " + adminKey} {
		f.locked(wrong)
	}
	require.Zero(t, f.store.readCount(), "neither needs the store")

	none, err := tenants.New(tenants.Config{Store: f.store})
	require.NoError(t, err)
	_, err = none.Authenticate(t.Context(), "")
	require.ErrorIs(t, err, tenants.ErrUnauthenticated, "no admin key is not an empty admin key")
}

// While a key is replaced both are good, and the log can tell them apart.
func TestPlatformKeysAreReplacedOneByOne(t *testing.T) {
	f := newFixture(t)
	for i, key := range []string{adminKey, nextAdminKey} {
		p := f.authenticate(key)
		require.True(t, p.Platform)
		require.Equal(t, i+1, p.AdminKey)
	}
	f.locked(adminKey + "," + nextAdminKey)
	only, err := tenants.New(tenants.Config{Store: f.store, AdminKeys: []string{nextAdminKey}})
	require.NoError(t, err)
	_, err = only.Authenticate(t.Context(), adminKey)
	require.ErrorIs(t, err, tenants.ErrUnauthenticated)
}

func TestEveryBadKeyGetsTheSameAnswer(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, id := f.key(made.Ref)
	other, _ := f.key(made.Ref)
	parts, otherParts := strings.Split(text, "_"), strings.Split(other, "_")
	reads := f.store.readCount()

	// Caught by the form or the checksum: the store is not asked.
	for name, bad := range map[string]string{
		"nothing":            "",
		"no key":             "Bearer",
		"upper case":         strings.ToUpper(text),
		"other prefix":       "hx" + text[2:],
		"no secret":          "hf_" + id,
		"hardly a secret":    "hf_a_b",
		"a blank":            text + " ",
		"longer":             text + "a",
		"cut":                text[:len(text)-1],
		"two swapped":        text[:50] + string(text[51]) + string(text[50]) + text[52:] + "!",
		"another checksum":   text[:len(text)-7] + other[len(other)-7:],
		"another public id":  "hf_" + otherParts[1] + "_" + parts[2],
		"another secret":     "hf_" + parts[1] + "_" + otherParts[2],
		"checksum alone":     "hf__" + text[len(text)-7:],
		"underscores":        strings.Repeat("_", len(text)),
		"a typo":             flip(text, 30),
		"a typo in secret":   flip(text, 70),
		"a typo in checksum": flip(text, len(text)-1),
	} {
		t.Run(name, func(t *testing.T) { f.locked(bad) })
	}
	require.Equal(t, reads, f.store.readCount())
}

// flip changes one character to another of the alphabet.
func flip(text string, at int) string {
	c := byte('a')
	if text[at] == c {
		c = 'b'
	}
	return text[:at] + string(c) + text[at+1:]
}

func TestExpiredKeyIsOut(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _, err := f.CreateKey(t.Context(), f.caller, made.Ref, tenants.NewKey{
		Scopes: []tenants.KeyScope{tenants.ScopeDo}, ExpiresAt: noon.Add(500 * time.Millisecond),
	})
	require.NoError(t, err)
	f.authenticate(text)
	f.clock.Advance(499 * time.Millisecond)
	f.authenticate(text)
	f.clock.Advance(time.Millisecond)
	f.locked(text) // from memory, and it must not help
	require.Equal(t, 0, reads(f, func() { f.locked(text) }))
	_, err = f.replica().Authenticate(t.Context(), text)
	require.ErrorIs(t, err, tenants.ErrUnauthenticated)
}

// reads counts the store's reads during a call.
func reads(f *fixture, call func()) int {
	before := f.store.readCount()
	call()
	return f.store.readCount() - before
}

func TestSuspendedTenantIsMarked(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	elsewhere := f.replica()
	require.False(t, f.authenticate(text).Suspended)
	stale, err := elsewhere.Authenticate(t.Context(), text)
	require.NoError(t, err)

	_, err = f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Suspended: ptr(true)})
	require.NoError(t, err)

	require.True(t, f.authenticate(text).Suspended, "at once on this replica")
	require.False(t, claim(f, stale), "and for new writes on every other")
	f.clock.Advance(time.Second)
	p, err := elsewhere.Authenticate(t.Context(), text)
	require.NoError(t, err)
	require.True(t, p.Suspended, "and within a second for the rest")
	require.True(t, p.Can(tenants.ScopeDo), "so that replays are answered")
}

func TestRevocationElsewhereIsSeenWithinASecond(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, id := f.key(made.Ref)
	elsewhere := f.replica()
	p, err := elsewhere.Authenticate(t.Context(), text)
	require.NoError(t, err)
	require.True(t, claim(f, p))

	require.NoError(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id))

	require.False(t, claim(f, p), "no new write, from the moment it is stored")
	elsewhere.Forget(id)
	_, err = elsewhere.Authenticate(t.Context(), text)
	require.ErrorIs(t, err, tenants.ErrUnauthenticated, "whose step failed reads anew")

	text, id = f.key(made.Ref)
	_, err = elsewhere.Authenticate(t.Context(), text)
	require.NoError(t, err)
	require.NoError(t, f.RevokeKey(t.Context(), f.caller, made.Ref, id))
	f.clock.Advance(time.Second)
	_, err = elsewhere.Authenticate(t.Context(), text)
	require.ErrorIs(t, err, tenants.ErrUnauthenticated)
}

func TestGuardsFollowTheKeyAndTheTenant(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	p := f.authenticate(text)
	require.True(t, claim(f, p))
	guards := p.Guards()
	guards[0].Version = ledger.Version{}
	require.True(t, claim(f, p), "a copy is returned")

	_, err := f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Limits: &tenants.Limits{WritesPerSecond: 1}})
	require.NoError(t, err)
	require.False(t, claim(f, p))
	require.True(t, claim(f, f.authenticate(text)))
}

func TestAKeyIsReadOncePerSecond(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, _ := f.key(made.Ref)
	require.Equal(t, 1, reads(f, func() { f.authenticate(text) }))
	f.clock.Advance(999 * time.Millisecond)
	require.Equal(t, 0, reads(f, func() { f.authenticate(text) }))
	f.clock.Advance(time.Millisecond)
	require.Equal(t, 1, reads(f, func() { f.authenticate(text) }))

	wrong, _ := f.key(made.Ref)
	require.NoError(t, f.RevokeKey(t.Context(), f.caller, made.Ref, strings.Split(wrong, "_")[1]))
	require.Equal(t, 2, reads(f, func() { f.locked(wrong); f.locked(wrong) }), "absence is not remembered: a key may be made any moment")
}

// A read that began before a revocation here and ends after it must not bring
// the key back.
func TestMemoryIsNotFilledByALateRead(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	for name, change := range map[string]func(id string) error{
		"revoked": func(id string) error { return f.RevokeKey(t.Context(), f.caller, made.Ref, id) },
		"suspended": func(string) error {
			_, err := f.UpdateTenant(t.Context(), f.caller, "acme", tenants.Patch{Suspended: ptr(true)})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, id := f.key(made.Ref)
			once := true
			f.store.read = func() error {
				if once {
					once = false
					return change(id)
				}
				return nil
			}
			f.authenticate(text) // decided on what was so when it was read
			f.store.read = nil
			p, err := f.Authenticate(t.Context(), text)
			require.True(t, err != nil || p.Suspended)
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	f := newFixture(t)
	small, err := tenants.New(tenants.Config{Store: f.store, Clock: f.clock.Now})
	require.NoError(t, err)
	tenants.SetMemorySize(small, 3)
	made := f.create("acme")
	for range 10 {
		text, _ := f.key(made.Ref)
		_, err := small.Authenticate(t.Context(), text)
		require.NoError(t, err)
		require.LessOrEqual(t, tenants.Remembered(small), 3)
	}
	f.clock.Advance(2 * time.Second)
	text, _ := f.key(made.Ref)
	_, err = small.Authenticate(t.Context(), text)
	require.NoError(t, err)
	require.Equal(t, 1, tenants.Remembered(small), "what is stale goes first")

	f.clock.Advance(-time.Minute)
	require.Equal(t, 1, reads(f, func() {
		_, err := small.Authenticate(t.Context(), text)
		require.NoError(t, err)
	}), "a clock that goes backwards makes nothing fresh")
}

// A key cannot name the platform's scope, nor a tenant whose record is kept in
// another's.
func TestKeysOpenOnlyTheirOwnScope(t *testing.T) {
	f := newFixture(t)
	a, b := f.create("acme"), f.create("globex")
	text, id := f.key(a.Ref)
	v, _ := f.value(b.Scope, ledger.Key{Kind: ledger.Tenant})
	require.True(t, f.apply(a.Scope, ledger.Step{Put: []ledger.Put{{Key: ledger.Key{Kind: ledger.Tenant}, Data: v.Data}}}))
	f.Forget(id)
	_, err := f.Authenticate(t.Context(), text)
	require.ErrorIs(t, err, ledger.ErrCorrupt)

	forged := tenants.Mint(ledger.Platform)
	require.Equal(t, 0, reads(f, func() { f.locked(forged) }))
	unknown := tenants.Mint(ledger.ScopeOf("nobody"))
	require.Equal(t, 1, reads(f, func() { f.locked(unknown) }))
	wrongSecret := tenants.Mint(b.Scope)
	f.locked(wrongSecret)
}

func TestMayDo(t *testing.T) {
	do := []tenants.KeyScope{tenants.ScopeDo}
	for name, tt := range map[string]struct {
		p    tenants.Principal
		want bool
	}{
		"not narrowed":          {tenants.Principal{Scopes: do}, true},
		"no do":                 {tenants.Principal{Scopes: []tenants.KeyScope{tenants.ScopeManage, tenants.ScopeRead}}, false},
		"no scopes":             {tenants.Principal{}, false},
		"platform":              {tenants.Principal{Platform: true, Scopes: do}, false},
		"granted":               {tenants.Principal{Scopes: do, Grants: []tenants.Grant{{Connection: "crm"}, {Connection: "billing", Actions: []string{"x", "create"}}}}, true},
		"whole connection":      {tenants.Principal{Scopes: do, Grants: []tenants.Grant{{Connection: "billing"}}}, true},
		"other action":          {tenants.Principal{Scopes: do, Grants: []tenants.Grant{{Connection: "billing", Actions: []string{"delete"}}}}, false},
		"other connection":      {tenants.Principal{Scopes: do, Grants: []tenants.Grant{{Connection: "bill"}, {Connection: "crm", Actions: []string{"create"}}}}, false},
		"a grant without do":    {tenants.Principal{Scopes: []tenants.KeyScope{tenants.ScopeRead}, Grants: []tenants.Grant{{Connection: "billing"}}}, false},
		"an action as a prefix": {tenants.Principal{Scopes: do, Grants: []tenants.Grant{{Connection: "billing", Actions: []string{"create_all"}}}}, false},
	} {
		require.Equal(t, tt.want, tt.p.MayDo("billing", "create"), name)
	}
}

func TestManyAuthenticateAtOnce(t *testing.T) {
	f := newFixture(t)
	made := f.create("acme")
	text, id := f.key(made.Ref)
	errs := make(chan error, 200)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 25 {
				p, err := f.Authenticate(t.Context(), text)
				if err == nil && p.KeyID != id {
					err = fmt.Errorf("got key %s", p.KeyID)
				}
				if i == 0 {
					f.Forget(id)
				}
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		require.NoError(t, err)
	}
}
