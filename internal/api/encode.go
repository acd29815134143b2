package api

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/loss"
)

// encodeReply writes the answer to a `do` that succeeded, now or before: a
// first answer and every replay come out of this one function, so they differ
// only in what says which they are.
func encodeReply(r actions.Reply, gap *loss.Gap, requestID string) []byte {
	rec := r.Record
	o := newObject(1024 + sizeOf(r.Answer))
	o.text("id", rec.ID.String())
	o.text("state", rec.State.String())
	o.flag("replayed", r.Replayed)
	writeSubject(o, rec)
	writeResult(o, "", r.Answer)
	writeVendor(o, rec, headersOf(r.Answer))
	writeTimes(o, rec)
	o.number("replays", r.Replays)
	o.some("evidence", string(rec.Evidence))
	o.text("request_id", requestID)
	if r.Replayed {
		o.object("original", func(o *object) {
			o.text("request_id", rec.RequestID)
			o.time("at", rec.Created)
		})
		o.text("notice", replayNotice(rec))
	} else {
		writeGap(o, gap)
	}
	writePrevious(o, rec)
	return o.bytes()
}

// writeGap tells that writes made in that time may be unknown here, so that a
// new one may be the second.
func writeGap(o *object, gap *loss.Gap) {
	if gap == nil {
		return
	}
	o.object("ledger_gap", func(o *object) {
		o.time("from", gap.From)
		o.time("to", gap.To)
	})
}

// replayNotice says what nobody may miss: this answer is not a new write.
func replayNotice(rec *dedupe.Record) string {
	did := "done at " + formatTime(rec.Settled) + ", request " + rec.RequestID
	switch rec.Evidence {
	case dedupe.ByCheck:
		did = "sent for request " + rec.RequestID + " and found done at the vendor by a check at " + formatTime(rec.Settled)
	case dedupe.ByOperator:
		did = "sent for request " + rec.RequestID + " and confirmed as done by an operator at " + formatTime(rec.Settled)
	case dedupe.ByVendor:
	}
	return "Not sent again: " + did + ". To do it once more on purpose, send a new idempotency_key."
}

// encodeDryRun writes what a `do` would have come to. The action, if there is
// one, is the one an earlier request made.
func encodeDryRun(req actions.Request, r actions.Reply, gap *loss.Gap, requestID string) []byte {
	o := newObject(512)
	o.flag("dry_run", true)
	o.text("would", r.Would)
	o.text("connection", req.Connection)
	o.text("action", req.Action)
	if r.Record != nil {
		o.text("action_id", r.Record.ID.String())
		o.text("state", r.Record.State.String())
		o.time("created_at", r.Record.Created)
	} else {
		writeGap(o, gap)
	}
	o.text("request_id", requestID)
	return o.bytes()
}

// encodeView writes an action as it is looked at: as its `do` was answered, and
// how it came to stand as it does. Its request_id is that of the claim.
func encodeView(v actions.View) []byte {
	o := newObject(2048 + sizeOf(v.Answer))
	writeView(o, v)
	return o.bytes()
}

func writeView(o *object, v actions.View) {
	rec := v.Record
	o.text("id", rec.ID.String())
	o.text("state", rec.State.String())
	writeSubject(o, rec)
	o.some("connector", rec.Connector)
	if v.Answer != nil {
		writeResult(o, "", v.Answer)
	}
	writeOutcome(o, rec)
	writeVendor(o, rec, headersOf(v.Answer))
	writeTimes(o, rec)
	if rec.State == dedupe.Held {
		o.time("hold_until", rec.HoldUntil)
		o.time("deadline", rec.Deadline)
	}
	o.number("replays", v.Replays)
	o.some("evidence", string(rec.Evidence))
	o.text("request_id", rec.RequestID)
	o.some("key_id", rec.KeyID)
	writeAttempts(o, rec)
	if v.Check != nil {
		writeCheck(o, v.Check)
	}
	o.some("warning", v.Warning)
	writeHistory(o, rec)
	writePrevious(o, rec)
}

// encodeCheckResult writes what a check of a held write came to.
func encodeCheckResult(c actions.CheckResult, requestID string) []byte {
	o := newObject(2048 + sizeOf(c.View.Answer))
	o.text("verdict", c.Verdict)
	o.some("detail", c.Detail)
	o.text("request_id", requestID)
	if c.View.Record != nil {
		o.object("action", func(o *object) { writeView(o, c.View) })
	}
	return o.bytes()
}

func writeSubject(o *object, rec *dedupe.Record) {
	o.text("connection", rec.Connection)
	o.text("action", rec.Action)
	o.object("key", func(o *object) {
		o.text("source", string(rec.Source))
		o.text("id", rec.Identity.PublicID())
	})
}

