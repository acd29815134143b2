package actions

import (
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
)

// outcome is a settled or held action, on its way to a caller. First answers
// and repeats both pass through settled, so they cannot differ.
type outcome struct {
	Record   *dedupe.Record
	Answer   []byte
	Replayed bool
	Replays  int64
	Check    *Check
	// Of a write that ended without an effect: why, and when to come back.
	Release *Error
}

func (s *Service) settled(o outcome) (Reply, *Error) {
	rec := o.Record
	switch rec.State {
	case dedupe.Succeeded:
		answer, err := decodeAnswer(o.Answer)
		if err != nil {
			return Reply{}, fail(AnswerUnreadable, "this write was done, but its stored answer cannot be read; it was not sent again, and an operator has to look").
				about(rec).cause(err)
		}
		return Reply{Record: rec, Answer: answer, Replayed: o.Replayed, Replays: o.Replays}, nil
	case dedupe.Refused:
		e := fail(VendorRefused, refusedDetail(rec)).about(rec)
		e.Replayed, e.Replays = o.Replayed, o.Replays
		return Reply{}, e
	case dedupe.Held:
		e := fail(OutcomeUnknown, heldDetail(rec)).about(rec)
		e.Replayed, e.Check = o.Replayed, o.Check
		return Reply{}, e
	case dedupe.NotDone:
		if o.Release != nil {
			return Reply{}, o.Release.about(rec)
		}
		return Reply{}, fail(NotSent, "the write ended without being sent; repeat the same request").after(time.Second).about(rec)
	default:
		return Reply{}, fail(Internal, "the write is in no state that can be answered; it was not sent again").about(rec)
	}
}

func refusedDetail(rec *dedupe.Record) string {
	d := "The vendor answered that it did not do this: " + vendorWords(rec.Outcome) +
		". The answer is stored; change the request, or set retry_refused to send this one again."
	return d
}

func vendorWords(o dedupe.Outcome) string {
	switch {
	case o.Message != "":
		return fmt.Sprintf("status %d, %s", o.VendorStatus, o.Message)
	case o.Code != "":
		return fmt.Sprintf("status %d, %s", o.VendorStatus, o.Code)
	default:
		return fmt.Sprintf("status %d", o.VendorStatus)
	}
}

func heldDetail(rec *dedupe.Record) string {
	return "This write may or may not have been done: " + doubt(rec.Outcome) +
		". It is held and will not be sent again. Do not send it under another key; check the vendor as described in check, or ask an operator to resolve it."
}

// doubt says in plain words why an outcome is unknown.
func doubt(o dedupe.Outcome) string {
	if o.Phase == "answered" {
		return fmt.Sprintf("the vendor's answer (status %d) does not say which", o.VendorStatus)
	}
	switch o.Reason {
	case "owner_lost":
		return "the gateway that was sending it went away before it could say"
	case "deadline":
		return "it was sent, and the vendor did not answer in time"
	default:
		return "it was sent, and the connection ended before a whole answer came"
	}
}

// released words a write the vendor said was not done and may be tried again.
func released(v connectors.Verdict) *Error {
	switch v.Reason {
	case connectors.RateLimit:
		return fail(VendorRateLimited, "the vendor's rate limit stopped this write; it was not done. Wait, then repeat the same request").
			after(clampHint(v.RetryAfter))
	case connectors.Credential:
		return fail(VendorUnavailable, "the vendor did not accept this connection's credential; the write was not done. An operator has to mend the connection").
			next(AskOperator).after(clampHint(max(v.RetryAfter, time.Minute)))
	default:
		return fail(VendorUnavailable, "the vendor answered that it did not do this and to try later. Wait, then repeat the same request").
			after(clampHint(max(v.RetryAfter, 5*time.Second)))
	}
}

// notSent words a write of which no byte left, by the fixed word for why.
func notSent(reason string) *Error {
	e := fail(NotSent, "").after(clampHint(2 * time.Second))
	switch reason {
	case "breaker_open":
		e.Detail = "the vendor has been failing, so this connection is resting; nothing was sent. Wait, then repeat the same request"
		e.RetryAfter = breakerRest
	case "budget":
		e.Detail = "the connector's own budget of the vendor's rate limit is used up for now; nothing was sent. Wait as long as Retry-After says, then repeat the same request"
	case "credentials":
		e.Detail = "this connection's credential could not be used; nothing was sent. An operator has to mend the connection"
		e.Next, e.RetryAfter = AskOperator, time.Minute
	case "egress_denied":
		e.Detail = "the vendor's address is not one this gateway may connect to; nothing was sent. An operator has to look"
		e.Next, e.RetryAfter = AskOperator, time.Minute
	case "not_permitted":
		e.Detail = "the gateway was held up too long after claiming this write, so it did not send it. Repeat the same request"
	default:
		e.Detail = "no connection to the vendor could be made (" + reason + "); nothing was sent. Wait, then repeat the same request"
	}
	return e
}
