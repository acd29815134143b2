package actions

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/wire"
)

// Accounts is what the path of a write needs of a tenant's connections. Recall
// may remember one; a step that rests on it expects its version, and Forget has
// it read anew.
type Accounts interface {
	Recall(ctx context.Context, scope ledger.Scope, name string) (conn connections.Connection, recalled bool, err error)
	Forget(scope ledger.Scope, name string)
	Get(ctx context.Context, scope ledger.Scope, name string) (connections.Connection, error)
	Credentials(conn connections.Connection) (map[string]string, error)
}

// Tokens has access tokens for connections whose connector wants OAuth.
type Tokens interface {
	Access(ctx context.Context, conn connections.Connection, auth connectors.Auth, creds map[string]string) (string, error)
	Rejected(conn connections.Connection, access string)
}

// Catalog finds connectors: the version a new write on a pin uses, and the
// exact one an earlier write was claimed with.
type Catalog interface {
	Lookup(ctx context.Context, pin string) (connectors.Loaded, error)
	Exact(ctx context.Context, sum connectors.Sum) (connectors.Connector, error)
}

// Keys forgets what it remembers of a caller's key, so that the next request
// reads it afresh.
type Keys interface {
	Forget(keyID string)
}

// Sealer seals what is kept of a write and makes the keyed hashes that stand
// for it at a vendor.
type Sealer interface {
	Seal(plaintext []byte, aad ...[]byte) []byte
	Open(sealed []byte, aad ...[]byte) ([]byte, error)
	MAC(label string, fields ...[]byte) [32]byte
}

// Sender is the wire.
type Sender interface {
	Send(ctx context.Context, req wire.Request, permit wire.Permit) wire.Exchange
}

// Journal appends audit rows that belong to no transition (refusals before a
// claim).
type Journal interface {
	Append(ctx context.Context, scope ledger.Scope, rows ...audit.Row) error
}

// Config is what a Service is made of. All of it is required unless it says
// otherwise.
type Config struct {
	Claims   *dedupe.Claims
	Keys     Keys
	Accounts Accounts
	Catalog  Catalog
	Sealer   Sealer
	Sender   Sender
	Journal  Journal

	// Tokens is asked where a connector wants OAuth; nil: no write is sent there.
	Tokens Tokens

	// Limits bound what a tenant may use; nil: nothing does.
	Limits *limits.Limiter

	// Ready says whether a claim made now would be safe. It must not block: it is
	// asked on every call.
	Ready func() error

	Window    time.Duration // replay window of an action that names none
	MaxResult int64         // bytes of a result that is kept

	// BreakerRest is how long an open breaker rests before it lets one probe by;
	// 0: ten seconds.
	BreakerRest time.Duration

	Reconcile Reconcile // zero: DefaultReconcile
	// UncheckedConnectors are names of connectors whose held writes the gateway
	// does not check by itself; a person's checks go on.
	UncheckedConnectors []string

	Metrics *Metrics
	Logger  *slog.Logger
	Tracer  trace.TracerProvider // nil, or one that does nothing: no tracing

	// Boot reads a clock that counts while the machine or the process is
	// suspended, and returns math.MaxInt64 if it cannot be read, which refuses
	// every permit; nil: the system's.
	Boot func() time.Duration
}

// Service is the path of a write. It may be used from many goroutines.
type Service struct {
	claims   *dedupe.Claims
	keys     Keys
	accounts Accounts
	catalog  Catalog
	sealer   Sealer
	sender   Sender
	journal  Journal
	limits   *limits.Limiter
	tokens   Tokens
	ready    func() error

	window    time.Duration
	maxResult int64
	reconcile Reconcile
	unchecked []string

	metrics  *Metrics
	log      *slog.Logger
	tracer   trace.Tracer // nil: no tracing
	boot     func() time.Duration
	breakers *breakers
	budgets  *budgets
	doubts   doubts
	waiting  waiting

	// Calls to vendors outlive their callers: they run on base, which ends when
	// the drain's patience does.
	base    context.Context //nolint:containedctx // the life of the service, not of a call
	stop    context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New returns a service. It starts nothing; Close ends it.
func New(c Config) (*Service, error) {
	for name, missing := range map[string]bool{
		"claims": c.Claims == nil, "keys": c.Keys == nil, "accounts": c.Accounts == nil, "catalog": c.Catalog == nil,
		"sealer": c.Sealer == nil, "sender": c.Sender == nil, "journal": c.Journal == nil, "ready": c.Ready == nil,
		"metrics": c.Metrics == nil, "logger": c.Logger == nil,
		"window": c.Window <= 0, "max result": c.MaxResult <= 0,
	} {
		if missing {
			return nil, errors.New("actions: " + name + " is required")
		}
	}
	if c.BreakerRest <= 0 {
		c.BreakerRest = breakerRest
	}
	if c.Boot == nil {
		c.Boot = bootClock
	}
	if c.Reconcile == (Reconcile{}) {
		c.Reconcile = DefaultReconcile()
	}
	brk := newBreakers(c.BreakerRest)
	brk.opened = c.Metrics.opened.Inc
	c.Metrics.breakers.Store(brk)
	base, stop := context.WithCancel(context.Background())
	s := &Service{
		claims: c.Claims, keys: c.Keys, accounts: c.Accounts, catalog: c.Catalog, sealer: c.Sealer,
		sender: c.Sender, journal: c.Journal, limits: c.Limits, tokens: c.Tokens, ready: c.Ready,
		window: c.Window, maxResult: c.MaxResult, reconcile: c.Reconcile, unchecked: c.UncheckedConnectors,
		metrics: c.Metrics, log: c.Logger,
		boot: c.Boot, breakers: brk, budgets: newBudgets(c.Boot),
		base: base, stop: stop,
	}
	if c.Tracer != nil {
		s.tracer = c.Tracer.Tracer("holdfast.dev/gateway/internal/actions")
	}
	if _, off := s.tracer.(noop.Tracer); off {
		s.tracer = nil
	}
	return s, nil
}

// begin takes a place among the running calls; false once the service drains.
func (s *Service) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// settlePatience is how long Close waits, after it has cut the calls that were
// still running, for their outcomes to be stored.
const settlePatience = 3 * time.Second

// Close drains: no new claims from now on. Calls that run may finish until ctx
// ends; then they are cut, which leaves their writes held, and the store gets a
// moment to take that. It may be called twice.
func (s *Service) Close(ctx context.Context) {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()

	done := make(chan struct{})
	go func() { s.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		s.stop()
		patience := time.NewTimer(settlePatience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
			s.log.Warn("drain ended with outcomes not stored; their writes become held when their leases lapse")
		}
	}
	s.stop()
}
