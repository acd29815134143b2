package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// TestTheCredentialIsNowhere: a vendor that echoes the credential in every place
// it can, answers of every kind, and then every place a person could look:
// responses, logs, audit rows, metrics, traces and the store's own files.
func TestTheCredentialIsNowhere(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		cfg := testConfig(t)
		dir := filepath.Join(t.TempDir(), "data")
		cfg.Store = embeddedPrefix + dir
		seen, app := leak(t, cfg)
		require.NoError(t, app.Close())
		requireNoSentinel(t, seen)
		requireNoSentinelInFiles(t, dir)
	})
	t.Run("redis", func(t *testing.T) {
		server := redistest.Start(t, redistest.Durable()...)
		require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
		cfg := testConfig(t)
		cfg.Store = server.URL()
		seen, app := leak(t, cfg)
		require.NoError(t, app.Close())
		requireNoSentinel(t, seen)
		_, err := server.Do(t.Context(), "SAVE")
		require.NoError(t, err)
		require.NoError(t, server.Stop())
		requireNoSentinelInFiles(t, server.Dir())
	})
}

// escapeAll spells a JSON string with every character escaped.
func escapeAll(s string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

func leak(t *testing.T, cfg Config) (map[string]string, *App) {
	echo := func(status int, body string) vendortest.Behaviour {
		return func(c *vendortest.Call) {
			credential := c.Arrival.Header.Get("Authorization")
			c.JSON(status, fmt.Sprintf(body, credential), "X-Echo: "+credential, "Www-Authenticate: "+credential)
		}
	}
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.WithoutCancel(t.Context()))) })
	cfg.tracer = provider
	app, log := boot(t, cfg)
	a := newAgent(t, app.URL())
	seen := map[string]string{}
	note := func(name string, r reply) reply {
		seen[name] = string(r.raw) + fmt.Sprint(r.header)
		return r
	}
	vendor := vendortest.New(t, nil)
	a.connect("c", "probe@1", vendor.URL())
	for name, b := range map[string]vendortest.Behaviour{
		"success": echo(200, `{"you_sent":%q}`), "refusal": echo(422, `{"error":{"code":"x","message":%q}}`),
		"unknown": echo(500, `{"error":%q}`), "limited": echo(429, `{"error":%q}`), "denied": echo(401, `{"error":%q}`),
		"escaped": func(c *vendortest.Call) {
			// Any character of a JSON string may be escaped, and some writers do.
			c.JSON(200, fmt.Sprintf(`{"you_sent":"%s"}`, escapeAll(c.Arrival.Header.Get("Authorization"))))
		},
		"text": func(c *vendortest.Call) { c.Respond(200, "text/plain", c.Arrival.Header.Get("Authorization")) },
	} {
		vendor.Use(b)
		body := fmt.Sprintf(`{"n":%d}`, len(seen)+1)
		note(name, a.do("c", "create", body))
		note(name+" again", a.do("c", "create", body))
	}
	refused := vendortest.RefusedURL(t)
	a.must(201, "PUT", "/v1/connections/d", map[string]any{
		"connector": "query@1", "base_url": refused, "credentials": map[string]string{"token": sentinel},
	})
	note("not sent, credential in the query", a.do("d", "create", `{"n":1}`)).is(503, "not_sent")
	note("bad credentials", a.call("PUT", "/v1/connections/e", map[string]any{
		"connector": "probe@1", "base_url": vendor.URL(), "credentials": map[string]string{"wrong": sentinel},
	}))
	note("bad member", a.call("PUT", "/v1/connections/e", map[string]any{
		"connector": "probe@1", "base_url": vendor.URL(), "credentials": map[string]any{"token": []string{sentinel}},
	}))
	note("rotated", a.call("PUT", "/v1/connections/c", map[string]any{"credentials": map[string]string{"token": sentinel + "2"}}))
	note("connection", a.call("GET", "/v1/connections/c", nil))
	note("connections", a.call("GET", "/v1/connections", nil))
	note("actions", a.call("GET", "/v1/actions?limit=100", nil))
	note("audit", a.call("GET", "/v1/audit?limit=200", nil))
	admin := &agent{t: t, base: app.AdminURL()}
	note("metrics", admin.call("GET", "/metrics", nil))
	host := &agent{t: t, base: app.URL(), key: testAdminKey}
	note("the host's view of the audit", host.call("GET", "/v1/tenants/"+a.name+"/audit?limit=200", nil))
	note("the host's view of the actions", host.call("GET", "/v1/tenants/"+a.name+"/actions?limit=100", nil))
	note("keys", host.call("GET", "/v1/tenants/"+a.name+"/keys", nil))
	require.NotEmpty(t, spans.GetSpans())
	seen["traces"] = fmt.Sprintf("%+v", spans.GetSpans())
	seen["log"] = log.String()
	for name, text := range seen {
		require.NotContains(t, text, a.key, "%s holds the API key", name)
		require.NotContains(t, text, testAdminKey, "%s holds the platform admin key", name)
	}
	require.NotEmpty(t, seen["log"])
	return seen, app
}

func requireNoSentinel(t *testing.T, seen map[string]string) {
	t.Helper()
	for name, text := range seen {
		require.NotContains(t, text, sentinel, name)
	}
	require.Contains(t, seen["success"], "[redacted]", "the vendor did echo it")
	require.Contains(t, seen["escaped"], "[redacted]", "what counts is what a string says")
}

func requireNoSentinelInFiles(t *testing.T, dir string) {
	t.Helper()
	requireNothingOf(t, dir, sentinel)
}

// requireNothingOf insists that no file below dir holds any of the texts.
func requireNothingOf(t *testing.T, dir string, texts ...string) {
	t.Helper()
	files := 0
	require.NoError(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		for _, text := range texts {
			require.False(t, strings.Contains(string(data), text), "%s holds what it must not", d.Name())
		}
		return nil
	}))
	require.NotZero(t, files)
}
