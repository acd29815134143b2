package connections_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/seal"
)

// keyText is a secret key that is the same in each run.
func keyText(seed byte) string {
	key := make([]byte, 32)
	for i := range key {
		key[i] = seed + byte(i)
	}
	return base64.StdEncoding.EncodeToString(key)
}

func TestCredentialsComeBackAsTheyWere(t *testing.T) {
	f := newFixture(t)
	want := map[string]string{"api_key": sentinel, "user.name": "ü<>&\u2028\"\\", "pass-word": " blank "}
	c := f.put("billing", connections.Spec{Connector: "stripe@1", Credentials: want})
	require.Equal(t, []string{"api_key", "pass-word", "user.name"}, c.CredentialNames)
	got, err := f.Credentials(f.get("billing"))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestCredentialIsInNothingThatIsStored(t *testing.T) {
	f := newFixture(t)
	f.store.record = true
	f.put("billing", stripe())
	f.put("billing", connections.Spec{Credentials: connections.Credentials{"api_key": sentinel + "2"}})
	require.ErrorIs(t, f.delete("billing", inFlight), connections.ErrUnsettled)
	require.NoError(t, f.delete("billing", settled))

	require.NotEmpty(t, f.store.seen)
	for _, step := range f.store.seen {
		text := fmt.Sprintf("%+v %q %q", step, step.Rows, step.Put)
		for _, form := range []string{
			sentinel, sentinel[:12],
			base64.StdEncoding.EncodeToString([]byte(sentinel))[:16],
			fmt.Sprintf("%x", sentinel), fmt.Sprint([]byte(sentinel)),
		} {
			require.NotContains(t, text, strings.Trim(form, "[]"))
		}
	}
}

func TestCredentialIsInNothingThatIsPrinted(t *testing.T) {
	f := newFixture(t)
	spec := stripe()
	c := f.put("billing", spec)
	var out bytes.Buffer
	for _, v := range []any{spec, &spec, spec.Credentials, c, &c, []connections.Connection{c}, f.Book} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			_, _ = fmt.Fprintf(&out, verb, v)
		}
		text, err := json.Marshal(v)
		require.NoError(t, err)
		out.Write(text)
		slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
	}
	require.NotContains(t, out.String(), sentinel)
	require.NotContains(t, out.String(), fmt.Sprintf("%x", sentinel))
	require.NotContains(t, out.String(), strings.Trim(fmt.Sprint([]byte(sentinel)), "[]"))
	require.Contains(t, out.String(), "api_key", "the names may be seen")

	require.Equal(t, fmt.Sprintf("connection %s (billing, stripe@1)", c.ID), fmt.Sprint(c), "nor the config")
}

// member changes one member of a stored connection.
func member(t *testing.T, data []byte, name string, change func(string) string) []byte {
	t.Helper()
	var s struct {
		V           json.RawMessage `json:"v"`
		ID          json.RawMessage `json:"id"`
		Name        json.RawMessage `json:"name"`
		Connector   json.RawMessage `json:"connector"`
		Config      json.RawMessage `json:"config"`
		BaseURL     json.RawMessage `json:"base_url"`
		Paused      json.RawMessage `json:"paused"`
		Closing     json.RawMessage `json:"closing"`
		AutoResend  json.RawMessage `json:"auto_resend"`
		Created     json.RawMessage `json:"created"`
		Updated     json.RawMessage `json:"updated"`
		Credentials json.RawMessage `json:"credentials"`
		Fingerprint json.RawMessage `json:"fingerprint"`
		Sealed      json.RawMessage `json:"sealed"`
		SecretNo    json.RawMessage `json:"credential_version"`
		SecretAt    json.RawMessage `json:"credentials_at"`
		Account     json.RawMessage `json:"account"`
	}
	require.NoError(t, json.Unmarshal(data, &s))
	m := map[string]*json.RawMessage{
		"id": &s.ID, "connector": &s.Connector, "config": &s.Config, "base_url": &s.BaseURL, "sealed": &s.Sealed,
	}[name]
	*m = json.RawMessage(change(string(*m)))
	out, err := json.Marshal(s)
	require.NoError(t, err)
	return out
}

