package main

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/vendortest"
)

// TestADamagedLogIsRefusedAndAccepted: one bit of the last write's answer, in the
// end of the log, where damage looks as a crash does. The gateway does not start;
// with the loss accepted it does, and answers tell of it.
func TestADamagedLogIsRefusedAndAccepted(t *testing.T) {
	t.Parallel()
	cfg := embeddedConfig(t)
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	vendor := vendortest.New(t, vendortest.OK)
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	require.NoError(t, app.Close())

	logs, err := filepath.Glob(filepath.Join(cfg.folder(), "*.log"))
	require.NoError(t, err)
	flipNearTheEnd(t, logs[len(logs)-1], 300)
	_, err = open(t.Context(), cfg, slog.New(slog.DiscardHandler))
	require.ErrorIs(t, err, pebblestore.ErrDamaged)
	from := regexp.MustCompile(`accept-loss --from ([0-9TZ:-]+)`).FindStringSubmatch(err.Error())
	require.Len(t, from, 2, err.Error())
	at, err := time.Parse(time.RFC3339, from[1])
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), at, time.Minute)

	require.NoError(t, acceptLoss(t.Context(), cfg, at, io.Discard, io.Discard))
	app, _ = boot(t, cfg)
	require.NotEmpty(t, a.at(app.URL()).do("c", "create", `{"n":2}`).is(200, "succeeded").fresh().text("ledger_gap.from"))
}

// flipNearTheEnd flips a bit so many bytes before the last that is not zero.
func flipNearTheEnd(t *testing.T, path string, before int) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	end := len(data)
	for end > 0 && data[end-1] == 0 {
		end--
	}
	require.Greater(t, end, before)
	data[end-before] ^= 1
	require.NoError(t, os.WriteFile(path, data, 0o600))
}
