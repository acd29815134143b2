package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// newerRelease is what is said of a store that a newer release has marked.
func newerRelease(known int) string {
	return fmt.Sprintf("written by a newer release (format %d; this one reads up to %d); "+
		"nothing is claimed: run that release again, or go back to a copy of the store from before it and accept the loss", known+1, known)
}

// refusedToRun runs the real program and insists that it ends, saying so.
func refusedToRun(t *testing.T, words string, args ...string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), childEnv+"=1", "GATEWAY_ADMIN_KEY="+testAdminKey, "GATEWAY_SECRET_KEY="+testSecretKey)
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "%s", out)
	require.Equal(t, exitFailed, cmd.ProcessState.ExitCode(), "%s", out)
	require.Contains(t, string(out), words)
}

// TestAFolderOfANewerReleaseIsRefused: downgrades end before anything is read.
func TestAFolderOfANewerReleaseIsRefused(t *testing.T) {
	t.Parallel()
	cfg := embeddedConfig(t)
	p := spawn(t, cfg)
	newAgent(t, p.url())
	p.kill()
	db, err := pebble.Open(cfg.folder(), &pebble.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Set([]byte("\x00f"), binary.BigEndian.AppendUint32(nil, 3), pebble.Sync))
	require.NoError(t, db.Close())

	listen := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=" + cfg.Store}
	refusedToRun(t, newerRelease(2), append([]string{"serve"}, listen...)...)
	refusedToRun(t, newerRelease(2), append([]string{"serve", "--check"}, listen...)...)
	refusedToRun(t, newerRelease(2), "store", "accept-loss", "--from=2026-01-01T00:00:00Z", "--store="+cfg.Store)
	require.FileExists(t, filepath.Join(cfg.folder(), "LOCK"))
}

// TestCheckLeavesTheFormatOfAFolder: whoever asks whether a newer release would serve
// can go on with the earlier one. The gateway that serves brings the folder to its format.
func TestCheckLeavesTheFormatOfAFolder(t *testing.T) {
	cfg := embeddedConfig(t)
	app, _ := boot(t, cfg)
	require.NoError(t, app.Close())
	formatOf := func(set uint32) uint32 {
		db, err := pebble.Open(cfg.folder(), &pebble.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		if set != 0 {
			require.NoError(t, db.Set([]byte("\x00f"), binary.BigEndian.AppendUint32(nil, set), pebble.Sync))
		}
		raw, closer, err := db.Get([]byte("\x00f"))
		require.NoError(t, err)
		defer func() { require.NoError(t, closer.Close()) }()
		return binary.BigEndian.Uint32(raw)
	}
	require.Equal(t, uint32(1), formatOf(1))
	t.Setenv("GATEWAY_SECRET_KEY", testSecretKey)
	out, err := checked(t, "--store="+cfg.Store)
	require.NoError(t, err, out)
	require.Equal(t, uint32(1), formatOf(0))

	app, _ = boot(t, cfg)
	require.NoError(t, app.Close())
	require.Equal(t, uint32(2), formatOf(0))
}

// TestAGatewayGivesWayToANewerRelease: when a newer release has marked the Redis
// that a gateway serves on, the gateway ends what it has begun and begins nothing
// more, and it does not come up again.
func TestAGatewayGivesWayToANewerRelease(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Durable()...)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: redis.URL()}))
	cfg := testConfig(t)
	cfg.Store = redis.URL()
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	gate := make(chan struct{})
	vendor := vendortest.New(t, vendortest.OK)
	slow := vendortest.New(t, gated(gate, vendortest.OK))
	a.connect("c", "probe@1", vendor.URL())
	a.connect("slow", "probe@1", slow.URL())
	a.do("c", "create", `{"n":1}`).is(200, "succeeded")
	begun := make(chan reply, 1)
	go func() {
		if r, err := a.send(t.Context(), "POST", "/v1/do", doBody("slow", "create", `{"n":2}`), nil); err == nil {
			begun <- r
		}
	}()
	slow.AwaitArrivals(1)

	markNewer(t, cfg.Store)
	ready := &agent{t: t, base: app.AdminURL()}
	var told reply
	eventually(t, 5*time.Second, "it gives way", func() bool {
		told = ready.call("GET", "/readyz", nil)
		return told.status == 503
	})
	require.Contains(t, string(told.raw), "newer release")
	a.do("c", "create", `{"n":3}`).is(503, "store_unavailable")
	require.Equal(t, 503, a.call("POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"label": "x", "scopes": []string{"do"}}).status)
	close(gate)
	(<-begun).is(200, "succeeded").fresh()
	require.Equal(t, 1, vendor.Arrivals())

	listen := []string{"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store=" + cfg.Store}
	refusedToRun(t, newerRelease(1), append([]string{"serve"}, listen...)...)
	refusedToRun(t, newerRelease(1), append([]string{"serve", "--check"}, listen...)...)
}

// markNewer does to a Redis what the first gateway of a later format does.
func markNewer(t *testing.T, url string) {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redisstore.Options{URL: url})
	require.NoError(t, err)
	res, err := s.Apply(t.Context(), ledger.Platform, ledger.Step{
		Nonce: ledger.NewNonce(), At: s.Now(),
		Put: []ledger.Put{{Key: ledger.Key{Kind: ledger.Meta, ID: "format"}, Data: []byte("2")}},
	})
	require.NoError(t, err)
	require.True(t, res.Applied)
	require.NoError(t, s.Close())
}
