// Package telemetry sends traces to a collector (OpenTelemetry, OTLP over HTTP)
// and puts trace ids into log lines. It owns when tracing is on, how it is
// configured and how it ends: a collector that is slow, hangs or is away costs
// spans, never time. What is traced, and what a span may say, is left to the
// packages that make spans; metrics to client_golang.
//
// The configuration is the SDK's own OTEL_* variables
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/).
// Without an endpoint or OTEL_TRACES_EXPORTER=otlp nothing is traced.
package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Tracing makes spans and sends them in the background. It may be used from many
// goroutines.
type Tracing struct {
	trace.TracerProvider
	provider *sdktrace.TracerProvider // nil: off
	exporter sdktrace.SpanExporter
}

// Open reads OTEL_* and starts the background sender if tracing is on. It does
// not speak to the collector. The error lists every variable that cannot be
// followed, and no value.
func Open(ctx context.Context, version string) (*Tracing, error) {
	on, err := wanted()
	if err != nil {
		return nil, err
	}
	if !on {
		return &Tracing{TracerProvider: noop.NewTracerProvider()}, nil
	}
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, errors.New("tracing: OTEL_EXPORTER_OTLP_* cannot be followed")
	}
	about, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "holdfast"), attribute.String("service.version", version)),
		resource.WithFromEnv()) // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	if err != nil {
		return nil, errors.Join(errors.New("tracing: OTEL_RESOURCE_ATTRIBUTES cannot be read"), exporter.Shutdown(ctx))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return &Tracing{TracerProvider: provider, provider: provider, exporter: exporter}, nil
}

// wanted says whether the environment asks for traces.
func wanted() (bool, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false, nil
	}
	var bad []error
	on := false
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		value := os.Getenv(name)
		if value == "" {
			continue
		}
		on = true
		if u, err := url.Parse(value); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			bad = append(bad, fmt.Errorf("environment %s: must be an http or https address", name))
		}
	}
	switch os.Getenv("OTEL_TRACES_EXPORTER") {
	case "":
	case "otlp":
		on = true
	case "none":
		return false, nil
	default:
		bad = append(bad, errors.New("environment OTEL_TRACES_EXPORTER: must be otlp or none"))
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"} {
		if value := os.Getenv(name); value != "" && value != "http/protobuf" {
			bad = append(bad, fmt.Errorf("environment %s: must be http/protobuf", name))
		}
	}
	return on, errors.Join(bad...)
}

// On says whether spans are made.
func (t *Tracing) On() bool { return t.provider != nil }

// flushPatience bounds how long the end waits for the collector to take the last
// spans. A collector close by takes them in milliseconds.
const flushPatience = 500 * time.Millisecond

// Close sends what is left and ends the background sender, within half a second
// whatever the collector does. An error means that spans were lost.
func (t *Tracing) Close() error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	err := t.provider.Shutdown(ctx)
	// Cuts a request that still waits for its answer; otherwise its goroutine
	// would outlive us by the exporter's own time-out.
	if cut := t.exporter.Shutdown(context.WithoutCancel(ctx)); err == nil {
		err = cut
	}
	if err != nil {
		return fmt.Errorf("close tracing: %w", err)
	}
	return nil
}

// RouteErrors sends what the library has to say about failed exports to a log
// instead of standard error. It is for the whole process: call it once, in main.
func RouteErrors(log *slog.Logger) {
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {
		// Not the error itself: it can quote the collector's address and answer.
		log.Warn("traces not sent")
	}))
}
