package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/archive/buckettest"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/vendortest"
)

// archiving is a configuration that seals within a second or two, into a folder
// of its own.
func archiving(t testing.TB, cfg Config) Config {
	t.Helper()
	cfg.AuditArchive = folderPrefix + filepath.Join(t.TempDir(), "audit")
	cfg.AuditSealAfter, cfg.auditRows = time.Second, 16
	return cfg
}

// onBothArchives runs a test on stores of its own: an archive belongs to one.
func onBothArchives(t *testing.T, run func(t *testing.T, cfg Config)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		run(t, archiving(t, embeddedConfig(t)))
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		cfg := archiving(t, testConfig(t))
		cfg.Store = ownRedis(t).URL()
		run(t, cfg)
	})
}

// scopeOf is the scope of an agent's tenant.
func (a *agent) scopeOf(app *App) ledger.Scope {
	a.t.Helper()
	tenant, err := app.directory.GetTenant(a.t.Context(), a.name)
	require.NoError(a.t, err)
	return tenant.Scope
}

// sealedThrough waits until every row of a scope is sealed, and returns the log.
func sealedThrough(t testing.TB, app *App, scope ledger.Scope) (archive.Head, archive.Report) {
	t.Helper()
	var head archive.Head
	eventually(t, 20*time.Second, "the audit is sealed", func() bool {
		newest, err := app.store.Rows(t.Context(), scope, ledger.RowRange{Newest: true, Limit: 1})
		require.NoError(t, err)
		head, _, err = app.sealing.reader.Head(t.Context(), scope)
		require.NoError(t, err)
		return len(newest) == 1 && head.Cursor == newest[0].Cursor
	})
	report, err := app.sealing.reader.Verify(t.Context(), scope)
	require.NoError(t, err)
	require.True(t, report.Whole(), "%v", report.Findings)
	return head, report
}

// TestTheAuditIsSealed: what agents and the host did ends in the archive by
// itself, and the log proves itself whole.
func TestTheAuditIsSealed(t *testing.T) {
	onBothArchives(t, func(t *testing.T, cfg Config) {
		vendor := vendortest.New(t, vendortest.OK)
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		for range 3 {
			a.do("c", "create", `{"n":1}`).is(200, "succeeded")
		}
		head, report := sealedThrough(t, app, a.scopeOf(app))
		require.Equal(t, a.name, head.Tenant)
		require.Equal(t, a.name, report.Tenant)
		require.GreaterOrEqual(t, report.Rows, 7) // the tenant, its keys, the connection, claimed, succeeded, two replays
		platform, _ := sealedThrough(t, app, ledger.Platform)
		require.Empty(t, platform.Tenant)
		got := series(t, metricsOf(t, app))
		require.NotEqual(t, "0", got["holdfast_audit_sealed_rows_total"])
		require.Equal(t, "0", got["holdfast_audit_blocked"])
	})
}

// TestAnArchiveThatFails: writes go on until too many rows wait, then stop with a
// reason that says so, answers to repeats go on, and writes resume by themselves.
func TestAnArchiveThatFails(t *testing.T) {
	onBothArchives(t, func(t *testing.T, cfg Config) {
		folder := cfg.AuditArchive[len(folderPrefix):]
		require.NoError(t, os.MkdirAll(filepath.Dir(folder), 0o700))
		cfg.AuditMaxUnsealed = 40
		vendor := vendortest.New(t, vendortest.OK)
		app, logged := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		a.do("c", "create", `{"n":1}`).is(200, "succeeded")
		sealedThrough(t, app, a.scopeOf(app))

		// The folder is no more: a file stands in its place.
		require.NoError(t, os.Rename(folder, folder+".away"))
		require.NoError(t, os.WriteFile(folder, nil, 0o600))
		refused, n := reply{}, 100
		eventually(t, 20*time.Second, "writes stop", func() bool {
			n++
			refused = a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n))
			return refused.status != 200
		})
		refused.is(503, "store_unavailable")
		arrived := vendor.Arrivals()
		require.Greater(t, arrived, 10, "not before the bound")
		require.ErrorIs(t, app.ready.last(), ledger.ErrNotReady)
		require.ErrorContains(t, app.ready.last(), "GATEWAY_AUDIT_MAX_UNSEALED")
		got := series(t, metricsOf(t, app))
		require.Equal(t, "1", got["holdfast_audit_blocked"])
		require.Equal(t, "0", got["holdfast_store_ready"])
		require.NotEqual(t, "0", got["holdfast_audit_archive_failures_total"])
		a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
		require.Equal(t, arrived, vendor.Arrivals())
		require.Contains(t, logged.String(), "the audit archive fails")

		require.NoError(t, os.Remove(folder))
		require.NoError(t, os.Rename(folder+".away", folder))
		eventually(t, 40*time.Second, "writes go on", func() bool {
			return a.do("c", "create", `{"n":2}`).status == 200
		})
		sealedThrough(t, app, a.scopeOf(app))
	})
}

// TestAuditRetentionOfATenant: the setting is the tenant's, and bounded.
func TestAuditRetentionOfATenant(t *testing.T) {
	app, _ := boot(t, archiving(t, embeddedConfig(t)))
	admin := &agent{t: t, base: app.URL(), key: testAdminKey}
	name := newTenantName()
	created := admin.must(201, "POST", "/v1/tenants", map[string]any{"id": name, "audit_retention_days": 90})
	require.Equal(t, "90", created.text("audit_retention_days"))
	changed := admin.must(200, "PATCH", "/v1/tenants/"+name, map[string]any{"audit_retention_days": 30})
	require.Equal(t, "30", changed.text("audit_retention_days"))
	admin.must(400, "PATCH", "/v1/tenants/"+name, map[string]any{"audit_retention_days": 4001})
	tenant, err := app.directory.GetTenant(t.Context(), name)
	require.NoError(t, err)
	keep, ok, err := app.directory.AuditRetention(t.Context(), tenant.Scope)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 30*24*time.Hour, keep)
	_, ok, err = app.directory.AuditRetention(t.Context(), ledger.ScopeOf("nobody"))
	require.NoError(t, err)
	require.False(t, ok)
}

// TestTheArchiveMayBeABucket: on a real S3 server.
func TestTheArchiveMayBeABucket(t *testing.T) {
	server := buckettest.Start(t)
	cfg := archiving(t, embeddedConfig(t))
	require.NoError(t, auditArchive(&cfg, server.Address("holdfast/audit")))
	vendor := vendortest.New(t, vendortest.OK)
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":1}`).is(200, "succeeded")
	sealedThrough(t, app, a.scopeOf(app))
	require.Equal(t, true, a.must(200, "GET", "/v1/audit/verify", nil).body["whole"])
	objects, err := os.ReadDir(filepath.Join(server.Dir, "holdfast/audit", archive.ScopeID(a.scopeOf(app)).String()))
	require.NoError(t, err)
	require.NotEmpty(t, objects)
	require.NoError(t, checkArchive(t.Context(), cfg))
	other := cfg
	require.NoError(t, auditArchive(&other, "s3://none?region=us-east-1&endpoint=http://"+server.Addr))
	require.ErrorContains(t, checkArchive(t.Context(), other), "NoSuchBucket")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, auditArchive(&other, folderPrefix+filepath.Join(file, "audit")))
	require.Error(t, checkArchive(t.Context(), other))
	require.Error(t, auditArchive(&cfg, "s3://"))
	require.Error(t, auditArchive(&cfg, "folder:"))
	require.Error(t, auditArchive(&cfg, "somewhere"))
}
