package api

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/loss"
)

// Actions is the one path of a write and the looks at what went along it.
type Actions interface {
	writer
	reader
	settler
	tester
}

// Tenants says who there is and whose an API key is.
type Tenants interface {
	authenticator
	directory
	keyring
}

// Config is what a Server is made of. All of it is required unless it says
// otherwise.
type Config struct {
	Actions     Actions
	Tenants     Tenants
	Connections connectionBook
	// Unsettled says whether a connection has writes in flight or held; dedupe
	// knows.
	Unsettled  func(ctx context.Context, scope ledger.Scope, connectionID string) (bool, error)
	Connectors catalog
	Registrar  registrar
	Audit      auditor
	Proofs     prover
	Usage      meter

	// Ready says whether a claim made now would be safe; the error says in plain
	// words why not, and is shown on the admin listener.
	Ready func(context.Context) error

	// Gap is the time in which writes may have been made that the store does not
	// know, nil for none; nil: there never is one. It is asked on every answer.
	Gap func() *loss.Gap

	Limits  Limits
	MaxBody int64         // bytes of a request body
	Window  time.Duration // replay window of an action that names none

	Metrics  prometheus.Registerer
	Gatherer prometheus.Gatherer // shown as /metrics
	Logger   *slog.Logger

	// MCP makes the front that serves /mcp. It makes its calls as requests to api,
	// in the context of the message they are for.
	MCP func(api http.Handler) http.Handler

	Now func() time.Time // nil: time.Now
}

func (c *Config) validate() error {
	var missing []error
	for _, dep := range []struct {
		name string
		ok   bool
	}{
		{"Actions", c.Actions != nil},
		{"Tenants", c.Tenants != nil},
		{"Connections", c.Connections != nil},
		{"Unsettled", c.Unsettled != nil},
		{"Connectors", c.Connectors != nil},
		{"Registrar", c.Registrar != nil},
		{"Audit", c.Audit != nil},
		{"Proofs", c.Proofs != nil},
		{"Usage", c.Usage != nil},
		{"Ready", c.Ready != nil},
		{"MaxBody", c.MaxBody > 0},
		{"Window", c.Window > 0},
		{"Metrics", c.Metrics != nil},
		{"Gatherer", c.Gatherer != nil},
		{"Logger", c.Logger != nil},
		{"MCP", c.MCP != nil},
	} {
		if !dep.ok {
			missing = append(missing, errors.New("api: "+dep.name+" is missing"))
		}
	}
	return errors.Join(missing...)
}

// Server answers the public API and, apart from it, the host's own calls. It
// opens no listener and starts nothing.
type Server struct {
	public *front
	admin  *front
}

// handlers are one for each noun of the API.
type handlers struct {
	do          doHandler
	actions     actionsHandler
	tenants     tenantsHandler
	keys        keysHandler
	connections connectionsHandler
	connectors  connectorsHandler
	audit       auditHandler
	tools       toolsHandler
	usage       usageHandler
	proof       proofHandler
	mcp         mcpHandler
}

// New checks that nothing is missing and puts the routes together. The error
// names everything that is missing.
func New(c Config) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Gap == nil {
		c.Gap = func() *loss.Gap { return nil }
	}
	h := &handlers{
		do:          doHandler{writes: c.Actions, maxBody: c.MaxBody, gap: c.Gap},
		actions:     actionsHandler{reads: c.Actions, settles: c.Actions, maxBody: c.MaxBody},
		connections: connectionsHandler{tests: c.Actions, book: c.Connections, unsettled: c.Unsettled, maxBody: c.MaxBody},
		connectors:  connectorsHandler{catalog: c.Connectors, registrar: c.Registrar, window: c.Window},
		audit:       auditHandler{log: c.Audit},
		proof:       newProofHandler(c.Proofs),
		usage:       usageHandler{meter: c.Usage, now: c.Now},
		mcp:         mcpHandler{maxBody: c.MaxBody},
	}
	h.tools = toolsHandler{book: c.Connections, connectors: &h.connectors}
	h.tenants = tenantsHandler{directory: c.Tenants, actions: &h.actions, audit: &h.audit, usage: &h.usage, proof: &h.proof, maxBody: c.MaxBody}
	h.keys = keysHandler{keys: c.Tenants, tenants: &h.tenants, maxBody: c.MaxBody}
	public, admin := h.routes(), newAdminHandler(c.Ready, c.Gatherer).routes()
	m, err := register(c.Metrics, slices.Concat(public, admin))
	if err != nil {
		return nil, err
	}
	server := &Server{
		public: newFront(c.Logger, c.Now, m, c.Tenants, c.Audit, c.Limits, public),
		admin:  newFront(c.Logger, c.Now, m, nil, nil, Limits{}, admin),
	}
	h.mcp.front = c.MCP(inner(server.public.echo))
	server.admin.level = slog.LevelDebug // probes come every few seconds
	return server, nil
}

// Handler serves the public API.
func (s *Server) Handler() http.Handler { return s.public.echo }

// AdminHandler serves /healthz, /readyz and /metrics. It asks for no key, so
// its listener must not be public.
func (s *Server) AdminHandler() http.Handler { return s.admin.echo }

// Limits of a client's connection. There is no write time-out and none for a
// whole request: a vendor may work for ten minutes. Reading a body and taking an
// answer have time-outs of their own (call.go).
const (
	readHeaderTimeout = 10 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 32 << 10
)

// HTTPServer returns a server for one of the handlers, with the limits that a
// listener facing strangers needs. The caller serves and shuts it down.
func HTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}
