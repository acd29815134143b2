package api

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/loss"
)

// Codes that only this package gives; the others are those of actions.
const (
	unauthenticated      actions.Code = "unauthenticated"
	methodNotAllowed     actions.Code = "method_not_allowed"
	connectionFixed      actions.Code = "connection_fixed"
	unsettledWrites      actions.Code = "unsettled_writes"
	alreadyExists        actions.Code = "already_exists"
	connectorInUse       actions.Code = "connector_in_use"
	tooLarge             actions.Code = "too_large"
	unsupportedMediaType actions.Code = "unsupported_media_type"
	rateLimited          actions.Code = "rate_limited"
)

// kind is what every problem of one code has in common.
type kind struct {
	status int
	title  string
	next   actions.Next // unless the problem names another
	retry  bool         // the answer always carries Retry-After
	other  bool         // the action it names is not the caller's own write
	detail string       // where the problem has no words of its own
}

// kinds is the one table from code to answer. Its details are read literally by
// agents: each says what happened to the write, then what to do.
var kinds = map[actions.Code]kind{
	actions.InvalidJSON: {status: http.StatusBadRequest, title: "Not sound JSON", next: actions.FixRequest,
		detail: "The request body is not one sound JSON value, so nothing was done. Correct it and send it again."},
	actions.InvalidRequest: {status: http.StatusBadRequest, title: "Invalid request", next: actions.FixRequest,
		detail: "The request does not have the form this call takes, so nothing was done. Correct what errors names and send it again."},
	actions.InvalidBody: {status: http.StatusBadRequest, title: "Invalid body", next: actions.FixRequest,
		detail: "The member body does not fit the action, so nothing was sent. Correct what errors names and send it again."},
	actions.InvalidKey: {status: http.StatusBadRequest, title: "Invalid idempotency key", next: actions.FixRequest,
		detail: "The idempotency key is not acceptable, so nothing was sent. Send one key of 1 to 255 printable ASCII characters, or none."},
	unauthenticated: {status: http.StatusUnauthorized, title: "Not authenticated", next: actions.AskOperator,
		detail: "The request carries no API key that is valid now, so nothing was done. Send one key as Authorization: Bearer <key>; if that is what you did, ask an operator for a new key."},
	actions.Forbidden: {status: http.StatusForbidden, title: "Not allowed for this key", next: actions.AskOperator,
		detail: "This API key may not do this, so nothing was done. Ask an operator for a key that may."},
	actions.ConnectionPaused: {status: http.StatusForbidden, title: "Connection paused", next: actions.AskOperator,
		detail: "This connection is paused and takes no new writes, so nothing was sent. Ask an operator to resume it."},
	actions.TenantSuspended: {status: http.StatusForbidden, title: "Tenant suspended", next: actions.AskOperator,
		detail: "This tenant is suspended and takes no new writes, so nothing was sent. Ask an operator."},
	actions.UnknownConnection: {status: http.StatusNotFound, title: "Unknown connection", next: actions.FixRequest,
		detail: "There is no connection of that name, so nothing was sent. GET /v1/connections lists those there are."},
	actions.UnknownAction: {status: http.StatusNotFound, title: "Unknown action", next: actions.FixRequest,
		detail: "The connector of this connection has no action of that name, so nothing was sent. GET /v1/connectors lists those there are."},
	actions.NotFound: {status: http.StatusNotFound, title: "Not found", next: actions.FixRequest,
		detail: "There is nothing here, or nothing that this API key may see. Check the path and the id."},
	methodNotAllowed: {status: http.StatusMethodNotAllowed, title: "Method not allowed", next: actions.FixRequest,
		detail: "This path does not take that method, so nothing was done. The Allow header lists those it takes."},
	actions.InFlight: {status: http.StatusConflict, title: "Already running", next: actions.WaitAndRepeat, retry: true,
		detail: "This very write is running right now and was not sent a second time. Wait as long as Retry-After says, then repeat the same request to get its answer."},
	actions.NotHeld: {status: http.StatusConflict, title: "Not held", next: actions.FixRequest,
		detail: "This write is not held (any more), so there is nothing to check or resolve. GET the action to see how it stands."},
	actions.StillPossible: {status: http.StatusConflict, title: "May still be sent", next: actions.FixRequest, retry: true,
		detail: "The gateway process that owned this write might still send it, so it cannot be resolved yet. Wait as long as Retry-After says, then resolve it."},
	actions.CheckRunning: {status: http.StatusConflict, title: "Check running", next: actions.FixRequest, retry: true,
		detail: "This write is being checked at the vendor right now, so nothing was changed. Wait as long as Retry-After says, then GET the action."},
	connectionFixed: {status: http.StatusConflict, title: "Fixed at creation", next: actions.FixRequest,
		detail: "connector, config and base_url of a connection never change, so nothing was changed. Send the values it has, or make a connection of another name."},
	unsettledWrites: {status: http.StatusConflict, title: "Unsettled writes", next: actions.FixRequest,
		detail: "Writes of it are in flight or held, so nothing was deleted. Resolve them first: GET /v1/actions?state=held lists the held ones."},
	alreadyExists: {status: http.StatusConflict, title: "Already exists", next: actions.FixRequest,
		detail: "There is one of that name already, so nothing was changed. Choose another name, or change the one there is."},
	connectorInUse: {status: http.StatusConflict, title: "Connector in use", next: actions.FixRequest,
		detail: "Connections pin this connector and no other registered version would serve them, so nothing was deleted. Register another version of the same major first, or delete those connections."},
	tooLarge: {status: http.StatusRequestEntityTooLarge, title: "Request too large", next: actions.FixRequest,
		detail: "The request body is larger than this gateway takes, so nothing was done. Send less."},
	unsupportedMediaType: {status: http.StatusUnsupportedMediaType, title: "Unsupported media type", next: actions.FixRequest,
		detail: "The request body must be sent as Content-Type: application/json in UTF-8 and without Content-Encoding, so nothing was done."},
	actions.KeyReused: {status: http.StatusUnprocessableEntity, title: "Key used for another request", next: actions.UseNewKey, other: true,
		detail: "This idempotency_key was used for a different request (see action_id), so nothing was sent. Use a new key for a new write, or send the first request unchanged."},
	actions.OutcomeUnknown: {status: http.StatusLocked, title: "Outcome unknown", next: actions.CheckVendor,
		detail: "This write may or may not have been done: no trustworthy answer came from the vendor. It is held and will not be sent again. Do not send it under another key; find out at the vendor as check says, or ask an operator to resolve it."},
	actions.TwinUnsettled: {status: http.StatusLocked, title: "Identical write unsettled", next: actions.CheckVendor, other: true,
		detail: "An identical write under another key (see action_id) is still running or held, so this one was not sent. Wait until that one is settled, then repeat the same request. Sending it under yet another key would do it twice."},
	actions.AnswerNotSaved: {status: http.StatusLocked, title: "Answer not saved yet", next: actions.GetAction,
		detail: "The vendor answered, but the answer could not be stored yet. Do not send this write under another key. Repeat the same request later, or GET the action, to have the answer once it is saved."},
	actions.VendorRefused: {status: http.StatusFailedDependency, title: "Refused by the vendor", next: actions.FixRequest,
		detail: "The vendor refused this write: it was not done. Correct the request; to send the same one again, set retry_refused."},
	rateLimited: {status: http.StatusTooManyRequests, title: "Rate limited", next: actions.WaitAndRepeat, retry: true,
		detail: "Too many requests for this tenant, so nothing was sent. Wait as long as Retry-After says, then repeat the same request."},
	actions.VendorRateLimited: {status: http.StatusTooManyRequests, title: "Rate limited by the vendor", next: actions.WaitAndRepeat, retry: true,
		detail: "The vendor's rate limit stopped this write: it was not done. Wait as long as Retry-After says, then repeat the same request."},
	actions.NotSent: {status: http.StatusServiceUnavailable, title: "Not sent", next: actions.WaitAndRepeat, retry: true,
		detail: "No byte of this write reached the vendor: it was not done. Wait as long as Retry-After says, then repeat the same request."},
	actions.VendorUnavailable: {status: http.StatusServiceUnavailable, title: "Vendor unavailable", next: actions.WaitAndRepeat, retry: true,
		detail: "The vendor answered that it did not do this write now. Wait as long as Retry-After says, then repeat the same request."},
	actions.StoreUnavailable: {status: http.StatusServiceUnavailable, title: "Store unavailable", next: actions.WaitAndRepeat, retry: true,
		detail: "The gateway's store did not answer, so nothing was sent to a vendor. Wait as long as Retry-After says, then repeat the same request."},
	actions.Draining: {status: http.StatusServiceUnavailable, title: "Shutting down", next: actions.WaitAndRepeat, retry: true,
		detail: "This gateway process is shutting down and takes no new writes, so nothing was sent. Wait as long as Retry-After says, then repeat the same request."},
	actions.AnswerUnreadable: {status: http.StatusInternalServerError, title: "Stored record unreadable", next: actions.AskOperator,
		detail: "What is stored about this write cannot be read, so it is not known here whether it was done. It was not sent again. Do not send it under another key; ask an operator."},
	actions.Internal: {status: http.StatusInternalServerError, title: "Internal error", next: actions.AskOperator,
		detail: "Something went wrong inside the gateway. If this was a write, it is not known here whether it was done; it will not be sent twice. Do not send it under another key; ask an operator, and name the request_id."},
}

