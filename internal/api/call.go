package api

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/oklog/ulid/v2"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/loss"
	"holdfast.dev/gateway/internal/tenants"
)

// Names of headers and media types that Go's and echo's lists lack, or spell
// with a charset that JSON does not have (RFC 8259 section 11).
const (
	headerRequestID          = "Request-Id"
	headerIdempotentReplayed = "Idempotent-Replayed"
	headerIdempotencyKey     = "Idempotency-Key"

	typeJSON    = "application/json"
	typeProblem = "application/problem+json"
)

// How long a client may take to send a body and to receive an answer. There is
// no time-out for the whole of a call: a vendor may work for minutes.
const (
	readTimeout  = 30 * time.Second
	writeTimeout = time.Minute
)

// call is one request on its way: all that a handler sees of HTTP. Handlers
// take it instead of echo's context, so that what binds them to echo is here.
type call struct {
	echo  echo.Context
	w     http.ResponseWriter
	r     *http.Request
	id    string // of the request
	start time.Time
	who   tenants.Principal // zero on a public route

	front string       // rest, mcp
	outer *call        // the message this is made for; nil for a client's own request
	inner atomic.Int64 // requests made for this message

	counted  bool         // against its address
	admit    func() error // waits for turn, once the request is here; nil: there is none to wait for
	turn     *limits.Turn
	mostBody int64 // bytes the tenant's requests may have; 0: no limit of its own

	gap *loss.Gap // of a `do`

	// For the access log.
	code   actions.Code
	action string // id

	cut bool // the answer broke off
}

// newRequestID returns "req_" and a ULID. Nothing of a client's goes into it.
func newRequestID(now time.Time) string {
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(now)) // only fails after the year 10889
	_, _ = rand.Read(id[6:])
	return "req_" + id.String()
}

// connection controls the client's connection, beneath echo's bookkeeping.
func (c *call) connection() *http.ResponseController {
	return http.NewResponseController(c.echo.Response().Writer)
}

func (c *call) ctx() context.Context { return c.r.Context() }

// caller is what audit rows of administration begin with.
func (c *call) caller() audit.Caller {
	return audit.Caller{Tenant: c.who.TenantName(), Actor: c.who.Actor(), Front: c.front, RequestID: c.id, TraceID: traceID(c.ctx())}
}

// param reads one segment of the path. No name or id of ours holds a slash, so
// a path with more segments than the route, or an escaped one, names nothing.
func (c *call) param(name string) (string, error) {
	value := c.echo.Param(name)
	if c.r.URL.RawPath != "" {
		var err error
		if value, err = url.PathUnescape(value); err != nil {
			return "", refuse(actions.NotFound, "")
		}
	}
	if value == "" || strings.Contains(value, "/") {
		return "", refuse(actions.NotFound, "")
	}
	return value, nil
}

// about notes which action an answer is about, for the client and the log.
func (c *call) about(rec *dedupe.Record) {
	if rec == nil {
		return
	}
	c.action = rec.ID.String()
	c.w.Header().Set("Location", "/v1/actions/"+c.action)
}

func (c *call) json(status int, body []byte) error { return c.send(status, typeJSON, body) }

// nothing answers that it is done and there is nothing to say.
func (c *call) nothing() error {
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

// send writes a whole answer, or cuts the connection: a client must not take a
// part of an answer for one.
func (c *call) send(status int, contentType string, body []byte) error {
	h := c.w.Header()
	values := []string{contentType, strconv.Itoa(len(body))}
	h["Content-Type"], h["Content-Length"] = values[:1:1], values[1:]
	out := c.connection()
	// Without the deadline a client that never reads would hold the answer for
	// good. It is lifted again because the connection serves further requests.
	bounded := out.SetWriteDeadline(time.Now().Add(writeTimeout)) == nil
	c.w.WriteHeader(status)
	if c.r.Method == http.MethodHead {
		return nil
	}
	_, err := c.w.Write(body)
	if err == nil {
		err = out.Flush()
	}
	if err == nil && bounded {
		err = out.SetWriteDeadline(time.Time{})
	}
	_ = err // the client is gone, and what was to be done is done
	return nil
}
