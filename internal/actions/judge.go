package actions

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"mime"
	"strings"
	"unicode/utf8"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
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
// if something was.
func (f finding) unsaved(rec *dedupe.Record) done {
	if f.settlement.State == dedupe.NotDone && f.settlement.NotSent {
		return done{err: f.release.about(rec)}
	}
	shown := *rec
	shown.Outcome = f.settlement.Outcome
	e := fail(AnswerNotSaved, "the vendor answered, but the store did not take the answer yet; do not send this again. Repeat the same request, or get the action, to have the answer once it is saved").
		about(&shown)
	e.Unsaved = f.answer
	return done{err: e}
}

// perform makes the call ready, sends it once and judges what came back.
func (o *owner) perform(ctx context.Context) finding {
	report, err := o.s.breakers.allow(o.w.conn.ID)
	if err != nil {
		return o.notSent("breaker_open")
	}
	creds, err := o.s.accounts.Credentials(o.w.conn)
	if err == nil {
		var f finding
		if f, err = o.send(ctx, creds, report); err == nil {
			return f
		}
	}
	report(nil) // the vendor had no part in this
	o.s.log.WarnContext(ctx, "credential not usable", "action_id", o.w.id.String(), "connection", o.w.conn.Name, "error", err)
	return o.notSent("credentials")
}

func (o *owner) send(ctx context.Context, creds map[string]string, report func(error)) (finding, error) {
	req := o.w.planned.Clone()
	if err := o.w.spec.Auth.Apply(&req, creds); err != nil {
		return finding{}, err
	}
	ctx, span := o.s.tracer.Start(ctx, "vendor")
	defer span.End()
	x := o.s.sender.Send(ctx, wire.Request{
		Method: req.Method, URL: req.URL, Header: req.Header, Body: req.Body, Timeout: o.w.action.Timeout,
	}, o.permit)
	report(breakerError(x))
	o.s.metrics.vendor.WithLabelValues(o.w.spec.Name).Observe(x.Duration.Seconds())
	return o.judge(ctx, x, newMask(creds)), nil
}

func (o *owner) notSent(reason string) finding {
	return finding{
		settlement: dedupe.Settlement{State: dedupe.NotDone, NotSent: true,
			Outcome: dedupe.Outcome{Phase: string(wire.NotSent), Reason: reason}},
		release: notSent(reason),
	}
}

// judge is transport outcome times connector rules. Whatever is not a whole
// answer that a rule of the connector recognises is unknown.
func (o *owner) judge(ctx context.Context, x wire.Exchange, m mask) finding {
	f := finding{settlement: dedupe.Settlement{
		State:   dedupe.Held,
		Outcome: dedupe.Outcome{Phase: string(x.Phase), Reason: x.Reason, VendorStatus: x.Status},
		Attempt: &dedupe.Attempt{At: o.s.claims.Now().Add(-x.Duration), Duration: x.Duration,
			Phase: string(x.Phase), Reason: x.Reason, Status: x.Status},
	}}
	switch {
	case x.Phase == wire.NotSent:
		n := o.notSent(x.Reason)
		n.settlement.Attempt = f.settlement.Attempt
		return n
	case x.Phase != wire.Answered:
		return f
	case x.Body.State == wire.Cut:
		f.settlement.Outcome.Phase, f.settlement.Outcome.Reason = string(wire.SentNoAnswer), "cut"
		return f
	}
	v, err := o.w.connector.Judge(ctx, o.w.op, connectors.Answer{
		Status: x.Status, Header: x.Header, Body: x.Body.Bytes, Whole: x.Body.State == wire.Complete,
	})
	if err != nil {
		o.s.log.WarnContext(ctx, "answer could not be judged; the write is held", "action_id", o.w.id.String(), "error", err)
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
		o.succeed(&f, x, v, m)
	}
	return f
}

func (o *owner) succeed(f *finding, x wire.Exchange, v connectors.Verdict, m mask) {
	a := resultOf(x, v, m)
	a.limit(o.s.maxResult)
	a.Headers = exposed(o.w.action.ExposeHeaders, x, m)
	data, err := a.encode()
	if err != nil { // cannot happen: the head is strings and numbers
		f.settlement.Outcome.Reason = "answer_encoding"
		return
	}
	f.settlement.State, f.settlement.Answer, f.answer = dedupe.Succeeded, data, a
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
	// json.Valid lets bytes by that are not UTF-8; passed through, they would
	// make the whole answer unreadable to its agent (RFC 8259 section 8.1).
	if mayBeJSON(contentType) && utf8.Valid(x.Body.Bytes) && json.Valid(x.Body.Bytes) {
		return m.json(x.Body.Bytes)
	}
	return &Answer{Kind: ResultBinary, ContentType: contentType, Data: m.bytes(x.Body.Bytes)}
}

// mayBeJSON: the type says JSON, or there is none.
func mayBeJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	mt, _, err := mime.ParseMediaType(contentType)
	return err == nil && (mt == "application/json" || strings.HasSuffix(mt, "+json"))
}

// neverExposed are vendor headers that are never passed on, whatever a manifest
// lists: cookies, credentials and challenges.
var neverExposed = map[string]bool{
	"Set-Cookie": true, "Authorization": true, "Www-Authenticate": true,
	"Proxy-Authenticate": true, "Authentication-Info": true,
}

func exposed(names []string, x wire.Exchange, m mask) map[string]string {
	var out map[string]string
	for _, name := range names {
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
	case x.Phase == wire.Answered && x.Status < 500:
		return nil
	case x.Phase == wire.NotSent && !vendorsFault(x.Reason), x.Reason == wire.ReasonCanceled:
		return errNoVerdict
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
