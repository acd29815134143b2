package api

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"runtime/debug"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"holdfast.dev/gateway/internal/actions"
)

const callKey = "call"

// callOf returns what observe put beside echo's context.
func callOf(c echo.Context) *call {
	cl, _ := c.Get(callKey).(*call)
	return cl
}

// standing are the headers of every answer. All answers share their values: a
// header that is to be another is set to new ones.
func standing() http.Header {
	return http.Header{
		"Cache-Control":          {"no-store"},
		"X-Content-Type-Options": {"nosniff"},
		// Nothing here is for a browser to show, run, frame or tell others about.
		"Content-Security-Policy":      {"default-src 'none'; frame-ancestors 'none'"},
		"Referrer-Policy":              {"no-referrer"},
		"Cross-Origin-Resource-Policy": {"same-origin"},
	}
}

// observe stands around everything: it gives the request its id, the answer its
// standing headers, and the log its one line, and it catches panics.
func (f *front) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(ec echo.Context) error {
		c := &call{echo: ec, w: ec.Response(), r: traced(ec.Request()), start: f.now(), front: frontREST}
		if c.outer = outerOf(c.r); c.outer != nil {
			c.id, c.front = c.outer.id, frontMCP // one request to whoever sent it
		} else {
			c.id = newRequestID(c.start)
		}
		ec.Set(callKey, c)
		h := c.w.Header()
		h.Set(headerRequestID, c.id)
		maps.Copy(h, f.standing)
		if c.r.ContentLength != 0 {
			// Also for a body that no handler reads: the server drains it.
			_ = c.connection().SetReadDeadline(time.Now().Add(readTimeout))
		}
		err := f.guarded(next, c)
		if err != nil {
			ec.Error(err)
		}
		f.finish(c)
		if err != nil && c.cut {
			panic(http.ErrAbortHandler) // net/http closes the connection
		}
		return nil
	}
}

// panicked is a panic on its way to the log.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (f *front) guarded(next echo.HandlerFunc, c *call) (err error) {
	defer func() {
		v := recover()
		if v == nil {
			return
		}
		if v == http.ErrAbortHandler { //nolint:errorlint // a panic's value is compared as net/http does
			panic(v)
		}
		err = refuse(actions.Internal, "").because(&panicked{value: v, stack: debug.Stack()})
	}()
	if c.r.Method == http.MethodOptions && c.echo.Path() != "" {
		// echo would answer 204; the contract has 405 for every other method.
		return echo.ErrMethodNotAllowed
	}
	if !slices.Contains(f.methods[c.echo.Path()], c.r.Method) { // serve does it for a route
		if err := f.admitAddress(c); err != nil {
			return err
		}
	}
	return next(c.echo)
}

// finish counts the request and logs it: ids, status and time, never a body, a
// key or a path as it was sent. It makes the record itself: a [slog.Logger] looks
// for where in the code it is called, which no handler here shows.
func (f *front) finish(c *call) {
	route, status, took := c.echo.Path(), c.echo.Response().Status, f.now().Sub(c.start)
	method := f.known(c.r.Method, route)
	f.metrics.request(method, route, status, took)
	if !f.log.Enabled(c.ctx(), f.level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 11), // as many as there can be
		slog.String("request_id", c.id),
		slog.String("method", method),
		slog.String("route", route),
		slog.Int("status", status),
		slog.Duration("took", took),
		slog.String("remote", c.echo.RealIP()),
	)
	for _, a := range []struct{ name, value string }{
		{"code", string(c.code)}, {"tenant", c.who.Tenant}, {"key_id", c.who.KeyID}, {"action_id", c.action},
	} {
		if a.value != "" {
			attrs = append(attrs, slog.String(a.name, a.value))
		}
	}
	if c.who.AdminKey > 0 {
		// Which one: an old key may go once nobody uses it.
		attrs = append(attrs, slog.Int("admin_key", c.who.AdminKey))
	}
	line := slog.NewRecord(time.Now(), f.level, "request", 0)
	line.AddAttrs(attrs...)
	_ = f.log.Handler().Handle(c.ctx(), line) // as a Logger does
}

// answerError is echo's HTTPErrorHandler and the only place that answers with a
// problem.
func (f *front) answerError(err error, ec echo.Context) {
	c := callOf(ec)
	if c.cut {
		return // nobody is there
	}
	p := problemOf(err)
	c.code = p.code
	f.metrics.problem(p.code)
	f.logCause(c, p)
	if ec.Response().Committed {
		c.cut = true // part of an answer is out; nobody may take it for a whole
		return
	}
	h := c.w.Header()
	if after := p.retryHeader(); after != "" {
		h.Set("Retry-After", after)
	}
	if h.Get(headerIdempotentReplayed) != "" {
		h.Set(headerIdempotentReplayed, boolText(p.replayed))
	}
	switch p.code {
	case unauthenticated:
		h.Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	case methodNotAllowed:
		h.Set("Allow", f.allowed(ec.Path()))
	default:
	}
	c.about(p.record)
	p.gap = c.gap
	_ = c.send(kinds[p.code].status, typeProblem, p.encode(c.id))
}

// logCause logs what a problem hides from the client.
func (f *front) logCause(c *call, p *problem) {
	level := slog.LevelDebug
	switch p.code {
	case actions.Internal, actions.AnswerUnreadable:
		level = slog.LevelError
	case actions.StoreUnavailable:
		level = slog.LevelWarn
	default:
	}
	if p.cause == nil && level == slog.LevelDebug {
		return
	}
	attrs := []slog.Attr{slog.String("request_id", c.id), slog.String("code", string(p.code))}
	if p.cause != nil {
		attrs = append(attrs, slog.String("error", p.cause.Error()))
	}
	var pan *panicked
	if errors.As(p.cause, &pan) {
		attrs = append(attrs, slog.String("stack", string(pan.stack)))
	}
	f.log.LogAttrs(c.ctx(), level, "request failed", attrs...)
}

func boolText(b bool) string {
	if b {
		return "true"
	}
	return "false"
}
