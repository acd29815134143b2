package actions

import (
	"context"
	"encoding/hex"
	"mime"
	"net/http"
	"net/textproto"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/strictjson"
	"holdfast.dev/gateway/internal/wire"
)

// finding is what one call learned: what to store, and for a write that was
// released, what to tell.
type finding struct {
	settlement dedupe.Settlement
	release    *Error
	answer     *Answer // of a success
}

// word is the outcome as metrics and logs name it.
func (f finding) word() string {
	switch f.settlement.State {
	case dedupe.Succeeded, dedupe.Refused:
		return f.settlement.State.String()
	case dedupe.Held:
		return "unknown"
	default:
		if f.settlement.NotSent {
			return "not_sent"
		}
		return "retryable"
	}
}

// unsaved is what can be said while the store does not take the outcome: never
// success, because repeats could not match it, and never that nothing was sent
// if something was. A doubt is told as one: whatever becomes of the store, the
// write ends held.
func (f finding) unsaved(rec *dedupe.Record) done {
	if f.settlement.State == dedupe.NotDone && f.settlement.NotSent {
		told := *f.release // the original goes with what is stored, later
		return done{err: told.about(rec)}
	}
	shown := *rec
	shown.Outcome = f.settlement.Outcome
	if f.settlement.State == dedupe.Held {
		return done{err: fail(OutcomeUnknown, heldDetail(&shown)).about(&shown)}
	}
	e := fail(AnswerNotSaved, "the vendor answered, but the store did not take the answer yet; do not send this again. Repeat the same request, or get the action, to have the answer once it is saved").
		about(&shown)
	e.Unsaved = f.answer
	return done{err: e}
}

// reasonInternal is why an outcome is what it is where the gateway failed at
// its own work.
const reasonInternal = "internal"

// perform makes the call ready, sends it once and judges what came back. A
// panic on the way is nothing sent if the sender had not been called, and doubt
// from then on.
func (o *owner) perform(ctx context.Context) finding {
	var (
		f   finding
		x   *wire.Exchange // nil until the sender is called
		err error
	)
	func() {
		defer caught(&err)
		f = o.attempt(ctx, &x)
	}()
	if err == nil {
		return f
	}
	o.s.log.ErrorContext(ctx, "call failed inside the gateway", "action_id", o.w.id.String(), "error", err)
	if x == nil || x.Phase == wire.NotSent {
		return unsent(reasonInternal)
	}
	x.Reason = reasonInternal
	return o.s.doubt(*x)
}

// attempt reports to the breaker once, whatever happens. What it learns of the
// exchange it leaves in at.
func (o *owner) attempt(ctx context.Context, at **wire.Exchange) finding {
	if wait, ok := o.s.budgets.take(o.w.spec.Limits, o.w.spec.Name, o.w.conn.ID); !ok {
		f := unsent("budget")
		f.release.RetryAfter = clampHint(wait)
		return f
	}
	report, err := o.s.breakers.allow(o.w.conn.ID)
	if err != nil {
		return unsent("breaker_open")
	}
	learned := errNoVerdict // unless the vendor had a part in it
	defer func() { report(learned) }()
	creds, err := o.s.credentials(ctx, o.w.conn, o.w.spec.Auth)
	req := o.w.planned // what is added to it here makes it no other: it may be stored
	if err == nil {
		err = o.w.spec.Auth.Apply(&req, creds)
	}
	if err != nil {
		o.s.log.WarnContext(ctx, "credential not usable", "action_id", o.w.id.String(), "connection", o.w.conn.Name, "error", err)
		return unsent("credentials")
	}
	ctx, span := o.s.span(ctx, "vendor", trace.SpanKindClient)
	defer span.End()
	if o.w.conn.SendTrace {
		nameTrace(ctx, &req)
	}
	x := &wire.Exchange{Phase: wire.SentNoAnswer}
	*at = x
	resume := limits.TurnOf(ctx).Rest()
	defer resume() // also if the sender panics
	*x = o.s.sender.Send(ctx, wire.Request{
		Method: req.Method, URL: req.URL, Header: req.Header, Body: req.Body, Timeout: o.w.action.Timeout,
	}, o.permit)
	resume()
	spanVendor(span, *x)
	learned = breakerError(*x)
	if x.Status == http.StatusUnauthorized && o.w.spec.Auth.OAuth() && o.s.tokens != nil {
		o.s.tokens.Rejected(o.w.conn, creds[connectors.AccessToken])
	}
	o.s.metrics.vendor.WithLabelValues(o.w.spec.Name).Observe(x.Duration.Seconds())
	return o.s.judge(ctx, o.w.subject(), *x, newMask(creds))
}

// unsent is a write of which no byte left.
func unsent(reason string) finding {
	return finding{
		settlement: dedupe.Settlement{State: dedupe.NotDone, NotSent: true,
			Outcome: dedupe.Outcome{Phase: string(wire.NotSent), Reason: reason}},
		release: notSent(reason),
	}
}

// doubt is the finding that nobody can tell yet.
func (s *Service) doubt(x wire.Exchange) finding {
	return finding{settlement: dedupe.Settlement{
		State:   dedupe.Held,
		Outcome: dedupe.Outcome{Phase: string(x.Phase), Reason: x.Reason, VendorStatus: x.Status},
		Attempt: &dedupe.Attempt{At: s.claims.Now().Add(-x.Duration), Duration: x.Duration,
			Phase: string(x.Phase), Reason: x.Reason, Status: x.Status},
	}}
}

