package connections

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// pinned is a connection as version 1 stores it: what is in a store today must
// be readable in every release to come.
const pinned = `{"v":1,"id":"con_ABCDEFGHIJKLMNOPQRSTUVWXYZ","name":"billing","connector":"stripe@1",` +
	`"config":{"a":"<&>","n":1.10},"base_url":"https://api.stripe.com","paused":true,"closing":false,"auto_resend":true,` +
	`"created":1767225600123,"updated":1767225600124,"credentials":["api_key"],"fingerprint":"00112233aabbccdd","sealed":"AQID",` +
	`"credential_version":3,"credentials_at":1767225600124,"account":"Acme <EU>"}`

func TestStoredFormIsStable(t *testing.T) {
	v := ledger.Value{Version: ledger.Version{1}, Data: []byte(pinned)}
	c, err := decode(ledger.ScopeOf("acme"), "billing", v)
	require.NoError(t, err)
	require.Equal(t, `{"a":"<&>","n":1.10}`, string(c.Config))
	require.Equal(t, "2026-01-01T00:00:00.123Z", c.CreatedAt.Format("2006-01-02T15:04:05.000Z07:00"))
	require.Equal(t, []byte{1, 2, 3}, c.sealed)
	require.EqualValues(t, 3, c.CredentialVersion)
	require.Equal(t, "Acme <EU>", c.Account)
	require.True(t, c.Paused && c.AutoResend && !c.Closing)
	again, err := encode(c)
	require.NoError(t, err)
	require.Equal(t, pinned, string(again))
}

// A connection stored before there was send_trace does not send any; one that
// does is stored with it.
func TestSendTraceIsStoredWhereItIsOn(t *testing.T) {
	on := strings.Replace(pinned, `"account":"Acme <EU>"`, `"account":"Acme <EU>","send_trace":true`, 1)
	for data, want := range map[string]bool{pinned: false, on: true} {
		c, err := decode(ledger.ScopeOf("acme"), "billing", ledger.Value{Version: ledger.Version{1}, Data: []byte(data)})
		require.NoError(t, err)
		require.Equal(t, want, c.SendTrace)
		again, err := encode(c)
		require.NoError(t, err)
		require.Equal(t, data, string(again))
	}
}

func TestStoredFormIsReadStrictly(t *testing.T) {
	for name, change := range map[string][2]string{
		"later version":    {`"v":1`, `"v":2`},
		"no version":       {`"v":1,`, ``},
		"no pause":         {`"paused":true,`, ``},
		"unknown member":   {`"v":1`, `"v":1,"x":1`},
		"twice":            {`"paused":true`, `"paused":true,"paused":false`},
		"other case":       {`"paused":true`, `"Paused":true`},
		"null":             {`"paused":true`, `"paused":null`},
		"another name":     {`"name":"billing"`, `"name":"payroll"`},
		"no id":            {`con_`, ``},
		"odd connector":    {`stripe@1`, `stripe`},
		"config no object": {`{"a":"<&>","n":1.10}`, `[]`},
		"config absent":    {`"config":{"a":"<&>","n":1.10},`, ``},
		"config null":      {`{"a":"<&>","n":1.10}`, `null`},
		"no credentials":   {`"credentials":["api_key"],`, ``},
		"no number":        {`"credential_version":3,`, ``},
		"number zero":      {`"credential_version":3`, `"credential_version":0`},
		"white space":      {`"v":1`, `"v": 1`},
		"fraction of ms":   {`1767225600123`, `1767225600123.0`},
		"cut":              {`"account":"Acme <EU>"}`, `"account":"Acme <EU>"`},
		"more":             {`"account":"Acme <EU>"}`, `"account":"Acme <EU>"}{}`},
	} {
		t.Run(name, func(t *testing.T) {
			data := strings.Replace(pinned, change[0], change[1], 1)
			require.NotEqual(t, pinned, data)
			_, err := decode(ledger.Scope{}, "billing", ledger.Value{Data: []byte(data)})
			require.ErrorIs(t, err, ErrUnreadable)
			require.ErrorIs(t, err, ledger.ErrCorrupt)
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(pinned))
	f.Add([]byte(strings.Replace(pinned, `"closing":false`, `"closing":true`, 1)))
	f.Add([]byte(`{}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := decode(ledger.Scope{}, "billing", ledger.Value{Data: data})
		if err != nil {
			require.ErrorIs(t, err, ErrUnreadable)
			return
		}
		again, err := encode(c)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, again))
		require.True(t, c.Paused || !c.Closing, "closing reads as paused")
	})
}

func FuzzCursor(f *testing.F) {
	f.Add("")
	f.Add("AAAAAAAAAABjL2E")
	f.Add("__________9jL2E")
	f.Fuzz(func(t *testing.T, cursor string) {
		e, err := parseCursor(cursor)
		if err != nil || e == nil {
			return
		}
		require.Equal(t, cursor, formatCursor(e))
	})
}

func FuzzSpec(f *testing.F) {
	f.Add("stripe@1", []byte(`{"a": 1.10 }`), "https://a.example", "api_key", "secret")
	f.Add("", []byte(nil), "", "", "")
	f.Fuzz(func(t *testing.T, connector string, config []byte, base, name, value string) {
		s, err := Spec{Connector: connector, Config: config, BaseURL: base, Credentials: Credentials{name: value}}.checked()
		if err != nil {
			return
		}
		if s, err = s.complete(); err != nil {
			return
		}
		c := &Connection{ID: newID(), Name: "billing", Connector: s.Connector, Config: s.Config, BaseURL: s.BaseURL, CredentialNames: s.Credentials.Names(), CredentialVersion: 1, sealed: []byte{1}}
		data, err := encode(c)
		require.NoError(t, err)
		_, err = decode(ledger.Scope{}, "billing", ledger.Value{Data: data})
		require.NoError(t, err, "what is accepted can be read back")
	})
}

func BenchmarkDecode(b *testing.B) {
	v := ledger.Value{Data: []byte(pinned)}
	for b.Loop() {
		if _, err := decode(ledger.Scope{}, "billing", v); err != nil {
			b.Fatal(err)
		}
	}
}
