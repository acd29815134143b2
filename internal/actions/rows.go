package actions

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/dedupe"
)

// baseRow begins the audit row of a `do`: who asked, for what, by which request.
func (s *Service) baseRow(ctx context.Context, req Request) audit.Row {
	row := caller(ctx, req).Row("")
	row.Connection, row.Action, row.Meta = req.Connection, req.Action, req.Meta
	return row
}

func caller(ctx context.Context, req Request) audit.Caller {
	return audit.Caller{
		Tenant:    req.Principal.TenantName(),
		Actor:     req.Principal.Actor(),
		Front:     req.Front,
		RequestID: req.RequestID,
		TraceID:   traceID(ctx),
	}
}

func traceID(ctx context.Context) string {
	if sc := trace.SpanContextFromContext(ctx); sc.HasTraceID() {
		return sc.TraceID().String()
	}
	return ""
}

// scribe writes the rows of one request's transitions.
func (s *Service) scribe(ctx context.Context, req Request) dedupe.Scribe {
	base := s.baseRow(ctx, req)
	return func(t dedupe.Transition) []byte { return rowOf(base, t) }
}

// systemScribe writes the rows of a tenant's transitions that nobody asked for,
// but a background job made.
func systemScribe(tenant, job string) dedupe.Scribe {
	base := audit.Caller{Tenant: tenant, Actor: audit.System(), Front: job}.Row("")
	return func(t dedupe.Transition) []byte { return rowOf(base, t) }
}

func rowOf(row audit.Row, t dedupe.Transition) []byte {
	row.Event, row.At = audit.Event(t.Event), t.At
	if r := t.Record; r != nil {
		row.ActionID = r.ID.String()
		row.Connection, row.Action = r.Connection, r.Action
		row.Identity, row.KeySource = r.Identity.PublicID(), string(r.Source)
		row.Outcome, row.Reason = r.State.String(), r.Outcome.Reason
		row.VendorStatus = r.Outcome.VendorStatus
		if n := len(r.Attempts); n > 0 {
			row.DurationMS = r.Attempts[n-1].Duration.Milliseconds()
		}
	}
	if p := t.Probe; p != nil {
		row.Reason, row.VendorStatus, row.DurationMS = p.How+"_"+p.Found, p.Status, 0
		if p.How == "lookup" {
			row.Reason += "_" + strconv.Itoa(p.Matches)
		}
		if p.SHA256 != "" {
			row.Subject = "sha256:" + p.SHA256
		}
	}
	return row.Encode()
}

// logDo writes the one line of a `do`: ids, verdict, outcome and times, never a
// body, key or credential.
//
// It makes the record itself: a [slog.Logger] looks for where in the code it is
// called, which no handler here shows.
func (s *Service) logDo(ctx context.Context, req Request, r Reply, e *Error, c course) {
	level, outcome := slog.LevelInfo, "succeeded"
	rec := r.Record
	attrs := append(make([]slog.Attr, 0, 14), // as many as there may be
		slog.String("request_id", req.RequestID),
		slog.String("tenant", req.Principal.TenantName()),
		slog.String("key_id", req.Principal.KeyID),
		slog.Duration("took", c.took),
	)
	if c.verdict != "" {
		attrs = append(attrs, slog.String("verdict", c.verdict), slog.Duration("claim", c.claim))
	}
	switch {
	case r.Would != "":
		outcome = "dry_run"
	case e != nil:
		outcome, rec = string(e.Code), e.Record
		if e.Cause != nil && e.Fields == nil { // a problem's pointer spells names of the body
			attrs = append(attrs, slog.Any("error", e.Cause))
		}
		switch e.Code {
		case KeyReused, TwinUnsettled, OutcomeUnknown, AnswerNotSaved:
			level = slog.LevelWarn
		case Internal, AnswerUnreadable:
			level = slog.LevelError
		default:
		}
	}
	attrs = append(attrs, slog.String("outcome", outcome))
	if rec != nil {
		// Names come from the record, which only holds names that exist.
		attrs = append(attrs, slog.String("action_id", rec.ID.String()),
			slog.String("connection", rec.Connection), slog.String("action", rec.Action),
			slog.Bool("replayed", r.Replayed || e != nil && e.Replayed),
			slog.Int("vendor_status", rec.Outcome.VendorStatus))
		if n := len(rec.Attempts); n > 0 && c.verdict == string(dedupe.Acquired) {
			attrs = append(attrs, slog.Duration("vendor", rec.Attempts[n-1].Duration))
		}
	}
	if s.log.Enabled(ctx, level) {
		line := slog.NewRecord(time.Now(), level, "do", 0)
		line.AddAttrs(attrs...)
		_ = s.log.Handler().Handle(ctx, line) // as a Logger does
	}
}
