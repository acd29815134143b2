package main

import (
	"bytes"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// readyz asks a gateway whether it may claim; a Redis gets a beat with it.
func readyz(t *testing.T, app *App) (int, string) {
	t.Helper()
	admin := &agent{t: t, base: app.AdminURL()}
	r := admin.call("GET", "/readyz", nil)
	return r.status, string(r.raw)
}

// TestLostDataIsNoticedAndAccepted: Redis comes back with data from before a
// write. Every gateway refuses, one started later too, and nothing is sent a
// second time until a person has said that this may be; then answers tell of it.
func TestLostDataIsNoticedAndAccepted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
	cfg := testConfig(t)
	cfg.Store, cfg.RedisAck = server.URL(), "none"
	one, _ := boot(t, cfg)
	a := newAgent(t, one.URL())
	vendor := vendortest.New(t, vendortest.OK)
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":0}`).is(200, "succeeded").fresh()
	two, _ := boot(t, cfg)
	for _, app := range []*App{one, two} {
		status, why := readyz(t, app)
		require.Equal(t, http.StatusOK, status, why)
	}
	_, err := server.Do(t.Context(), "SAVE")
	require.NoError(t, err)
	from := time.Now().Add(-time.Second).UTC().Truncate(time.Second)
	lost := a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	require.NotContains(t, string(lost.raw), "ledger_gap")
	for _, app := range []*App{one, two} { // a beat behind the copy
		status, why := readyz(t, app)
		require.Equal(t, http.StatusOK, status, why)
	}
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start())

	eventually(t, 10*time.Second, "they notice", func() bool {
		_, first := readyz(t, one)
		_, second := readyz(t, two)
		return strings.Contains(first, "accept-loss") && strings.Contains(second, "accept-loss")
	})
	later, _ := boot(t, cfg)
	_, why := readyz(t, later)
	require.Contains(t, why, "accept-loss")
	for _, app := range []*App{one, two, later} {
		a.at(app.URL()).do("c", "create", `{"n":1}`).is(503, "store_unavailable")
	}
	a.do("c", "create", `{"n":0}`).is(200, "succeeded").replayed()
	require.Equal(t, 2, vendor.Arrivals())
	require.ErrorIs(t, one.losses.doubt(), ledger.ErrNotReady)

	var out bytes.Buffer
	require.NoError(t, acceptLoss(t.Context(), cfg, from, &out, io.Discard))
	require.Contains(t, out.String(), "accepted: writes made from "+from.Format(time.RFC3339))
	var again reply
	eventually(t, 10*time.Second, "they go on", func() bool {
		again = a.do("c", "create", `{"n":1}`)
		return again.status == 200
	})
	again.fresh()
	require.Equal(t, from.Format("2006-01-02T15:04:05.000Z"), again.text("ledger_gap.from"))
	require.NotEmpty(t, again.text("ledger_gap.to"))
	require.Equal(t, 3, vendor.Arrivals(), "what was lost cannot be known")
	require.Empty(t, a.do("c", "create", `{"n":1}`).replayed().text("ledger_gap.from"))
	require.NotEmpty(t, callTool(t, a.mcp(), "do", doBody("c", "create", `{"n":2}`)).text("ledger_gap.from"))
	require.NoError(t, one.losses.doubt())
	rows, err := one.store.Rows(t.Context(), ledger.Platform, ledger.RowRange{Limit: 1, Newest: true})
	require.NoError(t, err)
	require.Contains(t, string(rows[0].Data), `"store.loss_accepted"`)
	require.Contains(t, string(rows[0].Data), from.Format(time.RFC3339))
}

// TestAcceptLossOfAnEmbeddedStore: the gateway has to be stopped, and tells of
// the gap when it is back.
func TestAcceptLossOfAnEmbeddedStore(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
	from := time.Now().Add(-time.Hour).UTC().Truncate(time.Second)
	require.ErrorContains(t, acceptLoss(t.Context(), cfg, from, io.Discard, io.Discard), "no store")

	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	vendor := vendortest.New(t, vendortest.OK)
	a.connect("c", "probe@1", vendor.URL())
	require.ErrorContains(t, acceptLoss(t.Context(), cfg, from, io.Discard, io.Discard), "stop the gateway first")
	require.NoError(t, app.Close())
	require.ErrorContains(t, acceptLoss(t.Context(), cfg, time.Now().Add(time.Hour), io.Discard, io.Discard), "before now")
	require.NoError(t, acceptLoss(t.Context(), cfg, from, io.Discard, io.Discard))

	app, _ = boot(t, cfg)
	r := a.at(app.URL()).do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	require.Equal(t, from.Format("2006-01-02T15:04:05.000Z"), r.text("ledger_gap.from"))
}

func TestAcceptLossNeedsATime(t *testing.T) {
	for _, args := range [][]string{{"store", "accept-loss"}, {"store", "accept-loss", "--from", "yesterday"}} {
		cmd := command()
		cmd.SetArgs(args)
		cmd.SetErr(io.Discard)
		err := cmd.ExecuteContext(t.Context())
		require.ErrorAs(t, err, new(usageError))
		require.ErrorContains(t, err, "--from")
	}
}
