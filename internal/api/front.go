package api

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"
)

// route is one row of a table: who may make which call, and what answers.
type route struct {
	method string
	path   string // as echo writes it: /v1/actions/:id
	access access
	handle func(*call) error
	// replays: the answer says whether it is a replay.
	replays bool
	// bodiless: the call reads no body, whatever a client sends.
	bodiless bool
}

// front is what the two listeners have in common: an echo without its own ways
// of answering.
type front struct {
	echo    *echo.Echo
	who     authenticator // nil where nobody is authenticated
	journal journal       // nil likewise
	limits  Limits
	log     *slog.Logger
	level   slog.Level // of the line for each request
	now     func() time.Time
	metrics *metrics
	methods map[string][]string // path → methods

	standing http.Header // of every answer
}

func newFront(log *slog.Logger, now func() time.Time, m *metrics, who authenticator, j journal, l Limits, routes []route) *front {
	f := &front{echo: echo.New(), who: who, journal: j, limits: l, log: log, level: slog.LevelInfo, now: now, metrics: m, methods: make(map[string][]string), standing: standing()}
	f.echo.HideBanner, f.echo.HidePort = true, true
	f.echo.HTTPErrorHandler = f.answerError
	f.echo.IPExtractor = client(l.TrustedProxies)
	f.echo.Use(f.observe)
	for _, rt := range routes {
		f.echo.Add(rt.method, rt.path, f.serve(rt))
		f.methods[rt.path] = append(f.methods[rt.path], rt.method)
	}
	for _, m := range f.methods {
		slices.Sort(m)
	}
	return f
}

// serve stands before each handler: who asks, and may they. It comes before the
// body is read.
func (f *front) serve(rt route) echo.HandlerFunc {
	notReplayed := []string{boolText(false)} // as in standing
	return func(ec echo.Context) error {
		c := callOf(ec)
		if rt.replays {
			c.w.Header()[headerIdempotentReplayed] = notReplayed
		}
		if c.outer != nil {
			return f.serveInner(c, rt)
		}
		if err := f.admitAddress(c); err != nil {
			return err
		}
		if !rt.access.public {
			var err error
			c.who, err = authenticate(c.ctx(), f.who, c.r.Header)
			f.authenticated(c, err)
			if err != nil {
				return err
			}
			if err := f.admitTenant(c); err != nil {
				return err
			}
			if err := rt.access.check(c.who); err != nil {
				return f.denied(c, rt, err)
			}
			if err := f.admitWork(c, rt); err != nil {
				return err
			}
			defer func() { c.turn.Leave() }()
			return f.attempted(c, rt, rt.handle(c))
		}
		return rt.handle(c)
	}
}

// serveInner serves a request that is made for a message of another front. The
// message was admitted and has its turn, and with it its first request; a batch of
// many is many. What each asks for needs a scope of its own.
func (f *front) serveInner(c *call, rt route) error {
	c.who, c.mostBody = c.outer.who, c.outer.mostBody
	first := c.outer.inner.Add(1) == 1
	if first {
		// From then on the message only waits for its other requests, and must not
		// keep a turn that they wait for.
		defer c.outer.turn.Leave()
	} else if err := f.admitTenant(c); err != nil {
		return err
	}
	if err := rt.access.check(c.who); err != nil {
		return f.denied(c, rt, err)
	}
	if !first {
		if err := f.takeTurn(c); err != nil {
			return err
		}
		defer c.turn.Leave()
	}
	return f.attempted(c, rt, rt.handle(c))
}

// allowed lists the methods of a path for the header Allow.
func (f *front) allowed(path string) string { return strings.Join(f.methods[path], ", ") }

// otherMethod stands for every method a route does not have.
const otherMethod = "other"

// known returns the method if the route has it, for labels and logs.
func (f *front) known(method, path string) string {
	if slices.Contains(f.methods[path], method) {
		return method
	}
	return otherMethod
}

func register(r prometheus.Registerer, routes []route) (*metrics, error) {
	m, err := newMetrics(r, routes)
	if err != nil {
		return nil, fmt.Errorf("register metrics of the api: %w", err)
	}
	return m, nil
}
