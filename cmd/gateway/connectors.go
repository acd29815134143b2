package main

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/builtin"
	"holdfast.dev/gateway/internal/connectors/manifest"
	"holdfast.dev/gateway/internal/ledger"
)

func newReloadFailures(r prometheus.Registerer) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "holdfast_connector_reload_failures_total",
		Help: "Times that connectors from the folder or the register were refused or left out, at start included; the log says why.",
	})
	r.MustRegister(c)
	return c
}

// openRegistry loads what is built in. The folder is read when the metrics are
// there, the register when the store is.
func (a *App) openRegistry() (*connectors.Registry, error) {
	builtins, err := builtin.Manifests()
	if err != nil {
		return nil, err
	}
	compile := a.cfg.compile
	if compile == nil {
		compiler, err := manifest.NewCompiler()
		if err != nil {
			return nil, err
		}
		compile = compiler.Compile
	}
	return connectors.NewRegistry(connectors.Options{
		Compile: compile, Builtin: builtins, Dir: a.cfg.ConnectorsDir, Keeper: a.catalog, Shelf: a.catalog,
	})
}

// Reload reads the folder of connectors again. If anything in it is bad, what
// is loaded stays, the log says which file and line, and a metric counts it; the
// first time the good ones are taken, and the last version kept of the others
// still answers what was written with it.
func (a *App) Reload(ctx context.Context) error {
	err := a.registry.Reload(ctx)
	if err != nil {
		a.reloads.Inc()
		a.log.ErrorContext(ctx, "connectors not loaded", "error", err)
		return err
	}
	a.kept.Store(false)
	a.log.InfoContext(ctx, "connectors loaded", "connectors", len(a.registry.Specs()))
	if a.ready.last() == nil {
		a.syncConnectors(ctx)
	}
	return nil
}

// syncEvery is how often the store is asked for what was registered at another
// replica, and to keep the manifests it has not confirmed; until it has, nothing
// new is written with them.
const syncEvery = time.Second

func (a *App) watchConnectors(ctx context.Context) {
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if a.ready.last() == nil {
				a.syncConnectors(ctx)
			}
		}
	}
}

// syncConnectors exchanges manifests with the store, both ways.
func (a *App) syncConnectors(ctx context.Context) {
	if err := a.registry.Refresh(ctx); err != nil && ctx.Err() == nil {
		if !errors.Is(err, ledger.ErrUnavailable) {
			a.reloads.Inc()
		}
		a.log.ErrorContext(ctx, "registered connectors not all loaded", "error", err)
	}
	a.nameConnectors()
	if a.kept.Load() {
		return
	}
	if err := a.registry.Keep(ctx); err == nil {
		a.kept.Store(true)
	} else if ctx.Err() == nil {
		a.log.WarnContext(ctx, "connectors not kept yet; nothing new is written with them", "error", err)
	}
}

// nameConnectors makes the series of all loaded connectors start at zero.
func (a *App) nameConnectors() {
	for _, spec := range a.registry.Specs() {
		a.metrics.Connectors(spec.Name)
	}
}

// pinned says whether any tenant has a connection to name@major.
func (a *App) pinned(book *connections.Book) func(context.Context, string) (bool, error) {
	return func(ctx context.Context, pin string) (bool, error) {
		found := false
		err := a.directory.Scopes(ctx, func(scope ledger.Scope) error {
			for cursor := ""; !found; {
				page, next, err := book.List(ctx, scope, cursor, 200)
				if err != nil {
					return err
				}
				for _, c := range page {
					found = found || c.Connector == pin
				}
				if cursor = next; cursor == "" {
					break
				}
			}
			return nil
		})
		return found, err
	}
}
