package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"holdfast.dev/gateway/internal/vendortest"
)

const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	callersSpan  = "00f067aa0ba902b7"
)

// TestOneTraceFromDoToSettle: the caller's trace goes on through do, claim,
// vendor and settle, into the log and the audit row, and not to the vendor; and
// no span says what the write was about.
func TestOneTraceFromDoToSettle(t *testing.T) {
	const secretBody, secretKey = "SENTINEL-body-1d0c", "SENTINEL-own-key-77aa"
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { require.NoError(t, provider.Shutdown(context.Background())) }()
	cfg := embeddedConfig(t)
	cfg.tracer = provider
	vendor := vendortest.New(t, vendortest.OK)
	app, log := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	spans.Reset()
	body := doBody("c", "create", fmt.Sprintf(`{"n":1,"pad":%q}`, secretBody), fmt.Sprintf(`"idempotency_key":%q`, secretKey))
	done := a.call("POST", "/v1/do", body,
		"traceparent", "00-"+callersTrace+"-"+callersSpan+"-01", "tracestate", "v=1", "baggage", "user=me").is(200, "succeeded")

	byName := map[string]tracetest.SpanStub{}
	eventually(t, 5*time.Second, "all spans have ended", func() bool {
		for _, s := range spans.GetSpans() {
			byName[s.Name] = s
		}
		return len(byName) == 4
	})
	require.Equal(t, callersSpan, byName["do"].Parent.SpanID().String())
	for _, name := range []string{"do", "claim", "vendor", "settle"} {
		s, ok := byName[name]
		require.True(t, ok, name)
		require.Equal(t, callersTrace, s.SpanContext.TraceID().String(), name)
		if name != "do" {
			require.Equal(t, byName["do"].SpanContext.SpanID(), s.Parent.SpanID(), name)
		}
		told := fmt.Sprint(s.Name, s.Attributes, s.Events, s.Status, s.Resource)
		for _, secret := range []string{secretBody, secretKey, sentinel, a.key} {
			require.NotContains(t, told, secret, name)
		}
	}
	require.False(t, byName["vendor"].StartTime.Before(byName["claim"].EndTime), "nothing is sent before the claim has ended")
	require.Equal(t, trace.SpanKindClient, byName["vendor"].SpanKind)
	require.Contains(t, fmt.Sprint(byName["do"].Attributes), done.text("action_id"))
	require.Contains(t, fmt.Sprint(byName["claim"].Attributes), "acquired")
	require.Contains(t, fmt.Sprint(byName["settle"].Attributes), "succeeded")

	for name := range vendor.Requests()[0].Header {
		require.NotContains(t, []string{"traceparent", "tracestate", "baggage"}, strings.ToLower(name))
	}
	rows := a.must(200, "GET", "/v1/audit?event=claimed", nil)
	require.Contains(t, string(rows.raw), callersTrace)
	require.Equal(t, callersTrace, logged(t, log, "do")["trace_id"])
	require.Equal(t, callersTrace, logged(t, log, "request", "/v1/do")["trace_id"])
}

// TestATraceReachesAVendorThatIsToBeTold: traceparent and tracestate go with a
// write on a connection that asks for it, naming the span of the call; with
// tracing off, the caller's own go on unchanged. baggage never does.
func TestATraceReachesAVendorThatIsToBeTold(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, cfg Config) (parent, state string) {
		vendor := vendortest.New(t, vendortest.OK)
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		require.Equal(t, false, a.must(200, "GET", "/v1/connections/c", nil).body["send_trace"])
		require.Equal(t, true, a.must(200, "PUT", "/v1/connections/c", `{"send_trace":true}`).body["send_trace"])
		a.call("POST", "/v1/do", doBody("c", "create", `{"n":1}`),
			"traceparent", "00-"+callersTrace+"-"+callersSpan+"-01", "tracestate", "v=1", "baggage", "user=me").is(200, "succeeded")
		a.must(200, "PUT", "/v1/connections/c", `{"send_trace":false}`)
		a.call("POST", "/v1/do", doBody("c", "create", `{"n":2}`), "traceparent", "00-"+callersTrace+"-"+callersSpan+"-01").is(200, "succeeded")
		got := vendor.Requests()
		require.Len(t, got, 2)
		for name := range got[1].Header {
			require.NotContains(t, []string{"traceparent", "tracestate", "baggage"}, strings.ToLower(name))
		}
		require.Empty(t, got[0].Header.Get("Baggage"))
		return got[0].Header.Get("Traceparent"), got[0].Header.Get("Tracestate")
	}

	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	defer func() { require.NoError(t, provider.Shutdown(context.Background())) }()
	cfg := embeddedConfig(t)
	cfg.tracer = provider
	parent, state := ask(t, cfg)
	require.Equal(t, "v=1", state)
	var calls []string
	for _, s := range spans.GetSpans() {
		if s.Name == "vendor" {
			calls = append(calls, "00-"+callersTrace+"-"+s.SpanContext.SpanID().String()+"-01")
		}
	}
	require.Contains(t, calls, parent)

	parent, state = ask(t, embeddedConfig(t))
	require.Equal(t, "00-"+callersTrace+"-"+callersSpan+"-01", parent)
	require.Equal(t, "v=1", state)
}

// logged is the last line with a message and, where one is given, a route.
func logged(t *testing.T, log *logs, msg string, route ...string) map[string]any {
	t.Helper()
	var found map[string]any
	for line := range strings.Lines(log.String()) {
		m := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		if m["msg"] == msg && (len(route) == 0 || m["route"] == route[0]) {
			found = m
		}
	}
	require.NotNil(t, found, "no line %q", msg)
	return found
}

// TestTheGatewayNeverWaitsForItsCollector: one that takes connections and never
// answers delays no write and not the end.
func TestTheGatewayNeverWaitsForItsCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked, ended := make(chan net.Conn, 1000), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				close(asked)
				return
			}
			asked <- c
		}
	}()
	defer func() {
		_ = l.Close()
		<-ended
		for c := range asked {
			_ = c.Close()
		}
	}()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+l.Addr().String())
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	vendor := vendortest.New(t, vendortest.OK)
	app, _ := boot(t, embeddedConfig(t))
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":0}`).is(200, "succeeded")
	select {
	case c := <-asked:
		defer func() { _ = c.Close() }()
	case <-time.After(10 * time.Second):
		require.Fail(t, "the collector was never asked")
	}
	started := time.Now()
	for n := range 50 {
		a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n+1)).is(200, "succeeded")
	}
	require.Less(t, time.Since(started), 8*time.Second, "the exporter's own time-out is 10 s")
	started = time.Now()
	require.NoError(t, app.Close())
	require.Less(t, time.Since(started), 4*time.Second)
}