func known(code actions.Code) bool {
	_, ok := kinds[code]
	return ok
}

// field is one thing wrong with a request: at a JSON Pointer into its body, or
// with a query parameter.
type field struct {
	pointer   string
	parameter string
	detail    string
}

// problem is every answer that is not a success. It is an error, so that a
// handler returns it and one place answers.
type problem struct {
	code       actions.Code
	status     int // 0: the code's
	detail     string
	next       actions.Next
	retryAfter time.Duration
	fields     []field

	record   *dedupe.Record
	replayed bool
	check    *actions.Check
	unsaved  *actions.Answer
	gap      *loss.Gap // told of where the write was run just now

	cause error // for the log, never shown
}

func (p *problem) Error() string { return string(p.code) }

// Unwrap returns the cause.
func (p *problem) Unwrap() error { return p.cause }

func refuse(code actions.Code, detail string, fields ...field) *problem {
	return &problem{code: code, detail: detail, fields: fields}
}

func (p *problem) because(err error) *problem { p.cause = err; return p }

// encode writes the body of the answer (RFC 9457).
func (p *problem) encode(requestID string) []byte {
	k := kinds[p.code]
	o := newObject(1024)
	o.text("type", "/problems/"+string(p.code))
	o.text("title", k.title)
	o.number("status", int64(cmp.Or(p.status, k.status)))
	o.text("code", string(p.code))
	o.text("detail", or(p.detail, k.detail))
	o.text("next", or(string(p.next), string(k.next)))
	o.text("request_id", requestID)
	if p.record != nil {
		o.text("action_id", p.record.ID.String())
		if !k.other {
			writeOutcome(o, p.record)
			o.flag("replayed", p.replayed)
			writeVendor(o, p.record, nil)
		}
	}
	if len(p.fields) > 0 {
		o.list("errors", len(p.fields), func(i int, item *object) { p.fields[i].write(item) })
	}
	if p.check != nil {
		writeCheck(o, p.check)
	}
	if p.unsaved != nil {
		writeResult(o, "unsaved_", p.unsaved)
	}
	if p.record != nil && !k.other {
		if !p.replayed {
			writeGap(o, p.gap)
		}
		writePrevious(o, p.record)
	}
	return o.bytes()
}

func (f field) write(o *object) {
	if f.parameter != "" {
		o.text("parameter", f.parameter)
	} else {
		o.text("pointer", f.pointer)
	}
	o.text("detail", f.detail)
}

// Bounds of Retry-After in seconds (CONTRACT 2).
const (
	minRetryAfter = 1
	maxRetryAfter = 300
)

// retryHeader is the value of Retry-After, "" for none.
func (p *problem) retryHeader() string {
	if p.retryAfter <= 0 && !kinds[p.code].retry {
		return ""
	}
	// Rounded up: a hint that is too short sends the agent into the same wall.
	seconds := int64((p.retryAfter + time.Second - 1) / time.Second)
	return strconv.FormatInt(min(max(seconds, minRetryAfter), maxRetryAfter), 10)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
