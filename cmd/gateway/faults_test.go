package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"holdfast.dev/gateway/internal/vendortest"
)

// What each fault comes to. The connector probe decides on the status alone;
// probe-body also looks into the body; both name 2xx, 400, 404, 409, 413, 422,
// 429, 401 and 403, and nothing else.
const (
	held    = "held"
	done    = "done"
	refused = "refused"
	limited = "limited" // released: the vendor's rate limit
	denied  = "denied"  // released: the credential
)

// unknownFaults are those from which no connector can tell whether it was done.
var unknownFaults = []string{
	"close_after_head", "close_after_body", "reset_after_head", "reset_after_body", "hang", "hang_in_head",
	"cut_in_status_line", "cut_in_head", "only_103",
	"garbage_status_line", "garbage_bytes", "garbage_header", "two_status_lines", "two_lengths", "status_099",
	"http_2_status_line", "endless_head", "endless_1xx",
	"cut_length", "cut_length_empty", "reset_in_body", "hang_in_body", "cut_chunked", "cut_chunked_in_chunk", "bad_chunk",
	"cut_json_without_length", "cut_json_without_length_or_type", "cut_empty_without_length",
	"cut_gzip_without_length", "cut_gzip", "gzip_bad_checksum",
	"status_300", "status_301", "status_302", "status_303", "status_304", "status_305", "status_307", "status_308",
	"status_408", "status_408_close", "status_410", "status_423", "status_425",
	"status_500", "status_501", "status_502", "status_503", "status_504", "status_520", "status_599", "status_999",
	"status_101", "html_502",
}

// wholeAnswers succeed where the status decides; the value says whether they
// also do where a rule looks for body.arrival.
var wholeAnswers = map[string]bool{
	"ok_200": true, "ok_201": true, "103_then_201": true,
	"ok_204": false, "empty_200": false, "null_200": false, "html_200": false, "html_200_without_length": false,
	"pdf_200": false, "set_cookie": false, "gzip_200": false, "chunked_200": false, "json_without_length": false,
	"http_1_0": false, "large_200": false, "100_then_200": false,
	"gzip_bomb": false, "not_gzip": false, "not_json": false, "json_not_utf8": false, "html_as_json": false, "brotli": false, "gzip_twice": false, "bytes_after_answer": false,
}

func expectations(t *testing.T, needsBody bool) map[string]string {
	want := map[string]string{}
	for _, name := range unknownFaults {
		want[name] = held
	}
	for name, inBody := range wholeAnswers {
		want[name] = done
		if needsBody && !inBody {
			want[name] = held
		}
	}
	for _, name := range []string{"status_400", "status_404", "status_409", "status_413", "status_422", "early_413"} {
		want[name] = refused
	}
	for _, name := range []string{"status_401", "status_403"} {
		want[name] = denied
	}
	for _, f := range vendortest.Faults() {
		if strings.HasPrefix(f.Name, "status_429") {
			want[f.Name] = limited
		}
		require.Contains(t, want, f.Name, "every fault of the table has an expectation")
	}
	return want
}

// TestVendorFaults plays every fault on both stores: one arrival, the right
// answer, and the same answer to the repeat without another arrival.
func TestVendorFaults(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		for _, connector := range []string{"probe", "probe-body"} {
			want := expectations(t, connector == "probe-body")
			t.Run(connector, func(t *testing.T) {
				for i, f := range vendortest.Faults() {
					t.Run(f.Name, func(t *testing.T) {
						a := newAgent(t, app.URL())
						playFault(t, a, connector, f, want[f.Name], i)
					})
				}
			})
		}
	})
}