func TestTamperedConnectionsDoNotOpen(t *testing.T) {
	f := newFixture(t)
	c := f.put("billing", stripe())
	twin := f.put("twin", stripe())
	other := ledger.ScopeOf("globex")
	_, _, err := f.Put(t.Context(), f.caller, other, "billing", stripe())
	require.NoError(t, err)
	good := f.raw(f.tenant, "billing").Data
	to := func(s string) func(string) string { return func(string) string { return s } }
	sealedOf := func(data []byte) (sealed string) {
		member(t, data, "sealed", func(s string) string { sealed = s; return s })
		return sealed
	}

	for name, data := range map[string][]byte{
		"flipped bit": member(t, good, "sealed", func(s string) string {
			raw, err := base64.StdEncoding.DecodeString(strings.Trim(s, `"`))
			require.NoError(t, err)
			raw[len(raw)-1] ^= 1
			return `"` + base64.StdEncoding.EncodeToString(raw) + `"`
		}),
		"nothing sealed":        member(t, good, "sealed", to(`""`)),
		"another base URL":      member(t, good, "base_url", to(`"https://evil.example"`)),
		"another connector":     member(t, good, "connector", to(`"evil@1"`)),
		"another config":        member(t, good, "config", to(`{"site":"evil"}`)),
		"another connection's":  member(t, good, "sealed", to(sealedOf(f.raw(f.tenant, "twin").Data))),
		"another tenant's":      f.raw(other, "billing").Data,
		"another's id as well":  member(t, good, "id", to(`"`+twin.ID+`"`)),
		"sealed by another key": member(t, good, "sealed", to(foreignSealed(t))),
	} {
		t.Run(name, func(t *testing.T) {
			f.overwrite(f.tenant, "billing", data)
			c, err := f.Get(t.Context(), f.tenant, "billing")
			require.NoError(t, err)
			creds, err := f.Credentials(c)
			require.ErrorIs(t, err, connections.ErrCredentials)
			require.Nil(t, creds)
			require.NotContains(t, err.Error(), sentinel)
		})
	}
	f.overwrite(f.tenant, "billing", good)
	creds, err := f.Credentials(f.get("billing"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"api_key": sentinel}, creds)
	require.Equal(t, c.ID, f.get("billing").ID)

	_, err = f.Credentials(connections.Connection{ID: c.ID, Name: "billing"})
	require.ErrorIs(t, err, connections.ErrCredentials, "a connection that no book returned")
}

func foreignSealed(t *testing.T) string {
	t.Helper()
	return `"` + base64.StdEncoding.EncodeToString(ring(t, keyText(9)).Seal([]byte(`{}`))) + `"`
}

// A value moved under another name of the same tenant is not that connection.
func TestAConnectionUnderAnotherNameIsUnreadable(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	f.overwrite(f.tenant, "payroll", f.raw(f.tenant, "billing").Data)
	_, err := f.Get(t.Context(), f.tenant, "payroll")
	require.ErrorIs(t, err, connections.ErrUnreadable)
}

func TestRotationOfTheSecretKey(t *testing.T) {
	f := newFixture(t)
	f.Book = f.book(ring(t, keyText(1)))
	c := f.put("billing", stripe())

	both, fresh := f.book(ring(t, keyText(2)+","+keyText(1))), f.book(ring(t, keyText(2)))
	creds, err := both.Credentials(c)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"api_key": sentinel}, creds)
	_, err = fresh.Credentials(c)
	require.ErrorIs(t, err, seal.ErrUnknownKey)
	require.ErrorIs(t, err, connections.ErrCredentials)

	f.Book = fresh
	paused := f.put("billing", connections.Spec{Paused: on(true)})
	require.True(t, paused.Paused, "a pause needs no key")

	// Putting the same credentials once more seals them under the new key.
	f.Book = both
	again := f.put("billing", stripe())
	require.NotEqual(t, c.Fingerprint, again.Fingerprint)
	creds, err = fresh.Credentials(f.get("billing"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"api_key": sentinel}, creds)
	require.Equal(t, again, f.put("billing", stripe()), "once is enough")
	require.Equal(t, []audit.Event{audit.ConnectionCreated, audit.ConnectionUpdated, audit.ConnectionUpdated}, f.events())
}

// Credentials that no configured key opens can be replaced, the same ones too.
func TestCredentialsOfALostKeyCanBeReplaced(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	f.Book = f.book(ring(t, keyText(2)))
	f.put("billing", stripe())
	creds, err := f.Credentials(f.get("billing"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"api_key": sentinel}, creds)
}

func TestBrokenSealIsRepairedByTheSameCredentials(t *testing.T) {
	f := newFixture(t)
	f.put("billing", stripe())
	f.overwrite(f.tenant, "billing", member(t, f.raw(f.tenant, "billing").Data, "sealed", func(string) string { return `""` }))
	f.put("billing", stripe())
	_, err := f.Credentials(f.get("billing"))
	require.NoError(t, err)
}

// oneHash is a sealer whose keyed hashes are all the same.
type oneHash struct{ *seal.Ring }

func (oneHash) MAC(string, ...[]byte) [32]byte { return [32]byte{} }

// Fingerprints are short: that two are equal does not make new credentials the
// old ones.
func TestEqualFingerprintsAreNotEqualCredentials(t *testing.T) {
	f := newFixture(t)
	f.Book = f.book(oneHash{ring(t, keyText(1))})
	f.put("billing", stripe())
	f.put("billing", connections.Spec{Credentials: connections.Credentials{"api_key": "rotated"}})
	creds, err := f.Credentials(f.get("billing"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"api_key": "rotated"}, creds)
}
