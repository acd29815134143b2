package actions

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/limits"
)

// Metrics are the counters of the path of a write. Labels come from fixed sets:
// verdicts, outcomes and the connectors that are loaded, never from callers.
type Metrics struct {
	claims      *prometheus.CounterVec
	outcomes    *prometheus.CounterVec
	limited     *prometheus.CounterVec
	do          prometheus.Histogram
	vendor      *prometheus.HistogramVec
	held        prometheus.Gauge
	heldAge     prometheus.Gauge
	opened      prometheus.Counter
	breakers    atomic.Pointer[breakers] // of the service that counts here
	leaseLost   prometheus.Counter
	lateAnswers prometheus.Counter
	resolved    prometheus.Counter
	swept       prometheus.Counter
	lapsed      prometheus.Counter
	recovered   prometheus.Counter
	checks      *prometheus.CounterVec
}

// NewMetrics registers the metrics; every series with a fixed label is present
// from zero.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_claims_total", Help: "Claims by verdict.",
		}, []string{"verdict"}),
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_outcomes_total", Help: "Vendor calls by connector and outcome.",
		}, []string{"connector", "outcome"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_writes_limited_total", Help: "New writes and checks refused by a limit of their tenant.",
		}, []string{"limit"}),
		do: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_do_duration_seconds", Help: "Time from a do to its answer, replays and refusals included.",
			Buckets: []float64{.001, .005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
		}),
		held: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_held_writes", Help: "Writes of all tenants whose outcome is unknown, counted every five seconds. Every gateway counts all of them.",
		}),
		heldAge: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "holdfast_held_oldest_age_seconds", Help: "Time since the oldest held write was claimed; 0: none is held.",
		}),
		opened: counter("holdfast_breaker_opened_total", "Times that the circuit breaker of a connection opened."),
		vendor: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_vendor_duration_seconds", Help: "Time of vendor calls.",
			Buckets: []float64{.005, .02, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}, []string{"connector"}),
		leaseLost:   counter("holdfast_lease_lost_total", "Leases lost by a running call."),
		lateAnswers: counter("holdfast_late_answers_total", "Answers of vendors or checks that came after a write was settled otherwise and changed nothing."),
		resolved:    counter("holdfast_resolved_total", "Held writes resolved by an operator."),
		swept:       counter("holdfast_swept_total", "Writes held or lapsed because of the clock."),
		lapsed:      counter("holdfast_lapsed_total", "Held writes whose time ran out with their outcome unknown."),
		recovered:   counter("holdfast_recovered_total", "Writes of a lost owner that a resend settled."),
		checks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_checks_total", Help: "Checks of held writes by who asked for them and what they came to.",
		}, []string{"by", "verdict"}),
	}
	for _, v := range []dedupe.Verdict{dedupe.Acquired, dedupe.Replayed, dedupe.Busy, dedupe.OnHold, dedupe.KeyReused, dedupe.Twin, dedupe.WouldAcquire} {
		m.claims.WithLabelValues(string(v))
	}
	m.claims.WithLabelValues(verdictStoreError)
	for _, limit := range []string{limits.Writes, limits.Calls, limits.NewWrites} {
		m.limited.WithLabelValues(limit)
	}
	for _, by := range []string{"operator", "reconciler"} {
		for _, verdict := range []string{verdictSucceeded, verdictNotPerformed, verdictStillUnknown, verdictConflict, "error"} {
			m.checks.WithLabelValues(by, verdict)
		}
	}
	r.MustRegister(m.breakersIn("open"), m.breakersIn("half_open"))
	r.MustRegister(m.do, m.held, m.heldAge, m.opened, m.claims, m.outcomes, m.limited, m.vendor, m.leaseLost, m.lateAnswers, m.resolved, m.swept, m.lapsed, m.recovered, m.checks)
	return m
}

// Connectors makes the series of loaded connectors present from zero.
func (m *Metrics) Connectors(names ...string) {
	for _, name := range names {
		for _, outcome := range []string{"succeeded", "refused", "retryable", "unknown", "not_sent"} {
			m.outcomes.WithLabelValues(name, outcome)
		}
		m.vendor.WithLabelValues(name)
	}
}

// breakersIn counts the connections whose breaker is in a state, when it is asked.
func (m *Metrics) breakersIn(state string) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "holdfast_breakers", Help: "Connections whose circuit breaker is not closed, by its state.",
		ConstLabels: prometheus.Labels{"state": state},
	}, func() float64 {
		b := m.breakers.Load()
		if b == nil {
			return 0
		}
		return float64(b.count(state))
	})
}

// holding is what all scopes together hold.
func (m *Metrics) holding(held int, oldest time.Duration) {
	m.held.Set(float64(held))
	m.heldAge.Set(oldest.Seconds())
}

func (m *Metrics) outcome(connector, outcome string) {
	m.outcomes.WithLabelValues(connector, outcome).Inc()
}

func (m *Metrics) checked(by, verdict string) { m.checks.WithLabelValues(by, verdict).Inc() }

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