// subject is a write as the judging of an answer sees it.
type subject struct {
	scope     ledger.Scope
	id        dedupe.ActionID
	connector connectors.Connector
	action    connectors.ActionSpec
	op        connectors.Op
}

func (w *write) subject() subject {
	return subject{scope: w.req.Principal.Scope, id: w.id, connector: w.connector, action: w.action, op: w.op}
}

// judge is transport outcome times connector rules. Whatever is not a whole
// answer that a rule of the connector recognises is unknown. A write's first
// request and a resend of it are judged alike.
func (s *Service) judge(ctx context.Context, w subject, x wire.Exchange, m mask) finding {
	f := s.doubt(x)
	switch {
	case x.Phase == wire.NotSent:
		n := unsent(x.Reason)
		n.settlement.Attempt = f.settlement.Attempt
		return n
	case x.Phase != wire.Answered:
		return f
	case x.Body.State == wire.Cut:
		f.settlement.Outcome.Phase, f.settlement.Outcome.Reason = string(wire.SentNoAnswer), "cut"
		return f
	}
	v, err := w.connector.Judge(ctx, w.op, connectors.Answer{
		Status: x.Status, Header: x.Header, Body: x.Body.Bytes, Whole: x.Body.State == wire.Complete,
	})
	if err != nil {
		s.log.WarnContext(ctx, "answer could not be judged; the write is held", "action_id", w.id.String(), "error", err)
	}
	if err != nil || v.Doubt == connectors.DoubtConnector || v.Doubt == connectors.DoubtRuleFailed {
		f.settlement.Raw = s.sealAnswer(w, x)
	}
	out := &f.settlement.Outcome
	out.Code, out.Message = m.text(v.Code), m.text(v.Message)
	switch {
	case err != nil || v.Outcome == connectors.Unknown:
		out.Reason = string(v.Doubt)
	case v.Outcome == connectors.Refused:
		f.settlement.State = dedupe.Refused
	case v.Outcome == connectors.Retryable:
		f.settlement.State = dedupe.NotDone
		out.Reason = string(v.Reason)
		f.release = released(v)
	case v.Outcome == connectors.Succeeded:
		s.succeed(&f, w, x, v, m)
	}
	return f
}

func (s *Service) succeed(f *finding, w subject, x wire.Exchange, v connectors.Verdict, m mask) {
	a := resultOf(x, v, m)
	a.limit(s.maxResult)
	a.Headers = exposed(w.action.ExposeHeaders, x, m)
	f.settlement.State, f.settlement.Answer, f.answer = dedupe.Succeeded, a.encode(), a
}

// resultOf is the connector's projection or the vendor's own body.
func resultOf(x wire.Exchange, v connectors.Verdict, m mask) *Answer {
	switch {
	case v.Result != nil:
		return m.json(v.Result)
	case x.Body.State == wire.TooLarge:
		return &Answer{Kind: ResultOmitted, Reason: "too_large", Bytes: x.Body.Size, SHA256: hex.EncodeToString(x.Body.SHA256[:])}
	case len(x.Body.Bytes) == 0:
		return &Answer{Kind: ResultNone}
	}
	contentType := x.Header.Get("Content-Type")
	if mayBeJSON(contentType) && soundJSON(x.Body.Bytes) {
		return m.sound(x.Body.Bytes)
	}
	return &Answer{Kind: ResultBinary, ContentType: contentType, Data: m.bytes(x.Body.Bytes)}
}

// soundJSON says whether bytes may stand in an answer as JSON. What is not UTF-8
// would make the whole answer unreadable to its agent (RFC 8259 section 8.1).
func soundJSON(b []byte) bool {
	_, ok := strictjson.Sound(b)
	return ok
}

// mayBeJSON: the type says JSON, or there is none.
func mayBeJSON(contentType string) bool {
	if contentType == "" || contentType == "application/json" {
		return true
	}
	mt, _, err := mime.ParseMediaType(contentType)
	return err == nil && (mt == "application/json" || strings.HasSuffix(mt, "+json"))
}

// neverExposed are vendor headers that are never passed on, whatever a manifest
// lists: cookies, credentials and challenges.
var neverExposed = map[string]bool{
	"Set-Cookie": true, "Set-Cookie2": true, "Cookie": true,
	"Authorization": true, "Www-Authenticate": true, "Authentication-Info": true,
	"Proxy-Authorization": true, "Proxy-Authenticate": true, "Proxy-Authentication-Info": true,
}

func exposed(names []string, x wire.Exchange, m mask) map[string]string {
	var out map[string]string
	for _, name := range names {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if value := x.Header.Get(name); value != "" && !neverExposed[name] {
			if out == nil {
				out = make(map[string]string, len(names))
			}
			out[name] = m.text(value)
		}
	}
	return out
}

// breakerError is what an exchange tells the breaker: transport failures and
// 5xx count against the vendor, refusals and our own decisions do not.
func breakerError(x wire.Exchange) error {
	switch {
	case x.Phase == wire.NotSent && !vendorsFault(x.Reason), x.Reason == wire.ReasonCanceled:
		return errNoVerdict
	case x.Phase == wire.Answered && x.Status < 500 && x.Body.State != wire.Cut:
		return nil
	default:
		return errVendorFailing
	}
}

// vendorsFault says whether a request that was not sent failed because of the
// vendor rather than of us.
func vendorsFault(reason string) bool {
	switch reason {
	case wire.ReasonDNS, wire.ReasonRefused, wire.ReasonDial, wire.ReasonTLS, wire.ReasonDeadline:
		return true
	}
	return false
}
