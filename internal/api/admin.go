package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"holdfast.dev/gateway/internal/actions"
)

// adminHandler serves what is for the host alone, on a listener of its own.
type adminHandler struct {
	ready   func(context.Context) error
	metrics http.Handler
}

func newAdminHandler(ready func(context.Context) error, g prometheus.Gatherer) *adminHandler {
	return &adminHandler{ready: ready, metrics: promhttp.HandlerFor(g, promhttp.HandlerOpts{})}
}

func (h *adminHandler) routes() []route {
	return []route{
		{method: http.MethodGet, path: "/healthz", access: anyone(), handle: h.healthz},
		{method: http.MethodGet, path: "/readyz", access: anyone(), handle: h.readyz},
		{method: http.MethodGet, path: "/metrics", access: anyone(), handle: h.scrape},
	}
}

// healthz says that the process runs. It asks nothing of the store: a restart
// does not mend one.
func (h *adminHandler) healthz(c *call) error {
	return c.json(http.StatusOK, []byte(`{"status":"ok"}`))
}

// readyz says whether a claim made now would be safe, and if not, why: the
// listener is the host's, and the reason is what the host has to mend.
func (h *adminHandler) readyz(c *call) error {
	err := h.ready(c.ctx())
	if err == nil {
		return c.json(http.StatusOK, []byte(`{"status":"ready"}`))
	}
	var action *actions.Error
	if errors.As(err, &action) {
		return err
	}
	p := refuse(actions.StoreUnavailable, "Not ready: "+err.Error()+".")
	p.next = actions.AskOperator
	return p.because(err)
}

func (h *adminHandler) scrape(c *call) error {
	h.metrics.ServeHTTP(c.w, c.r)
	return nil
}
