package main

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast.dev/gateway/internal/ledger"
)

// registerAbout tells which build runs, on which kind of store, and whether that
// may be claimed in.
func registerAbout(r prometheus.Registerer, cfg Config, ready *readiness) {
	kind, ack := "embedded", "sync"
	if cfg.isRedis() {
		kind, ack = "redis", firstOf(cfg.RedisAck, "auto")
	}
	store := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_store_info", Help: "Always 1; its labels name the kind of store and what a claim waits for before anything is sent.",
		ConstLabels: prometheus.Labels{"kind": kind, "ack": ack},
	})
	store.Set(1)
	r.MustRegister(store)
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "holdfast_build_info", Help: "Always 1; its labels name the build.",
		ConstLabels: prometheus.Labels{"version": version(), "goversion": runtime.Version()},
	})
	build.Set(1)
	r.MustRegister(build, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_store_ready", Help: "1 while claims may be made in the store, 0 while nothing new is written.",
	}, func() float64 {
		if ready.last() != nil {
			return 0
		}
		return 1
	}))
}

// metered is a store whose calls are timed and whose failures are counted.
type metered struct {
	ledger.Store
	took   *prometheus.HistogramVec
	failed *prometheus.CounterVec
}

func newMetered(s ledger.Store, r prometheus.Registerer) *metered {
	m := &metered{
		Store: s,
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_store_duration_seconds", Help: "Time of calls to the store.",
			Buckets: []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"op"}),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_store_errors_total", Help: "Calls to the store that failed. Such a claim sends nothing.",
		}, []string{"op"}),
	}
	for _, op := range []string{"apply", "read", "entries", "rows", "trim", "trim_rows", "ready"} {
		m.took.WithLabelValues(op)
		m.failed.WithLabelValues(op)
	}
	r.MustRegister(m.took, m.failed)
	return m
}

// count is deferred. A caller that hung up is no failure of the store.
func (m *metered) count(op string, started time.Time, err *error) {
	m.took.WithLabelValues(op).Observe(time.Since(started).Seconds())
	if *err != nil && !errors.Is(*err, context.Canceled) {
		m.failed.WithLabelValues(op).Inc()
	}
}

func (m *metered) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (res ledger.Result, err error) {
	defer m.count("apply", time.Now(), &err)
	return m.Store.Apply(ctx, scope, step)
}

func (m *metered) Read(ctx context.Context, scope ledger.Scope, fetch ...ledger.Fetch) (snap ledger.Snapshot, err error) {
	defer m.count("read", time.Now(), &err)
	return m.Store.Read(ctx, scope, fetch...)
}

func (m *metered) Entries(ctx context.Context, scope ledger.Scope, r ledger.EntryRange) (list []ledger.Entry, err error) {
	defer m.count("entries", time.Now(), &err)
	return m.Store.Entries(ctx, scope, r)
}

func (m *metered) Rows(ctx context.Context, scope ledger.Scope, r ledger.RowRange) (rows []ledger.Row, err error) {
	defer m.count("rows", time.Now(), &err)
	return m.Store.Rows(ctx, scope, r)
}

func (m *metered) Trim(ctx context.Context, scope ledger.Scope, index ledger.Index, before time.Time) (err error) {
	defer m.count("trim", time.Now(), &err)
	return m.Store.Trim(ctx, scope, index, before)
}

func (m *metered) TrimRows(ctx context.Context, scope ledger.Scope, upTo string) (err error) {
	defer m.count("trim_rows", time.Now(), &err)
	return m.Store.TrimRows(ctx, scope, upTo)
}

func (m *metered) Ready(ctx context.Context) (err error) {
	defer m.count("ready", time.Now(), &err)
	return m.Store.Ready(ctx)
}