func playFault(t *testing.T, a *agent, connector string, f vendortest.Fault, want string, n int) {
	vendor := vendortest.New(t, f.Behaviour)
	pin := connector + "@1"
	if f.Hangs {
		pin = "probe-fast@1" // the hang outlasts any time-out
	}
	a.connect("c", pin, vendor.URL())
	body := fmt.Sprintf(`{"n":%d}`, n)
	if f.Name == "early_413" {
		body = fmt.Sprintf(`{"n":%d,"pad":%q}`, n, strings.Repeat("x", 900_000))
	}
	first := a.do("c", "create", body)
	require.Equal(t, 1, vendor.Arrivals(), "%s", first.raw)
	require.NotContains(t, string(first.raw), "s3cret")
	require.True(t, utf8.Valid(first.raw), "an agent can read the answer whatever the vendor sent")
	switch want {
	case held:
		first.is(423, "outcome_unknown").fresh()
		require.Equal(t, "check_vendor", first.text("next"))
		require.Equal(t, "manual", first.text("check.how"))
		again := a.do("c", "create", body).is(423, "outcome_unknown")
		require.Equal(t, first.text("action_id"), again.text("action_id"))
		require.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	case done:
		first.is(200, "succeeded").fresh()
		again := a.do("c", "create", body).is(200, "succeeded").replayed()
		requireSameResult(t, first, again)
	case refused:
		first.is(424, "vendor_refused").fresh()
		again := a.do("c", "create", body).is(424, "vendor_refused").replayed()
		require.Equal(t, first.text("vendor.status"), again.text("vendor.status"))
	case limited, denied:
		status, code, next := 429, "vendor_rate_limited", "wait_and_repeat"
		if want == denied {
			status, code, next = 503, "vendor_unavailable", "ask_operator"
		}
		first.is(status, code).retryAfter()
		require.Equal(t, next, first.text("next"))
		vendor.Use(vendortest.OK)
		a.do("c", "create", body).is(200, "succeeded").fresh() // released: the next one runs
		require.Equal(t, 2, vendor.Arrivals())
		return
	}
	require.Equal(t, 1, vendor.Arrivals(), "the repeat was not sent")
}

// requireSameResult compares what a first answer and a replay return, byte for
// byte.
func requireSameResult(t *testing.T, first, again reply) {
	t.Helper()
	require.Equal(t, first.text("id"), again.text("id"))
	require.Equal(t, first.text("created_at"), again.text("created_at"))
	var forms []string
	for _, member := range []string{"result", "result_base64", "result_omitted"} {
		_, one := first.body[member]
		_, two := again.body[member]
		require.Equal(t, one, two, member)
		if one {
			forms = append(forms, member)
			require.Equal(t, rawMember(t, first.raw, member), rawMember(t, again.raw, member))
		}
	}
	require.Len(t, forms, 1, "exactly one form of result")
}

