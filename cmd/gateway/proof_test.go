package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/seal"
	"holdfast.dev/gateway/internal/vendortest"
)

// logOf is the log of a scope as an export has it: its segments, one after
// another.
func logOf(t testing.TB, app *App, scope ledger.Scope) string {
	t.Helper()
	all, err := app.sealing.reader.Entries(t.Context(), scope, archive.Range{Limit: 1 << 20})
	require.NoError(t, err)
	var b strings.Builder
	for _, e := range all {
		text, err := app.sealing.reader.Text(t.Context(), e)
		require.NoError(t, err)
		b.Write(text)
	}
	return b.String()
}

func kept(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kept")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// proofOf is what a tenant puts aside: the public keys, and the newest checkpoint.
func proofOf(a *agent) (keys []string, checkpoint string) {
	a.t.Helper()
	var page struct {
		Keys []struct {
			PublicKey string `json:"public_key"`
		}
		Data []json.RawMessage
	}
	require.NoError(a.t, json.Unmarshal(a.must(200, "GET", "/v1/audit/checkpoints", nil).raw, &page))
	for _, k := range page.Keys {
		keys = append(keys, "--key="+k.PublicKey)
	}
	require.NotEmpty(a.t, page.Data)
	return keys, string(page.Data[0])
}

// TestAnyoneCanProveALog: over the API, and with nothing but the exported file, a
// public key and a checkpoint; and what was done to it is found.
func TestAnyoneCanProveALog(t *testing.T) {
	onBothArchives(t, func(t *testing.T, cfg Config) {
		cfg.auditRows = 4
		vendor := vendortest.New(t, vendortest.OK)
		app, _ := boot(t, cfg)
		a, other := newAgent(t, app.URL()), newAgent(t, app.URL())
		for _, who := range []*agent{a, other} {
			who.connect("c", "probe@1", vendor.URL())
			for n := range 6 {
				who.do("c", "create", fmt.Sprintf(`{"n":%d}`, n)).is(200, "succeeded")
			}
			sealedThrough(t, app, who.scopeOf(app))
		}
		proof := a.must(200, "GET", "/v1/audit/verify", nil)
		require.Equal(t, true, proof.body["whole"], "%s", proof.raw)
		require.Equal(t, a.name, proof.body["tenant"])
		keys, checkpoint := proofOf(a)
		log := logOf(t, app, a.scopeOf(app))
		verify := func(text string, more ...string) (string, error) {
			return runCommand(t, append(append([]string{"audit", "verify", kept(t, text)}, keys...), more...)...)
		}
		out, err := verify(log)
		require.NoError(t, err, out)
		require.Contains(t, out, "log of tenant "+a.name)
		require.Contains(t, out, "whole from row 1 through row ")
		require.Contains(t, out, "only a later checkpoint can show")
		_, err = verify(log, "--tenant="+a.name)
		require.NoError(t, err)
		_, err = verify(log, "--tenant="+a.name+"x")
		require.ErrorIs(t, err, errOtherTenant)
		out, err = verify(log, "--checkpoint", checkpoint)
		require.NoError(t, err, out)
		require.Contains(t, out, "it leads to the later checkpoint")
		_, err = verify(log, "--checkpoint", kept(t, checkpoint+"\n"))
		require.NoError(t, err)

		lines := strings.SplitAfter(log, "\n")
		cut := strings.Join(lines[:12], "") // two segments of four rows
		_, err = verify(cut)
		require.NoError(t, err, "nothing shows that more was there")
		out, err = verify(cut, "--checkpoint", checkpoint)
		require.ErrorIs(t, err, errNotWhole)
		require.Regexp(t, `truncated rows 9 to \d+: the end is missing`, out)
		require.Contains(t, out, "whole from row 1 through row 8 of ")
		out, err = verify(strings.Replace(log, `"outcome":"succeeded"`, `"outcome":"refused"`, 1))
		require.ErrorIs(t, err, errNotWhole)
		require.Contains(t, out, "changed_row segment ")
		out, err = verify(strings.Join(lines[:6], "") + logOf(t, app, other.scopeOf(app)))
		require.ErrorIs(t, err, errNotWhole)
		require.Contains(t, out, "foreign_segment segment 1 (line 7): it belongs to the log of tenant \""+other.name+`"`)
		stranger, err := seal.Parse(seal.Generate())
		require.NoError(t, err)
		out, err = runCommand(t, "audit", "verify", kept(t, log), "--key="+archive.FormatKey(stranger.SigningKeys()[0]))
		require.ErrorIs(t, err, errNotWhole)
		require.Contains(t, out, "unknown_key")

		out, err = runCommand(t, "audit", "keys", "--url", app.URL(), "--key", a.key)
		require.NoError(t, err)
		require.Contains(t, out, strings.TrimPrefix(keys[0], "--key="))
		require.Contains(t, out, checkpoint)

		// Somebody changes a row in the archive itself.
		e, err := app.sealing.reader.Entries(t.Context(), a.scopeOf(app), archive.Range{Limit: 1})
		require.NoError(t, err)
		object := filepath.Join(strings.TrimPrefix(cfg.AuditArchive, folderPrefix), e[0].Object.Name)
		data, err := os.ReadFile(object)
		require.NoError(t, err)
		data[len(data)/2] ^= 1
		require.NoError(t, os.WriteFile(object, data, 0o600))
		proof = a.must(200, "GET", "/v1/audit/verify", nil)
		require.Equal(t, false, proof.body["whole"])
		require.Contains(t, string(proof.raw), `"kind":"missing_segment","segment":1,"row":1,"to_row":4`)
	})
}

// TestVerifyIsStrict: what cannot be followed is a usage error.
func TestVerifyIsStrict(t *testing.T) {
	file := kept(t, "")
	for _, args := range [][]string{
		{}, {file}, {file, file, "--key=x"}, {file, "--key=x"}, {file, "--key=" + strings.Repeat("A", 43) + "=", "--checkpoint={}"},
		{file, "--key=" + strings.Repeat("A", 43) + "=", "--checkpoint=" + file + ".none"},
	} {
		_, err := runCommand(t, append([]string{"audit", "verify"}, args...)...)
		require.ErrorAs(t, err, &usageError{}, "%q", args)
	}
	out, err := runCommand(t, "audit", "verify", file, "--key="+strings.Repeat("A", 43)+"=")
	require.ErrorIs(t, err, errNotWhole, "an empty file proves nothing")
	require.Contains(t, out, "nothing is proven")
}

// TestTheSignerMayBeRotated: with another secret key in front, new checkpoints are
// signed with its key, and the log stays provable to the end.
func TestTheSignerMayBeRotated(t *testing.T) {
	t.Parallel()
	cfg := archiving(t, embeddedConfig(t))
	vendor := vendortest.New(t, vendortest.OK)
	old := cfg.SecretKey
	var a *agent
	for i, secret := range []string{old, seal.Generate() + "," + old} {
		cfg.SecretKey = secret
		app, _ := boot(t, cfg)
		if a == nil {
			a = newAgent(t, app.URL())
			a.connect("c", "probe@1", vendor.URL())
		}
		a = a.at(app.URL())
		a.do("c", "create", fmt.Sprintf(`{"n":%d}`, i)).is(200, "succeeded")
		sealedThrough(t, app, a.scopeOf(app))
		keys, checkpoint := proofOf(a)
		require.Len(t, keys, i+1)
		out, err := runCommand(t, append([]string{"audit", "verify", kept(t, logOf(t, app, a.scopeOf(app))), "--checkpoint", checkpoint}, keys...)...)
		require.NoError(t, err, out)
		if i == 1 {
			require.Equal(t, true, a.must(200, "GET", "/v1/audit/verify", nil).body["whole"])
			out, err = runCommand(t, "audit", "verify", kept(t, logOf(t, app, a.scopeOf(app))), keys[0])
			require.ErrorIs(t, err, errNotWhole)
			require.Contains(t, out, "unknown_key")
		}
		require.NoError(t, app.Close())
	}
}

const waitForFinal = 30 * time.Second

// TestADeletedTenantsLogEnds: its last checkpoint is final, and the host can still
// prove it.
func TestADeletedTenantsLogEnds(t *testing.T) {
	onBothArchives(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, vendortest.OK)
		app, _ := boot(t, cfg)
		admin := &agent{t: t, base: app.URL(), key: testAdminKey}
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		a.do("c", "create", `{"n":1}`).is(200, "succeeded")
		admin.must(204, "DELETE", "/v1/tenants/"+a.name, nil)
		eventually(t, waitForFinal, "its log ends", func() bool {
			r := admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit/verify", nil)
			require.Equal(t, true, r.body["whole"], "%s", r.raw)
			return r.body["final"] == true
		})
		r := admin.must(200, "GET", "/v1/tenants/"+a.name+"/audit/checkpoints?limit=1", nil)
		require.Contains(t, string(r.raw), `"final":true`)
	})
}
