package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/archive"
	"holdfast.dev/gateway/internal/archive/bucket"
	"holdfast.dev/gateway/internal/catalog"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/due"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/oauth"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/telemetry"
	"holdfast.dev/gateway/internal/tenants"
	"holdfast.dev/gateway/internal/usage"
	"holdfast.dev/gateway/internal/wire"
)

// App is the whole program: what main runs and end-to-end tests boot.
type App struct {
	cfg Config
	log *slog.Logger

	store     ledger.Store
	unwatched ledger.Store    // the same, for steps without audit rows of their own
	archive   archive.Storage // nil: nothing is sealed
	sealing   sealing
	losses    *lossWatch
	ready     *readiness
	directory *tenants.Directory
	catalog   *catalog.Catalog
	registry  *connectors.Registry
	kept      atomic.Bool        // every loaded manifest is in the store
	reloads   prometheus.Counter // that failed
	claims    *dedupe.Claims
	service   *actions.Service
	metrics   *actions.Metrics
	wire      *wire.Client
	tracing   *telemetry.Tracing
	front     *api.Server
	due       *due.Scopes

	public, admin *listener
	newAdminKey   string // made at this start, to be shown once

	failed chan error      // what ended by itself: a listener, the store
	broken <-chan struct{} // closed once the store has failed for good; nil: it does not

	background context.CancelFunc
	jobs       sync.WaitGroup
	close      sync.Once
	closeErr   error
}

// open builds the program and takes its listeners and store. It starts nothing.
func open(ctx context.Context, cfg Config, log *slog.Logger) (app *App, err error) {
	log = slog.New(telemetry.LogHandler(log.Handler()))
	a := &App{cfg: cfg, log: log, failed: make(chan error, 3)}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	keys, err := loadSecrets(cfg)
	if err != nil {
		return nil, err
	}
	a.newAdminKey = keys.newAdmin
	if a.store, err = openStore(ctx, cfg, log); err != nil {
		return nil, err
	}
	if embedded, ok := a.store.(*pebblestore.Store); ok {
		a.broken = embedded.Failed()
	}
	a.losses = newLossWatch(a.store)
	if cfg.lookAt != nil {
		a.store = cfg.lookAt(a.store)
	}
	if a.tracing, err = telemetry.Open(ctx, version()); err != nil {
		return nil, err
	}
	if a.cfg.tracer == nil {
		a.cfg.tracer = a.tracing
	}
	registerer := prometheus.NewRegistry()
	registerer.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	a.store = limits.Shared{Store: newMetered(a.store, registerer)}
	a.losses.store = a.store
	if err := a.openBacklog(); err != nil {
		return nil, err
	}
	a.ready = newReadiness(a.fit, cfg.StoreTimeout, log)
	registerAbout(registerer, cfg, a.ready)
	administered := guarded{Store: a.store, ready: a.ready}
	if a.directory, err = tenants.New(tenants.Config{Store: administered, AdminKeys: keys.adminKeys}); err != nil {
		return nil, err
	}
	if err := a.openSealer(keys.ring, registerer); err != nil {
		return nil, err
	}
	a.catalog = catalog.New(administered)
	if a.registry, err = a.openRegistry(); err != nil {
		return nil, err
	}
	book, err := connections.NewBook(connections.Config{Store: administered, Sealer: keys.ring, Validate: a.checkConnection, MayUncorrelate: a.mayUncorrelate})
	if err != nil {
		return nil, err
	}
	a.metrics = actions.NewMetrics(registerer)
	a.reloads = newReloadFailures(registerer)
	_ = a.Reload(ctx) // what is bad is logged, and the good ones serve
	a.nameConnectors()
	a.due = due.New(a.store, a.directory)
	a.losses.forget = a.due.Forget
	a.claims = dedupe.New(dedupe.Config{
		Store: a.due.Watch(a.store), Lease: cfg.Lease, History: history(cfg),
	})
	cfg.wire.EgressAllow = cfg.EgressAllow
	a.wire = wire.New(cfg.wire)
	journal := a.openTrail()
	limited := limitsOf(cfg, a.store.Now)
	tokenNow := a.store.Now
	if cfg.tokenNow != nil {
		tokenNow = cfg.tokenNow
	}
	if a.service, err = actions.New(actions.Config{
		Limits: limited.Tenants,
		Tokens: oauth.New(oauth.Config{Book: book, Sender: a.wire, Now: tokenNow, Logger: log}),
		Claims: a.claims, Keys: a.directory, Accounts: connections.NewRecent(book), Catalog: a.registry, Sealer: keys.ring, Sender: a.wire, Journal: journal, Ready: a.ready.last,
		Window: cfg.ReplayWindow, MaxResult: cfg.MaxResult, Reconcile: cfg.reconcile, UncheckedConnectors: cfg.UncheckedConnectors, Metrics: a.metrics, Logger: log, Tracer: a.cfg.tracer,
		BreakerRest: cfg.breakerRest,
	}); err != nil {
		return nil, err
	}
	if a.front, err = api.New(api.Config{
		Limits:  limited,
		Actions: a.service, Tenants: a.directory, Connections: book, Connectors: a.registry, Audit: journal, Usage: usage.NewReader(a.store), Proofs: a.sealing.reader,
		Registrar: catalog.NewRegistrar(a.catalog, a.registry, a.pinned(book), log),
		Unsettled: a.claims.Unsettled, Ready: a.ready.now, Gap: a.losses.gap, MCP: a.mcpFront,
		MaxBody: cfg.MaxBody, Window: cfg.ReplayWindow, Metrics: registerer, Gatherer: registerer, Logger: log,
	}); err != nil {
		return nil, err
	}
	if a.public, err = listenPublic(cfg, a.front.Handler(), log); err != nil {
		return nil, err
	}
	if a.admin, err = listen(cfg.AdminListen, a.front.AdminHandler(), log); err != nil {
		return nil, err
	}
	return a, nil
}

