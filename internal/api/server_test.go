package api_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/tenants"
)

func TestNewNamesEverythingThatIsMissing(t *testing.T) {
	_, err := api.New(api.Config{})
	for _, name := range []string{"Actions", "Tenants", "Connections", "Unsettled", "Connectors", "Audit", "Ready", "MaxBody", "Window", "Metrics", "Gatherer", "Logger"} {
		require.ErrorContains(t, err, "api: "+name+" is missing")
	}
	g := newGateway(t)
	_, err = api.New(g.config())
	require.ErrorContains(t, err, "register metrics", "twice on one registry")
}

func TestServerLimits(t *testing.T) {
	s := api.HTTPServer(http.NotFoundHandler(), slog.New(slog.DiscardHandler))
	require.Positive(t, s.ReadHeaderTimeout)
	require.Positive(t, s.IdleTimeout)
	require.Positive(t, s.MaxHeaderBytes)
	require.NotNil(t, s.ErrorLog)
	require.Zero(t, s.WriteTimeout, "a vendor may work for ten minutes")
	require.Zero(t, s.ReadTimeout, "it would end the context of a long call")
}

// connection records what is done with the client's connection.
type clientConnection struct {
	*httptest.ResponseRecorder
	read, write time.Time
	done        []string
}

func (c *clientConnection) SetReadDeadline(t time.Time) error {
	c.read = t
	return nil
}

func (c *clientConnection) SetWriteDeadline(t time.Time) error {
	c.write = t
	c.done = append(c.done, map[bool]string{true: "lift", false: "bound"}[t.IsZero()])
	return nil
}

func (c *clientConnection) Write(p []byte) (int, error) {
	c.done = append(c.done, "write")
	return c.ResponseRecorder.Write(p)
}

func (c *clientConnection) FlushError() error {
	c.done = append(c.done, "flush")
	return nil
}

// A body must arrive and an answer be taken in time, but the call between them
// may take as long as it takes.
func TestDeadlinesBoundTheClientAndNotTheCall(t *testing.T) {
	g := newGateway(t)
	conn := &clientConnection{ResponseRecorder: httptest.NewRecorder()}
	g.authenticate = func(string) (tenants.Principal, error) {
		require.False(t, conn.read.IsZero(), "reading is bounded from the start")
		return someTenant("do"), nil
	}
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		require.True(t, conn.read.IsZero(), "the call is not")
		require.Empty(t, conn.done)
		return actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{}`)}, nil
	}
	req := httptest.NewRequest("POST", "/v1/do", strings.NewReader(smallest))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer x")
	g.public.ServeHTTP(conn, req)
	require.Equal(t, 200, conn.Code)
	require.Equal(t, []string{"bound", "write", "flush", "lift"}, conn.done)

	// Of a body that nobody reads, the server drains the rest under the deadline.
	conn = &clientConnection{ResponseRecorder: httptest.NewRecorder()}
	req = httptest.NewRequest("POST", "/v1/do", strings.NewReader(smallest))
	g.public.ServeHTTP(conn, req)
	require.Equal(t, 401, conn.Code)
	require.False(t, conn.read.IsZero())

	// Without a body there is nothing to bound.
	conn = &clientConnection{ResponseRecorder: httptest.NewRecorder()}
	g.public.ServeHTTP(conn, httptest.NewRequest("GET", "/openapi.yaml", nil))
	require.True(t, conn.read.IsZero())
}

// Over a real connection: answers, refusals in the middle of a body, and the
// requests that follow on the same connection.
func TestOverTheWire(t *testing.T) {
	g := newGateway(t)
	g.do = func(context.Context, actions.Request) (actions.Reply, error) {
		return actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{ "a":1.0 }`)}, nil
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = api.HTTPServer(g.public, slog.New(slog.DiscardHandler))
	server.Start()
	defer server.Close()
	post := func(body io.Reader, key string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/v1/do", body)
		require.NoError(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := server.Client().Do(req)
		require.NoError(t, err)
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.EqualValues(t, len(answer), resp.ContentLength)
		return resp.StatusCode, string(answer)
	}
	for range 2 {
		status, body := post(strings.NewReader(smallest), tenantKey)
		require.Equal(t, 200, status)
		require.Contains(t, body, `"result":{ "a":1.0 }`)
		status, _ = post(strings.NewReader(smallest), "unknown")
		require.Equal(t, 401, status)
		status, _ = post(io.MultiReader(strings.NewReader(smallest), strings.NewReader(strings.Repeat(" ", 1<<20))), tenantKey)
		require.Equal(t, 413, status)
	}
}

// A caller that hangs up ends its own wait, and the api says so to the path of
// a write, which decides what to make of it.
func TestHangingUpEndsTheContext(t *testing.T) {
	g := newGateway(t)
	started, ended := make(chan struct{}), make(chan struct{})
	g.do = func(ctx context.Context, _ actions.Request) (actions.Reply, error) {
		close(started)
		<-ctx.Done()
		close(ended)
		return actions.Reply{}, &actions.Error{Code: actions.NotSent}
	}
	server := httptest.NewServer(g.public)
	defer server.Close()
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", server.URL+"/v1/do", strings.NewReader(smallest))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+tenantKey)
	go func() { <-started; hangUp() }()
	resp, err := server.Client().Do(req)
	if err == nil {
		resp.Body.Close()
	}
	require.ErrorIs(t, err, context.Canceled)
	<-ended
}
