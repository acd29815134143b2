package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
)

func TestStandingHeaders(t *testing.T) {
	g := newGateway(t)
	seen := map[string]bool{}
	for _, path := range []string{"/openapi.yaml", "/v1/actions/x", "/nowhere", "/v1/do"} {
		a := g.send("GET", path, "", with("Request-Id", "req_00000000000000000000000000"), with("Authorization"))
		id := a.header.Get("Request-Id")
		require.Regexp(t, `^req_[0-9A-HJKMNP-TV-Z]{26}$`, id)
		require.NotEqual(t, "req_00000000000000000000000000", id)
		at, err := ulid.ParseStrict(id[len("req_"):])
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at.Timestamp(), time.Minute, "ids sort by time")
		require.False(t, seen[id], "each request has its own")
		seen[id] = true
		require.Equal(t, "no-store", a.header.Get("Cache-Control"))
		require.Equal(t, "nosniff", a.header.Get("X-Content-Type-Options"))
		require.Equal(t, "default-src 'none'; frame-ancestors 'none'", a.header.Get("Content-Security-Policy"))
		require.Equal(t, "no-referrer", a.header.Get("Referrer-Policy"))
		require.Equal(t, "same-origin", a.header.Get("Cross-Origin-Resource-Policy"))
		require.Empty(t, a.header.Get("Server"))
	}
}

func TestUnknownPaths(t *testing.T) {
	g := newGateway(t)
	for _, path := range []string{"/", "/v1", "/v1/do/", "/v1//do", "/V1/do", "/v1/actions/", "/v1/actions/a/b"} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			a := g.send(method, path, "")
			require.Equal(t, 404, a.status, "%s %s", method, path)
			require.Equal(t, "not_found", a.code())
		}
	}
}

// What is for the host alone is not on the public listener.
func TestAdminCallsAreNotPublic(t *testing.T) {
	g := newGateway(t)
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		rec := httptest.NewRecorder()
		g.public.ServeHTTP(rec, httptest.NewRequest("GET", path, nil))
		require.Equal(t, 404, rec.Code, path)
	}
}

func TestOtherMethods(t *testing.T) {
	g := newGateway(t)
	for _, row := range []struct{ path, allow string }{
		{"/v1/do", "POST"},
		{"/v1/actions", "GET"},
		{"/v1/actions/act_x", "GET"},
		{"/v1/connections/billing", "DELETE, GET, PUT"},
		{"/v1/tenants", "GET, POST"},
		{"/openapi.yaml", "GET"},
	} {
		for _, method := range []string{"OPTIONS", "HEAD", "TRACE", "CONNECT", "LOCK", "PATCH", "post"} {
			rec := httptest.NewRecorder()
			g.public.ServeHTTP(rec, httptest.NewRequest(method, row.path, nil))
			require.Equal(t, 405, rec.Code, "%s %s", method, row.path)
			require.Equal(t, row.allow, rec.Header().Get("Allow"), "%s %s", method, row.path)
			if method != "HEAD" {
				require.Contains(t, rec.Body.String(), `"code":"method_not_allowed"`)
			}
		}
	}
}

// Names and ids hold no slash, escaped or not, and no bad escape is one.
func TestPathSegments(t *testing.T) {
	g := newGateway(t)
	for _, path := range []string{"/v1/actions/a%2Fb", "/v1/connections/a%2fb", "/v1/connections/%2e%2e%2f", "/v1/connections/a/b"} {
		require.Equal(t, "not_found", g.send("GET", path, "").code(), path)
	}
}

