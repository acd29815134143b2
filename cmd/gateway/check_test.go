package main

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redistest"
)

// isUsage says whether main would exit with 2 rather than 1.
func isUsage(err error) bool {
	var usage usageError
	return errors.As(err, &usage)
}

func checked(t *testing.T, args ...string) (string, error) {
	t.Helper()
	return runCommand(t, append([]string{"serve", "--check", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}, args...)...)
}

// TestCheckLeavesNothingBehind: of a store that is not there yet nothing is
// made, above all no admin key that nobody would be shown.
func TestCheckLeavesNothingBehind(t *testing.T) {
	parent := t.TempDir()
	out, err := checked(t, "--store=embedded:"+filepath.Join(parent, "a", "b"), "--audit-archive=folder:"+filepath.Join(parent, "c"))
	require.NoError(t, err, out)
	require.Contains(t, out, "are fine")
	left, err := os.ReadDir(parent)
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestCheckFindsAStoreThatServes(t *testing.T) {
	cfg := embeddedConfig(t)
	app, _ := boot(t, cfg)
	t.Setenv("GATEWAY_SECRET_KEY", testSecretKey)
	_, err := checked(t, "--store="+cfg.Store)
	require.ErrorContains(t, err, "store: ")
	require.ErrorContains(t, err, "in use by another gateway process")
	require.False(t, isUsage(err))
	require.NoError(t, app.Close())
	out, err := checked(t, "--store="+cfg.Store)
	require.NoError(t, err, out)
}

func TestCheckAsksRedis(t *testing.T) {
	t.Setenv("GATEWAY_SECRET_KEY", testSecretKey)
	t.Setenv("GATEWAY_ADMIN_KEY", testAdminKey)
	out, err := checked(t, "--store="+redisShared.url(t))
	require.NoError(t, err, out)

	fresh, err := redistest.Launch(t.TempDir(), redistest.Durable()...)
	require.NoError(t, err)
	_, err = checked(t, "--store="+fresh.URL())
	require.ErrorContains(t, err, "gateway store init")
	require.NoError(t, fresh.Kill())
	_, err = checked(t, "--store="+fresh.URL(), "--store-timeout=300ms")
	require.ErrorContains(t, err, "store unavailable")
}

// TestCheckListsEverything: all that is wrong, in one go, and nothing secret.
func TestCheckListsEverything(t *testing.T) {
	dir := t.TempDir()
	writeManifest(t, dir, "bad", "1.0.0", "kind: [")
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("no certificate"), 0o600))
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317")
	_, err := checked(t, "--store=embedded:"+filepath.Join(file, "below"), "--connectors-dir="+dir,
		"--tls-cert="+file, "--tls-key="+file, "--admin-listen=192.0.2.1:0", "--audit-archive=folder:"+filepath.Join(file, "below"))
	for _, part := range []string{"store: ", "audit archive: ", "connectors: ", "certificate: ", "tracing: ", "admin listen: ", "connector.yaml"} {
		require.ErrorContains(t, err, part)
	}
	require.False(t, isUsage(err), "exit 1, not 2")

	_, err = checked(t, "--lease=never", "--max-body=huge", "--secret-key="+sentinel)
	for _, part := range []string{"--lease", "--max-body", "--secret-key"} {
		require.ErrorContains(t, err, part)
	}
	require.NotContains(t, err.Error(), sentinel)
	require.False(t, isUsage(err), "exit 1, not 2")
	_, err = runCommand(t, "serve", "--lease=never")
	require.True(t, isUsage(err), "without --check it is a mistake in the command")
}

func TestHealthcheckAsksTheAdminListener(t *testing.T) {
	app, _ := boot(t, embeddedConfig(t))
	_, port, err := net.SplitHostPort(app.admin.addr())
	require.NoError(t, err)
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	for _, host := range []string{"127.0.0.1", "0.0.0.0", ""} {
		out, err := runCommand(t, "healthcheck", "--admin-listen="+net.JoinHostPort(host, port))
		require.NoError(t, err, "%q %s", host, out)
	}
	require.NoError(t, app.Close())
	_, err = runCommand(t, "healthcheck", "--admin-listen=127.0.0.1:"+port)
	require.ErrorContains(t, err, "ask gateway")
	require.False(t, isUsage(err))

	ill := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	defer ill.Close()
	_, err = runCommand(t, "healthcheck", "--admin-listen="+strings.TrimPrefix(ill.URL, "http://"))
	require.ErrorContains(t, err, "answered 500")
}

// TestDockerfileNamesWhatExists: its settings, its commands, and a user that is
// not root.
func TestDockerfileNamesWhatExists(t *testing.T) {
	raw, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	text := string(raw)
	known := map[string]bool{}
	for _, s := range settings() {
		known[s.env()] = true
	}
	names := regexp.MustCompile(`GATEWAY_[A-Z_]+`).FindAllString(text, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.True(t, known[name], name)
	}
	for _, line := range []string{
		"\nUSER 65532:65532\n", "/etc/ssl/certs/ca-certificates.crt", `CMD ["serve"]`,
	} {
		require.Contains(t, text, line)
	}
	health := regexp.MustCompile(`(?m)^HEALTHCHECK .* CMD \["/gateway", "(\w+)"\]$`).FindStringSubmatch(text)
	require.NotNil(t, health)
	found, _, err := command().Find(health[1:])
	require.NoError(t, err)
	require.Equal(t, "healthcheck", found.Name())
}