func openStore(ctx context.Context, cfg Config, log *slog.Logger) (ledger.Store, error) {
	if cfg.isRedis() {
		s, err := redisstore.Open(ctx, redisOptions(cfg, log))
		if err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
		return s, nil
	}
	s, err := pebblestore.Open(cfg.folder(), pebblestore.Options{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return s, nil
}

// fit says whether a claim may be made now: the store takes it, and its audit
// row has somewhere to go.
func (a *App) fit(ctx context.Context) error {
	if err := a.losses.ready(ctx); err != nil {
		return err
	}
	return a.room()
}

// history is how long ended actions stay listed: disk is cheaper than memory.
func history(cfg Config) time.Duration {
	if cfg.isRedis() {
		return 7 * 24 * time.Hour
	}
	return 30 * 24 * time.Hour
}

// checkConnection is the connector's say on a connection.
func (a *App) checkConnection(s connections.Spec) error {
	loaded, err := a.registry.Lookup(context.Background(), s.Connector)
	if errors.Is(err, connectors.ErrUnknownConnector) {
		return &connections.SpecError{Pointer: "/connector", Reason: "there is no such connector"}
	}
	if err != nil {
		return err
	}
	spec := loaded.Spec()
	if err := spec.CheckBaseURL(s.BaseURL, a.egressAllowed); err != nil {
		return &connections.SpecError{Pointer: "/base_url", Reason: reason(err, connectors.ErrBaseURL)}
	}
	if err := spec.Auth.CheckCredentials(s.Credentials); err != nil {
		return &connections.SpecError{Pointer: "/credentials", Reason: reason(err, connectors.ErrCredentials)}
	}
	var input *connectors.InputError
	if err := spec.ValidateConfig(s.Config); errors.As(err, &input) {
		p := input.Problems[0]
		return &connections.SpecError{Pointer: "/config" + p.Pointer, Reason: p.Reason}
	} else if err != nil {
		return err
	}
	return nil
}

// mayUncorrelate refuses what a connector cannot do.
func (a *App) mayUncorrelate(pin string) error {
	loaded, err := a.registry.Lookup(context.Background(), pin)
	if errors.Is(err, connectors.ErrUnknownConnector) {
		return &connections.SpecError{Pointer: "/correlation", Reason: "its connector is not there to say whether it can do without the marker"}
	}
	if err != nil {
		return err
	}
	for name, action := range loaded.Spec().Actions {
		if action.MarkerFixed {
			return &connections.SpecError{Pointer: "/correlation", Reason: "its connector cannot leave the marker out of the action " + name}
		}
	}
	return nil
}

// reason is an error's sentence without the sentinel's in front.
func reason(err, sentinel error) string {
	return strings.TrimPrefix(err.Error(), sentinel.Error()+": ")
}

// egressAllowed says whether the operator opened a literal host for egress.
// Names are looked up only when they are dialled, and checked again there.
func (a *App) egressAllowed(host string) bool {
	if host == "localhost" {
		host = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	for _, p := range a.cfg.EgressAllow {
		if p.Contains(addr.Unmap()) {
			return true
		}
	}
	return false
}

// Start serves and begins the background work.
func (a *App) Start() error {
	ctx, cancel := context.WithCancel(context.Background())
	a.background = cancel
	if a.ready.now(ctx) == nil {
		a.syncConnectors(ctx) // so that the first request finds its connector
	}
	background := trusted{scopes: a.due, doubt: a.losses.doubt}
	a.jobs.Go(func() { a.ready.watch(ctx) })
	a.jobs.Go(func() { a.watchStore(ctx) })
	a.jobs.Go(func() { a.watchConnectors(ctx) })
	a.jobs.Go(func() { a.saveUses(ctx) })
	a.jobs.Go(func() { a.eraseDeleted(ctx) })
	if a.sealing.sealer != nil {
		a.jobs.Go(func() { a.sealing.sealer.Run(ctx) })
	} else {
		a.jobs.Go(func() { a.countUsage(ctx) })
	}
	a.jobs.Go(func() { background.look(ctx, a.log) })
	a.jobs.Go(func() { actions.Sweep(ctx, a.claims, background, a.metrics, a.log) })
	a.jobs.Go(func() { actions.NewReconciler(a.service, background).Run(ctx) })
	for name, l := range map[string]*listener{"api": a.public, "admin": a.admin} {
		a.log.Info("listening", "listener", name, "addr", l.addr())
		a.jobs.Go(func() {
			if err := l.serve(); err != nil {
				a.failed <- fmt.Errorf("serve %s: %w", name, err)
			}
		})
	}
	return nil
}

// watchStore ends the gateway once its store has failed for good, as on a full
// disk: what is on disk is then unknown to this process, and only one that opens
// the folder anew can find out. Whoever starts gateways starts the next.
func (a *App) watchStore(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-a.broken:
		a.failed <- fmt.Errorf("the gateway ends: %w", a.ready.now(ctx))
	}
}

// URL is the address of the API.
func (a *App) URL() string {
	if a.public.tls != nil {
		return "https://" + a.public.addr()
	}
	return "http://" + a.public.addr()
}

// AdminURL is the address of metrics and health.
func (a *App) AdminURL() string { return "http://" + a.admin.addr() }

// Close drains: no new claims, running calls finish or become held, then
// everything ends. It may be called twice, and without a Start.
func (a *App) Close() error {
	a.close.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), a.cfg.DrainTimeout)
		defer cancel()
		var errs []error
		if a.service != nil {
			a.service.Close(ctx)
		}
		for _, l := range []*listener{a.public, a.admin} {
			if l != nil {
				errs = append(errs, l.close())
			}
		}
		if a.background != nil {
			a.background()
		}
		a.jobs.Wait()
		if a.wire != nil {
			a.wire.Close()
		}
		if b, ok := a.archive.(*bucket.Storage); ok {
			b.CloseIdle()
		}
		if a.tracing != nil {
			if err := a.tracing.Close(); err != nil {
				a.log.Warn("last traces not sent", "error", err)
			}
		}
		if a.store != nil {
			errs = append(errs, a.store.Close())
		}
		a.closeErr = errors.Join(errs...)
	})
	return a.closeErr
}

