package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/telemetry"
)

// environment is the whole of OTEL_* for a test.
func environment(t *testing.T, values map[string]string) {
	t.Helper()
	for _, pair := range os.Environ() {
		if name, _, _ := strings.Cut(pair, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range values {
		t.Setenv(name, value)
	}
}

func TestTracingIsOffUnlessTheEnvironmentAsks(t *testing.T) {
	for name, c := range map[string]struct {
		env map[string]string
		on  bool
	}{
		"nothing":         {nil, false},
		"an endpoint":     {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, true},
		"for traces":      {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"}, true},
		"the exporter":    {map[string]string{"OTEL_TRACES_EXPORTER": "otlp"}, true},
		"switched off":    {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"}, false},
		"no exporter":     {map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"}, false},
		"a name is not a": {map[string]string{"OTEL_SERVICE_NAME": "x"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			environment(t, c.env)
			tracing, err := telemetry.Open(t.Context(), "v0")
			require.NoError(t, err)
			require.Equal(t, c.on, tracing.On())
			_, span := tracing.Tracer("t").Start(t.Context(), "s")
			require.Equal(t, c.on, span.SpanContext().IsValid())
			require.NoError(t, tracing.Close()) // no span was ended: nothing to send
		})
	}
}

func TestWhatCannotBeFollowedIsNamedWithoutItsValue(t *testing.T) {
	environment(t, map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "collector-secret:4317",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
		"OTEL_TRACES_EXPORTER":        "zipkin",
	})
	_, err := telemetry.Open(t.Context(), "v0")
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_TRACES_EXPORTER"} {
		require.ErrorContains(t, err, name)
	}
	require.NotContains(t, err.Error(), "secret")
}

func TestSpansReachTheCollectorAtTheLatestAtTheEnd(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got[r.URL.Path] += r.Header.Get("Content-Type") + string(raw)
	}))
	defer collector.Close()
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL, "OTEL_RESOURCE_ATTRIBUTES": "region=north"})
	tracing, err := telemetry.Open(t.Context(), "v1.2.3")
	require.NoError(t, err)
	_, span := tracing.Tracer("t").Start(t.Context(), "the-span")
	span.End()
	require.NoError(t, tracing.Close())
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, got, 1)
	for _, part := range []string{"application/x-protobuf", "the-span", "service.name", "holdfast", "v1.2.3", "region", "north"} {
		require.Contains(t, got["/v1/traces"], part)
	}
}

// hang accepts connections and never answers.
func hang(t *testing.T) (address string, asked <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	first := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var taken []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			if taken = append(taken, c); len(taken) == 1 {
				close(first)
			}
		}
		for _, c := range taken {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return "http://" + l.Addr().String(), first
}

// A collector that hangs costs neither the makers of spans any time, however
// many they make, nor the end; and it leaves no goroutine behind, waiting for it.
func TestAHangingCollectorDelaysNothing(t *testing.T) {
	address, asked := hang(t)
	before := goleak.IgnoreCurrent()
	environment(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": address, "OTEL_BSP_SCHEDULE_DELAY": "1"})
	tracing, err := telemetry.Open(t.Context(), "v0")
	require.NoError(t, err)
	tracer := tracing.Tracer("t")
	for started := time.Now(); ; {
		_, span := tracer.Start(t.Context(), "s")
		span.End()
		require.Less(t, time.Since(started), 20*time.Second)
		select {
		case <-asked:
		default:
			continue
		}
		break
	}
	started := time.Now()
	for range 20_000 { // ten times what the sender keeps
		_, span := tracer.Start(t.Context(), "s")
		span.End()
	}
	require.Less(t, time.Since(started), 5*time.Second)
	started = time.Now()
	require.Error(t, tracing.Close(), "spans were lost, and it is said")
	require.Less(t, time.Since(started), 3*time.Second)
	require.NoError(t, goleak.Find(before), "the collector still holds its connections, and nobody waits for it")
}

func TestLinesUnderASpanCarryItsTrace(t *testing.T) {
	environment(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
	tracing, err := telemetry.Open(t.Context(), "v0")
	require.NoError(t, err)
	ctx, span := tracing.Tracer("t").Start(t.Context(), "s")
	var out bytes.Buffer
	log := slog.New(telemetry.LogHandler(slog.NewJSONHandler(&out, nil))).With("a", "b")
	line := func(ctx context.Context) map[string]any {
		out.Reset()
		log.InfoContext(ctx, "m")
		m := map[string]any{}
		require.NoError(t, json.Unmarshal(out.Bytes(), &m))
		return m
	}
	under := line(ctx)
	require.Equal(t, span.SpanContext().TraceID().String(), under["trace_id"])
	require.Equal(t, span.SpanContext().SpanID().String(), under["span_id"])
	require.Equal(t, "b", under["a"])
	require.NotContains(t, line(t.Context()), "trace_id")
	require.NoError(t, tracing.Close())
}