// TestNothingIsSentWhereNothingCanBe: the claim is released with proof, and the
// same request runs after the repair.
func TestNothingIsSentWhereNothingCanBe(t *testing.T) {
	type broken struct {
		connector, baseURL string
		vendor             *vendortest.Vendor // the one that answers after the repair
		repair             func()
	}
	cases := map[string]func(t *testing.T, cfg *Config) broken{
		"NXDOMAIN": func(t *testing.T, cfg *Config) broken {
			vendor := vendortest.Start(t, vendortest.Config{TLS: true, CertName: "vendor.example"})
			var known atomic.Bool
			cfg.wire.RootCAs = vendor.CertPool()
			cfg.wire.Resolver = vendortest.Resolver(func(string) []netip.Addr {
				if known.Load() {
					return []netip.Addr{netip.MustParseAddr("127.0.0.1")}
				}
				return nil
			})
			baseURL := "https://vendor.example:" + vendor.Port()
			writeManifest(t, cfg.ConnectorsDir, "named", "1.0.0", strings.NewReplacer(
				"name: probe,", "name: named,", "https://vendor.example", baseURL).Replace(testManifests()["probe"]))
			return broken{"named@1", baseURL, vendor, func() { known.Store(true) }}
		},
		"bad certificate": func(t *testing.T, cfg *Config) broken {
			stranger, vendor := vendortest.NewTLS(t, nil), vendortest.NewTLS(t, nil)
			cfg.wire.RootCAs = vendor.CertPool()
			r := newRelay(t, stranger.Addr())
			r.release()
			t.Cleanup(func() { require.Zero(t, stranger.Arrivals()) })
			addr := vendor.Addr()
			return broken{"probe@1", "https://" + r.addr(), vendor, func() { r.target.Store(&addr) }}
		},
		"expired certificate": func(t *testing.T, cfg *Config) broken {
			vendor := vendortest.NewTLS(t, nil)
			expired := vendortest.Start(t, vendortest.Config{TLS: true, Expired: true})
			cfg.wire.RootCAs = vendor.CertPool()
			r := newRelay(t, expired.Addr())
			r.release()
			t.Cleanup(func() { require.Zero(t, expired.Arrivals()) })
			addr := vendor.Addr()
			return broken{"probe@1", "https://" + r.addr(), vendor, func() { r.target.Store(&addr) }}
		},
	}
	onBothStores(t, func(t *testing.T, cfg Config) {
		for name, breakIt := range cases {
			t.Run(name, func(t *testing.T) {
				cfg := cfg
				b := breakIt(t, &cfg)
				app, _ := boot(t, cfg)
				a := newAgent(t, app.URL())
				a.connect("c", b.connector, b.baseURL)
				for range 2 {
					r := a.do("c", "create", `{"n":1}`).is(503, "not_sent").fresh()
					r.retryAfter()
					require.Equal(t, "wait_and_repeat", r.text("next"))
				}
				require.Zero(t, b.vendor.Arrivals())
				require.Equal(t, []string{"claimed", "not_sent", "claimed", "not_sent"}, a.writeEvents())
				b.repair()
				a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
				a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
				require.Equal(t, 1, b.vendor.Arrivals())
				require.NoError(t, app.Close())
			})
		}
		t.Run("refused dial", func(t *testing.T) {
			app, _ := boot(t, cfg)
			a := newAgent(t, app.URL())
			port := reservePort(t)
			a.connect("c", "probe@1", port.url())
			a.do("c", "create", `{"n":1}`).is(503, "not_sent").fresh().retryAfter()
			var arrivals atomic.Int64
			port.serve(t, func(w http.ResponseWriter, _ *http.Request) {
				arrivals.Add(1)
				w.WriteHeader(http.StatusCreated)
			})
			a.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
			a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
			require.EqualValues(t, 1, arrivals.Load())

			r := a.call("PUT", "/v1/connections/d", map[string]any{
				"connector": "probe@1", "base_url": "http://10.1.2.3", "credentials": map[string]string{"token": sentinel},
			})
			require.Equal(t, 400, r.status, "an address that is not permitted: %s", r.raw)
		})
	})
}

// TestBreaker: a vendor that keeps failing is left alone for a while; what is
// refused meanwhile was not sent and runs once the vendor has recovered, and what
// was settled still replays.
func TestBreaker(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		cfg.breakerRest = time.Second
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, nil)
		a.connect("c", "probe@1", vendor.URL())
		a.do("c", "create", `{"n":0}`).is(200, "succeeded")
		vendor.Use(vendortest.Status(500))
		for n := 1; n <= 8; n++ {
			a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n)).is(423, "outcome_unknown")
		}
		vendor.Use(vendortest.OK)
		a.do("c", "create", `{"n":9}`).is(503, "not_sent").retryAfter()
		require.Equal(t, 1+8, vendor.Arrivals())
		a.do("c", "create", `{"n":0}`).is(200, "succeeded").replayed()
		require.Equal(t, 1+8, vendor.Arrivals())
		eventually(t, 10*time.Second, "one probe gets through and closes it", func() bool {
			return a.do("c", "create", `{"n":9}`).status == 200
		})
		a.do("c", "create", `{"n":10}`).is(200, "succeeded").fresh()
		require.Equal(t, 1+8+2, vendor.Arrivals())
	})
}

// writeEvents are the audit events of the tenant's writes, oldest first.
func (a *agent) writeEvents() []string {
	a.t.Helper()
	return slices.DeleteFunc(a.events("order=oldest"), func(e string) bool { return strings.Contains(e, ".") })
}

// TestWarmConnections: a vendor that takes the second request on a kept
// connection, does the work and closes. Go's own transport would send it again.
func TestWarmConnections(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		for _, traced := range []bool{false, true} {
			t.Run(fmt.Sprintf("traced=%t", traced), func(t *testing.T) {
				spans := tracetest.NewInMemoryExporter()
				if traced {
					provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
					t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
					cfg.tracer = provider
				}
				app, _ := boot(t, cfg)
				for _, action := range []string{"create", "remove"} {
					for name, fault := range map[string]vendortest.Behaviour{
						"closes after the head": vendortest.CloseAfterHead,
						"closes after the body": vendortest.CloseAfterBody,
						"resets":                vendortest.ResetAfterBody,
					} {
						t.Run(action+" "+name, func(t *testing.T) { warm(t, newAgent(t, app.URL()), action, fault) })
					}
				}
				require.Equal(t, traced, len(spans.GetSpans()) > 0)
				require.NoError(t, app.Close())
			})
		}
	})
}

