package main

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors/builtin"
	"holdfast.dev/gateway/internal/connectors/workbench"
)

// stripeMock is the program Stripe publishes to check requests against its own
// OpenAPI document (github.com/stripe/stripe-mock); `make test` builds it.
const stripeMock = "../../.bin/stripe-mock-v0.203.0"

// startStripeMock runs it behind a counter of the requests it gets.
func startStripeMock(t *testing.T) (baseURL string, arrivals *atomic.Int64) {
	t.Helper()
	_, err := os.Stat(stripeMock)
	require.NoError(t, err, "stripe-mock is missing: run make test, which builds it")
	socket := filepath.Join(t.TempDir(), "stripe.sock")
	cmd := exec.Command(stripeMock, "-http-unix", socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
		}
	}()
	eventually(t, 20*time.Second, "stripe-mock listens", func() bool {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	arrivals = &atomic.Int64{}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "stripe"})
	proxy.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrivals.Add(1)
		proxy.ServeHTTP(w, r)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return "http://" + l.Addr().String(), arrivals
}

// TestStripe runs the built-in connector against Stripe's own checks.
func TestStripe(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		baseURL, arrivals := startStripeMock(t)
		writeManifest(t, cfg.ConnectorsDir, "stripe-lax", "1.0.0", laxStripe(t))
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.must(201, "PUT", "/v1/connections/stripe", map[string]any{
			"connector": "stripe@1", "base_url": baseURL, "credentials": map[string]string{"api_key": "sk_test_" + sentinel},
		})
		customer := `{"email":"jenny@example.com","name":"Jenny Rosen"}`
		first := a.do("stripe", "create_customer", customer).is(200, "succeeded").fresh()
		require.True(t, strings.HasPrefix(first.text("result.id"), "cus_"), "%s", first.raw)
		again := a.do("stripe", "create_customer", customer).is(200, "succeeded").replayed()
		requireSameResult(t, first, again)
		require.EqualValues(t, 1, arrivals.Load())

		invoice := a.do("stripe", "create_invoice", `{"customer":"`+first.text("result.id")+`","days_until_due":30}`).is(200, "succeeded").fresh()
		require.True(t, strings.HasPrefix(invoice.text("result.id"), "in_"), "%s", invoice.raw)
		require.EqualValues(t, 2, arrivals.Load())

		// What the action's schema lets by and Stripe does not take: the built-in
		// manifest with a member that Stripe wants to be a number.
		a.must(201, "PUT", "/v1/connections/lax", map[string]any{
			"connector": "stripe-lax@1", "base_url": baseURL, "credentials": map[string]string{"api_key": "sk_test_" + sentinel},
		})
		refused := a.do("lax", "create_customer", `{"phone":"not a number"}`).is(424, "vendor_refused").fresh()
		require.Equal(t, "400", refused.text("vendor.status"))
		require.NotEmpty(t, refused.text("vendor.message"))
		a.do("lax", "create_customer", `{"phone":"not a number"}`).is(424, "vendor_refused").replayed()
		require.EqualValues(t, 3, arrivals.Load())

		// A bad argument is refused by the action's own schema before any claim.
		a.do("stripe", "create_invoice", `{"customer":"not-a-customer"}`).is(400, "invalid_body")
		require.EqualValues(t, 3, arrivals.Load())
	})
}

// TestStripeTakesEveryAction sends what the fixtures of each action say to
// Stripe's own checks: every member is known to it and has the right form.
func TestStripeTakesEveryAction(t *testing.T) {
	baseURL, arrivals := startStripeMock(t)
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.must(201, "PUT", "/v1/connections/stripe", map[string]any{
		"connector": "stripe@1", "base_url": baseURL, "credentials": map[string]string{"api_key": "sk_test_" + sentinel},
	})
	raw, err := builtin.Fixtures("stripe")
	require.NoError(t, err)
	fixtures, err := workbench.ReadFixtures("stripe", raw)
	require.NoError(t, err)
	require.Len(t, fixtures.Actions, 4)
	for action, f := range fixtures.Actions {
		before := arrivals.Load()
		r := a.do("stripe", action, string(f.Params)).is(200, "succeeded").fresh()
		require.NotEmpty(t, r.text("result.id"), "%s", r.raw)
		require.Equal(t, before+1, arrivals.Load())
	}
}

// laxStripe is the built-in manifest, except that it sends phone as balance.
func laxStripe(t *testing.T) string {
	t.Helper()
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	for _, s := range sources {
		if s.File == "builtin/stripe.yaml" {
			lax := strings.Replace(string(s.Manifest), "name: stripe,", "name: stripe-lax,", 1)
			lax = strings.Replace(lax, `phone: {$opt: "params.?phone"}`, `balance: {$opt: "params.?phone"}`, 1)
			return lax
		}
	}
	require.FailNow(t, "the built-in stripe manifest is missing")
	return ""
}
