package actions

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// asked counts how often a sampler was asked, and says the same each time.
type asked struct {
	sdktrace.Sampler
	times int
}

func (a *asked) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	a.times++
	return a.Sampler.ShouldSample(p)
}

func TestWithinASpanThatIsNotSampledThereIsNone(t *testing.T) {
	remote := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
	for name, want := range map[string]struct {
		sampler sdktrace.Sampler
		times   int
	}{
		"never": {sdktrace.NeverSample(), 1}, "always": {sdktrace.AlwaysSample(), 2},
	} {
		sampler := &asked{Sampler: want.sampler}
		provider := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler))
		s := &Service{tracer: provider.Tracer("")}
		// The caller did not sample its own, which decides nothing here.
		ctx, outer := s.span(trace.ContextWithSpanContext(t.Context(), remote), "do", trace.SpanKindServer)
		within, inner := s.span(ctx, "claim", trace.SpanKindInternal)
		inner.End()
		require.Equal(t, want.times, sampler.times, name)
		require.Equal(t, remote.TraceID(), trace.SpanContextFromContext(within).TraceID())
		require.Equal(t, name == "always", outer.IsRecording())
		outer.End()
		require.NoError(t, provider.Shutdown(t.Context()))
	}
}