func warm(t *testing.T, a *agent, action string, fault vendortest.Behaviour) {
	vendor := vendortest.New(t, vendortest.OK)
	a.connect("c", "probe@1", vendor.URL())
	body := map[string]func(int) string{
		"create": func(n int) string { return fmt.Sprintf(`{"n":%d}`, n) },
		"remove": func(n int) string { return fmt.Sprintf(`{"n":"x%d"}`, n) },
	}[action]
	a.do("c", action, body(1)).is(200, "succeeded")
	vendor.Use(fault)
	a.do("c", action, body(2)).is(423, "outcome_unknown")
	a.do("c", action, body(2)).is(423, "outcome_unknown")
	require.Equal(t, 2, vendor.Arrivals(), "one arrival each")
	require.Equal(t, 1, vendor.Connections(), "the connection was kept")
	for _, r := range vendor.Requests() {
		require.NotEmpty(t, r.Header.Get("Idempotency-Key"))
		require.NotEmpty(t, r.Header.Get("X-Idempotency-Key"))
		for _, name := range []string{"Traceparent", "Tracestate", "Baggage", "X-Forwarded-For"} {
			require.Empty(t, r.Header.Get(name), "%s does not leave", name)
		}
	}
}

// TestHTTP2Vendors: GOAWAY and REFUSED_STREAM make an HTTP/2 client send again.
// The gateway does not speak HTTP/2 to vendors, so such a vendor gets one
// request.
func TestHTTP2Vendors(t *testing.T) {
	for _, fault := range []vendortest.HTTP2Fault{vendortest.GoAway, vendortest.RefusedStream} {
		t.Run(string(fault), func(t *testing.T) {
			vendor := vendortest.Start(t, vendortest.Config{HTTP2: fault, Behaviour: vendortest.CloseAfterBody})
			cfg := testConfig(t)
			cfg.Store = embeddedPrefix + t.TempDir()
			cfg.wire.RootCAs = vendor.CertPool()
			app, _ := boot(t, cfg)
			a := newAgent(t, app.URL())
			a.connect("c", "probe@1", vendor.URL())
			a.do("c", "create", `{"n":1}`).is(423, "outcome_unknown")
			a.do("c", "remove", `{"n":"x"}`).is(423, "outcome_unknown")
			require.Equal(t, 2, vendor.Arrivals())
			for _, r := range vendor.Requests() {
				require.Equal(t, "HTTP/1.1", r.Proto)
			}
		})
	}
}

// TestRateLimitHints: whatever the vendor hints, the caller gets 1 to 300.
func TestRateLimitHints(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	app, _ := boot(t, cfg)
	want := map[string]int{"7": 7, "0": 1, "-5": 1, "86400": 300, "soon": 1}
	for _, hint := range slices.Sorted(maps.Keys(want)) {
		a := newAgent(t, app.URL())
		vendor := vendortest.New(t, vendortest.Status(429, "Retry-After: "+hint))
		a.connect("c", "probe@1", vendor.URL())
		require.Equal(t, want[hint], a.do("c", "create", `{"n":1}`).is(429, "vendor_rate_limited").retryAfter(), hint)
	}
}

// reserved is a loopback port that refuses connections until it is served.
type reserved struct{ fd int }

func reservePort(t *testing.T) *reserved {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	return &reserved{fd}
}

func (r *reserved) url() string {
	addr, _ := syscall.Getsockname(r.fd)
	return fmt.Sprintf("http://127.0.0.1:%d", addr.(*syscall.SockaddrInet4).Port)
}

func (r *reserved) serve(t *testing.T, h http.HandlerFunc) {
	t.Helper()
	require.NoError(t, syscall.Listen(r.fd, 16))
	dup, err := syscall.Dup(r.fd)
	require.NoError(t, err)
	file := os.NewFile(uintptr(dup), "listener")
	l, err := net.FileListener(file)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	server := httptest.NewUnstartedServer(h)
	require.NoError(t, server.Listener.Close())
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
}