func TestPanicIsLoggedAndNotShown(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		panic("wires crossed: password=hunter2")
	}
	a := g.send("POST", "/v1/do", smallest)
	require.Equal(t, "internal", a.code())
	require.Equal(t, "false", a.header.Get("Idempotent-Replayed"))
	require.NotContains(t, string(a.body), "wires")
	lines := g.logged()
	require.Len(t, lines, 2)
	require.Equal(t, "ERROR", lines[0]["level"])
	require.Contains(t, lines[0]["error"], "wires crossed")
	require.Contains(t, lines[0]["stack"], "middleware_test.go")
	require.Equal(t, a.header.Get("Request-Id"), lines[0]["request_id"])

	// The next request is served.
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{}`)}, nil
	}
	require.Equal(t, 200, g.send("POST", "/v1/do", smallest).status)
}

func TestAbortedHandlerStaysAborted(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) { panic(http.ErrAbortHandler) }
	req := httptest.NewRequest("POST", "/v1/do", strings.NewReader(smallest))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+tenantKey)
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { g.public.ServeHTTP(httptest.NewRecorder(), req) })
}

func TestUnknownErrorsAreInternal(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{}, errors.New("disk on fire at /var/lib")
	}
	a := g.send("POST", "/v1/do", smallest)
	require.Equal(t, "internal", a.code())
	require.NotContains(t, string(a.body), "disk on fire")
	require.Contains(t, g.logs.String(), "disk on fire", "what is not shown is logged")
}

// One line for each request: who, what, how long; no body, key or path as sent.
func TestAccessLog(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{}, &actions.Error{Code: actions.OutcomeUnknown, Record: succeeded()}
	}
	a := g.send("POST", "/v1/do?token=sentinel-query", `{"connection":"billing","action":"x","body":{"a":"sentinel-body"},"idempotency_key":"sentinel-key"}`,
		with("X-Forwarded-For", "203.0.113.9"), with("X-Real-Ip", "203.0.113.9"),
		func(r *http.Request) { r.RemoteAddr = "10.0.0.9:4711" })
	require.Equal(t, 423, a.status)
	lines := g.logged()
	require.Len(t, lines, 1)
	line := lines[0]
	require.Equal(t, "INFO", line["level"])
	require.Equal(t, "request", line["msg"])
	for name, want := range map[string]any{
		"request_id": a.header.Get("Request-Id"), "method": "POST", "route": "/v1/do", "status": json.Number("423"),
		"code": "outcome_unknown", "tenant": "acme", "key_id": "k1", "action_id": actionID, "remote": "10.0.0.9",
	} {
		require.Equal(t, want, line[name], name)
	}
	require.Contains(t, line, "took")
	for _, secret := range []string{"sentinel", tenantKey, "203.0.113.9"} {
		require.NotContains(t, g.logs.String(), secret)
	}

	g.logs.Reset()
	g.send("GET", "/sentinel-path", "")
	require.NotContains(t, g.logs.String(), "sentinel")
}

func (g *gateway) logged() []map[string]any {
	g.t.Helper()
	var lines []map[string]any
	for _, text := range strings.Split(strings.TrimSpace(g.logs.String()), "\n") {
		line := map[string]any{}
		dec := json.NewDecoder(strings.NewReader(text))
		dec.UseNumber()
		require.NoError(g.t, dec.Decode(&line))
		lines = append(lines, line)
	}
	return lines
}

func TestMetrics(t *testing.T) {
	g := newGateway(t)
	require.Equal(t, 35, testutil.CollectAndCount(g.reg, "holdfast_problems_total"), "every code is there from zero")

	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{}, &actions.Error{Code: actions.InFlight}
	}
	g.send("POST", "/v1/do", smallest)
	g.send("GET", "/v1/tenants/some-id-from-a-client", "")
	g.send("GET", "/no/such/path", "")
	g.send("LOCK", "/v1/do", "")
	families, err := g.reg.Gather()
	require.NoError(t, err)
	counted := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); f.GetName() == "holdfast_http_requests_total" && n > 0 {
				labels := m.GetLabel()
				counted[labels[0].GetValue()+" "+labels[1].GetValue()+" "+labels[2].GetValue()] = n
			}
		}
	}
	require.Equal(t, map[string]float64{
		"GET /v1/tenants/:tenant 4xx": 1, "POST /v1/do 4xx": 1, "other  4xx": 1, "other /v1/do 4xx": 1,
	}, counted)
}
