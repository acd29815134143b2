package actions

import (
	"context"
	"maps"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/wire"
)

// What spans say: ids and fixed words, as the log does. Names of connections
// and actions come from records, which only hold names that exist; nothing comes
// from a body, a key or a credential, and no vendor's words.

// span begins a span of a write. Without tracing there is none, and none within a
// span of ours that is not sampled; no context is made to hold it. The one that ctx
// may have is then another's, not recording and not ended by End.
func (s *Service) span(ctx context.Context, name string, kind trace.SpanKind, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if s.tracer == nil || unsampled(trace.SpanFromContext(ctx)) {
		return ctx, noop.Span{}
	}
	return s.tracer.Start(ctx, name, append(options, trace.WithSpanKind(kind))...)
}

// unsampled says whether a span was begun here and is not recorded. A caller's decides
// nothing: that is for the sampler.
func unsampled(span trace.Span) bool {
	at := span.SpanContext()
	return at.IsValid() && !at.IsRemote() && !span.IsRecording()
}

func spanDo(span trace.Span, req Request, r Reply, e *Error) {
	if !span.IsRecording() {
		return
	}
	rec, outcome, replayed := r.Record, "succeeded", r.Replayed
	switch {
	case e != nil:
		rec, outcome, replayed = e.Record, string(e.Code), e.Replayed
	case r.Would != "":
		outcome = "dry_run"
	}
	span.SetAttributes(
		attribute.String("holdfast.request_id", req.RequestID),
		attribute.String("holdfast.tenant", req.Principal.TenantName()),
		attribute.String("holdfast.key_id", req.Principal.KeyID),
		attribute.String("holdfast.outcome", outcome),
		attribute.Bool("holdfast.replayed", replayed),
	)
	if rec != nil {
		span.SetAttributes(
			attribute.String("holdfast.action_id", rec.ID.String()),
			attribute.String("holdfast.connection", rec.Connection),
			attribute.String("holdfast.action", rec.Action),
			attribute.String("holdfast.connector", rec.Connector),
		)
	}
}

func spanClaim(span trace.Span, c dedupe.Claimed, err error) {
	if !span.IsRecording() {
		return
	}
	verdict := string(c.Verdict)
	if err != nil {
		verdict = "failed"
	}
	span.SetAttributes(attribute.String("holdfast.verdict", verdict))
}

func spanVendor(span trace.Span, x wire.Exchange) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("holdfast.phase", string(x.Phase)), attribute.String("holdfast.reason", x.Reason))
	if x.Status != 0 {
		span.SetAttributes(attribute.Int("http.response.status_code", x.Status))
	}
}

func spanSettle(span trace.Span, f finding) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(attribute.String("holdfast.outcome", f.word()))
}

// nameTrace puts the span of ctx into a request (W3C Trace Context), for a
// connection that asks for it. Nothing else of a trace is passed on: baggage was
// never read. A resend stays as it was planned and carries none. The header is a
// new one, as in [connectors.Auth.Apply].
func nameTrace(ctx context.Context, req *connectors.Request) {
	header := make(http.Header, len(req.Header)+1)
	maps.Copy(header, req.Header)
	req.Header = header
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(req.Header))
}
