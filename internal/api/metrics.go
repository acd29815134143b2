package api

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/limits"
)

// metrics counts requests and problems. Labels come from the tables of routes
// and codes, never from a client.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	problems *prometheus.CounterVec
	limited  *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer, routes []route) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_http_requests_total", Help: "Requests by route and class of status: 2xx, 4xx or 5xx.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_http_request_duration_seconds", Help: "Time from a request's headers to its answer.",
			Buckets: []float64{.001, .005, .02, .1, .5, 1, 5, 30, 60, 300, 900},
		}, []string{"method", "route"}),
		problems: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_problems_total", Help: "Answers that were no success, by code.",
		}, []string{"code"}),
	}
	m.limited = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "holdfast_requests_limited_total", Help: "Requests refused before anything was done for them: by the limit of a tenant, or of an address without a good key.",
	}, []string{"limit"})
	for _, limit := range []string{limits.Requests, limits.AtOnce, limitAddress} {
		m.limited.WithLabelValues(limit)
	}
	for code := range kinds {
		m.problems.WithLabelValues(string(code))
	}
	m.route(otherMethod, "")
	for _, rt := range routes {
		m.route(rt.method, rt.path)
		m.route(otherMethod, rt.path)
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.problems, m.limited} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// route makes the series of a route present from zero.
func (m *metrics) route(method, path string) {
	for _, class := range []int{2, 4, 5} {
		m.requests.WithLabelValues(method, path, statusClass(class*100))
	}
	m.duration.WithLabelValues(method, path)
}

func statusClass(status int) string { return strconv.Itoa(status/100) + "xx" }

func (m *metrics) request(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, statusClass(status)).Inc()
	m.duration.WithLabelValues(method, route).Observe(took.Seconds())
}

func (m *metrics) problem(code actions.Code) {
	m.problems.WithLabelValues(string(code)).Inc()
}
