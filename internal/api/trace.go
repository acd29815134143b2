package api

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

const headerTraceparent = "Traceparent"

// traced continues the trace a caller names (W3C Trace Context, section 3.2:
// https://www.w3.org/TR/trace-context/). A header that is none, or several,
// begins no trace of theirs and refuses nothing. baggage is not read: whatever
// is in it would travel on.
func traced(r *http.Request) *http.Request {
	if len(r.Header[headerTraceparent]) != 1 {
		return r
	}
	return r.WithContext(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)))
}

// traceID is the trace a request belongs to, "" for none.
func traceID(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
		return sc.TraceID().String()
	}
	return ""
}