// listener is an open socket and the server behind it.
type listener struct {
	socket net.Listener
	server *http.Server
	tls    *tls.Config // nil: in clear
}

// listenPublic is listen for the API, over TLS if there is a certificate.
func listenPublic(cfg Config, h http.Handler, log *slog.Logger) (*listener, error) {
	if cfg.TLSCert == "" {
		return listen(cfg.Listen, h, log)
	}
	cert, err := loadCertificate(cfg.TLSCert, cfg.TLSKey, log)
	if err != nil {
		return nil, err
	}
	l, err := listen(cfg.Listen, secureOnly(h), log)
	if err != nil {
		return nil, err
	}
	l.tls = cert.config()
	return l, nil
}

func listen(addr string, h http.Handler, log *slog.Logger) (*listener, error) {
	socket, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &listener{socket: socket, server: api.HTTPServer(h, log)}, nil
}

func (l *listener) addr() string { return l.socket.Addr().String() }

func (l *listener) serve() error {
	var in net.Listener = l.socket
	if l.tls != nil {
		in = tls.NewListener(in, l.tls)
	}
	if err := l.server.Serve(api.Strict(in)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// closePatience is how long answers may take to reach their callers once the
// calls themselves have ended. It is longer than the five seconds that net/http
// gives a connection on which nothing has come yet (a client or a load balancer
// that dialled ahead), so that such a one does not make a good end look bad.
const closePatience = 8 * time.Second

func (l *listener) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	if err := l.server.Shutdown(ctx); err != nil {
		err = errors.Join(err, l.server.Close())
		return fmt.Errorf("close listener: %w", err)
	}
	if err := l.socket.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close listener: %w", err)
	}
	return nil
}