// writeResult writes what a vendor returned under the one of three names that
// says its form. JSON is copied as it is: actions has checked that it is sound.
func writeResult(o *object, prefix string, a *actions.Answer) {
	switch {
	case a == nil || a.Kind == actions.ResultNone:
		o.raw(prefix+"result", []byte("null"))
	case a.Kind == actions.ResultJSON && len(a.Data) > 0:
		o.raw(prefix+"result", a.Data)
	case a.Kind == actions.ResultOmitted:
		o.object(prefix+"result_omitted", func(o *object) {
			o.text("reason", a.Reason)
			o.number("bytes", a.Bytes)
			o.some("sha256", a.SHA256)
		})
	default:
		o.text(prefix+"result_base64", base64.StdEncoding.EncodeToString(a.Data))
		o.text(prefix+"result_content_type", or(a.ContentType, "application/octet-stream"))
	}
}

// writeVendor writes how the vendor answered; nothing where it did not.
func writeVendor(o *object, rec *dedupe.Record, headers map[string]string) {
	v := rec.Outcome
	if v.VendorStatus == 0 && len(headers) == 0 {
		return
	}
	o.object("vendor", func(o *object) {
		if v.VendorStatus != 0 {
			o.number("status", int64(v.VendorStatus))
		}
		o.some("code", v.Code)
		o.some("message", v.Message)
		if len(headers) > 0 {
			o.object("headers", func(o *object) {
				for _, name := range slices.Sorted(maps.Keys(headers)) {
					o.text(name, headers[name])
				}
			})
		}
	})
}

// outcomeKind says in one word what is known of a write; "" while it runs.
func outcomeKind(rec *dedupe.Record) string {
	switch rec.State {
	case dedupe.Succeeded:
		return "succeeded"
	case dedupe.Refused:
		return "refused"
	case dedupe.Held, dedupe.Lapsed:
		return "unknown"
	case dedupe.NotDone:
		switch {
		case rec.Resolved:
			return "not_performed"
		case rec.Outcome.Phase == "not_sent":
			return "not_sent"
		default:
			return "retryable"
		}
	case dedupe.InFlight:
		return ""
	default:
		return "unknown"
	}
}

func writeOutcome(o *object, rec *dedupe.Record) {
	kind := outcomeKind(rec)
	if kind == "" {
		return
	}
	o.object("outcome", func(o *object) {
		o.text("kind", kind)
		o.some("phase", rec.Outcome.Phase)
		o.some("reason", rec.Outcome.Reason)
	})
}

func writeTimes(o *object, rec *dedupe.Record) {
	o.time("created_at", rec.Created)
	o.time("settled_at", rec.Settled)
	if rec.State != dedupe.NotDone && rec.State != dedupe.Lapsed { // there is nothing to replay
		o.time("replay_until", rec.WindowEnd)
	}
}

func writeAttempts(o *object, rec *dedupe.Record) {
	o.list("attempts", len(rec.Attempts), func(i int, o *object) {
		a := rec.Attempts[i]
		o.time("at", a.At)
		o.number("duration_ms", a.Duration.Milliseconds())
		o.text("phase", a.Phase)
		o.some("reason", a.Reason)
		if a.Status != 0 {
			o.number("status", int64(a.Status))
		}
	})
}

func writeHistory(o *object, rec *dedupe.Record) {
	o.list("history", len(rec.History), func(i int, o *object) {
		h := rec.History[i]
		o.time("at", h.At)
		o.text("event", string(h.Event))
		o.some("by", h.By)
		o.some("detail", h.Detail)
	})
}

func writeCheck(o *object, c *actions.Check) {
	o.object("check", func(o *object) {
		o.flag("automatic", c.Automatic)
		o.text("how", c.How)
		o.text("detail", c.Detail)
		if c.URL != "" {
			o.object("request", func(o *object) {
				o.text("method", or(c.Method, "GET"))
				o.text("url", c.URL)
			})
		}
		o.some("match", c.Match)
		if c.Settle > 0 {
			o.text("settle", formatDuration(c.Settle))
		}
	})
}

func writePrevious(o *object, rec *dedupe.Record) {
	p := rec.Previous
	if p == nil {
		return
	}
	o.object("previous_write", func(o *object) {
		o.text("id", p.ID.String())
		o.text("state", p.State.String())
		o.time("at", p.At)
	})
}

// formatDuration writes one number and one unit, as manifests do: "24h" and
// "60s", not "1m0s".
func formatDuration(d time.Duration) string {
	switch {
	case d > 0 && d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
	case d%time.Second == 0:
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	default:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	}
}

func headersOf(a *actions.Answer) map[string]string {
	if a == nil {
		return nil
	}
	return a.Headers
}

// sizeOf is about how much room an answer takes in JSON.
func sizeOf(a *actions.Answer) int {
	if a == nil {
		return 0
	}
	return len(a.Data)*4/3 + 4
}
