package api_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/api"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/tenants"
)

// oneTurn is for each tenant, and none of them is alone.
func oneTurn(t *testing.T) *limits.Turns {
	t.Helper()
	turns := limits.NewTurns(1)
	neighbour, over := turns.Take(t.Context(), tenants.Principal{TenantID: "neighbour"})
	require.Nil(t, over)
	neighbour.Leave()
	return turns
}

// inTurns is a gateway that works on one request of a tenant at a time.
func inTurns(t *testing.T) *gateway {
	t.Helper()
	return newGateway(t, func(c *api.Config) {
		c.Limits = api.Limits{Tenants: limits.New(limits.Policy{}, time.Now, time.Now), Turns: oneTurn(t)}
	})
}

// Requests of one tenant are worked on in turns; whoever waits for a vendor lets
// the next one work.
func TestRequestsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := inTurns(t)
		gate := make(chan struct{})
		var mu sync.Mutex
		begun := 0
		g.do = func(context.Context, actions.Request) (actions.Reply, error) {
			mu.Lock()
			begun++
			mu.Unlock()
			<-gate
			return actions.Reply{}, &actions.Error{Code: actions.UnknownAction}
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { g.send("POST", "/v1/do", smallest) })
		}
		synctest.Wait()
		require.Equal(t, 1, begun)
		require.Equal(t, 405, g.send("PATCH", "/v1/do", "").status, "who is refused needs no turn")
		close(gate)
		all.Wait()
		require.Equal(t, 5, begun)
	})
	synctest.Test(t, func(t *testing.T) {
		g := inTurns(t)
		gate := make(chan struct{})
		var mu sync.Mutex
		begun := 0
		g.do = func(ctx context.Context, _ actions.Request) (actions.Reply, error) {
			defer limits.TurnOf(ctx).Rest()()
			mu.Lock()
			begun++
			mu.Unlock()
			<-gate
			return actions.Reply{}, &actions.Error{Code: actions.UnknownAction}
		}
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { g.send("POST", "/v1/do", smallest) })
		}
		synctest.Wait()
		require.Equal(t, 5, begun)
		close(gate)
		all.Wait()
	})
}

// A client that sends its body slowly has no turn meanwhile.
func TestNoTurnForABodyThatIsNotHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := inTurns(t)
		g.specs = func() []connectors.Spec { return nil }
		g.do = func(context.Context, actions.Request) (actions.Reply, error) {
			return actions.Reply{}, &actions.Error{Code: actions.UnknownAction}
		}
		body, sending := io.Pipe()
		slow := httptest.NewRequest("POST", "/v1/do", body)
		slow.Header.Set("Authorization", "Bearer "+tenantKey)
		slow.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		var all sync.WaitGroup
		all.Go(func() { g.public.ServeHTTP(answer, slow) })
		synctest.Wait()
		require.Equal(t, 200, g.send("GET", "/v1/connectors", "").status)
		_, err := io.WriteString(sending, smallest)
		require.NoError(t, err)
		require.NoError(t, sending.Close())
		all.Wait()
		require.Equal(t, 404, answer.Code)
	})
}

// A call that reads no body takes its turn at once, also from a client that sends
// one all the same: it must not get past the line by that.
func TestABodyThatNobodyReadsIsNoWayPastTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := inTurns(t)
		gate := make(chan struct{})
		g.do = func(context.Context, actions.Request) (actions.Reply, error) {
			<-gate
			return actions.Reply{}, &actions.Error{Code: actions.UnknownAction}
		}
		var looked atomic.Int32
		g.check = func(string, string) (actions.CheckResult, error) {
			looked.Add(1)
			return actions.CheckResult{}, &actions.Error{Code: actions.NotFound}
		}
		g.test = func(string) (actions.TestResult, error) {
			looked.Add(1)
			return actions.TestResult{}, &actions.Error{Code: actions.NotFound}
		}
		var all sync.WaitGroup
		all.Go(func() { g.send("POST", "/v1/do", smallest) })
		synctest.Wait()
		all.Go(func() { g.send("POST", "/v1/actions/act_1/check", "{}") })
		all.Go(func() { g.send("POST", "/v1/connections/c/test", "{}") })
		synctest.Wait()
		require.Zero(t, looked.Load())
		close(gate)
		all.Wait()
		require.EqualValues(t, 2, looked.Load())
	})
}

// The calls of one MCP message take turns like those of many, and a message that
// waits for its calls keeps none of their turns.
func TestTheCallsOfAMessageTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, func(c *api.Config) {
			c.Limits = api.Limits{Tenants: limits.New(limits.Policy{}, time.Now, time.Now), Turns: oneTurn(t)}
			c.MCP = func(rest http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var all sync.WaitGroup
					for range 5 {
						all.Go(func() {
							call := httptest.NewRequestWithContext(r.Context(), "POST", "/v1/do", strings.NewReader(smallest))
							call.Header.Set("Content-Type", "application/json")
							rest.ServeHTTP(httptest.NewRecorder(), call)
						})
					}
					all.Wait()
					w.Header().Set("Content-Type", "application/json")
					_, _ = io.WriteString(w, "{}")
				})
			}
		})
		gate := make(chan struct{})
		var begun atomic.Int32
		g.do = func(context.Context, actions.Request) (actions.Reply, error) {
			begun.Add(1)
			<-gate
			return actions.Reply{}, &actions.Error{Code: actions.UnknownAction}
		}
		var all sync.WaitGroup
		all.Go(func() { g.send("POST", "/mcp", "{}") })
		synctest.Wait()
		require.EqualValues(t, 1, begun.Load())
		close(gate)
		all.Wait()
		require.EqualValues(t, 5, begun.Load())
	})
}

// Too many that wait are told so, like any that are limited.
func TestTheLineIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := inTurns(t)
		var rows []audit.Row
		g.appendRows = func(_ ledger.Scope, r []audit.Row) error { rows = append(rows, r...); return nil }
		gate := make(chan struct{})
		g.do = func(context.Context, actions.Request) (actions.Reply, error) {
			<-gate
			return actions.Reply{}, &actions.Error{Code: actions.UnknownAction}
		}
		var all sync.WaitGroup
		for range 513 {
			all.Go(func() { g.send("POST", "/v1/do", smallest) })
		}
		synctest.Wait()
		a := g.send("POST", "/v1/do", smallest)
		require.Equal(t, "rate_limited", a.code())
		require.Equal(t, "1", a.header.Get("Retry-After"))
		require.Len(t, rows, 1)
		require.Equal(t, "requests-at-once", rows[0].Reason)
		close(gate)
		all.Wait()
	})
}

// A caller who asks again as soon as it is refused is made to wait, and past a
// number of those its connection is closed.
func TestRefusedCallersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, pauses := func() time.Time { return created }, limits.NewPauses()
		g := newGateway(t, func(c *api.Config) {
			c.Limits = api.Limits{
				Tenants: limits.New(limits.Policy{RequestsPerSecond: 1}, clock, clock), Addresses: limits.NewAddresses(1, clock),
				Pauses: pauses,
			}
		})
		g.people.known = func(key string) bool { return key == tenantKey }
		g.specs = func() []connectors.Spec { return nil }
		g.appendRows = func(ledger.Scope, []audit.Row) error { return nil }
		require.Equal(t, 200, g.send("GET", "/v1/connectors", "").status)
		began := time.Now()
		a := g.send("GET", "/v1/connectors", "")
		require.Equal(t, "rate_limited", a.code())
		require.Equal(t, 500*time.Millisecond, time.Since(began))
		require.Empty(t, a.header.Get("Connection"))
		var all sync.WaitGroup
		for range 4096 {
			all.Go(func() { pauses.Wait(t.Context(), "t1") })
		}
		synctest.Wait()
		began = time.Now()
		a = g.send("GET", "/v1/connectors", "")
		require.Equal(t, "rate_limited", a.code())
		require.Equal(t, "close", a.header.Get("Connection"))
		require.Zero(t, time.Since(began))
		all.Wait()

		require.Equal(t, 401, g.send("GET", "/v1/connectors", "", as("nonsense"), from("192.0.2.1", "")).status)
		began = time.Now()
		require.Equal(t, 429, g.send("GET", "/v1/connectors", "", as("nonsense"), from("192.0.2.1", "")).status)
		require.Equal(t, 500*time.Millisecond, time.Since(began), "strangers too")
	})
}

// The answer is written without a turn: a client that reads slowly has none.
func TestTheTurnEndsWithTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := inTurns(t)
		g.specs = func() []connectors.Spec { return nil }
		slow := httptest.NewRequest("GET", "/v1/connectors", strings.NewReader(""))
		slow.Header.Set("Authorization", "Bearer "+tenantKey)
		answer := &stuck{ResponseRecorder: httptest.NewRecorder(), gate: make(chan struct{})}
		var all sync.WaitGroup
		all.Go(func() { g.public.ServeHTTP(answer, slow) })
		synctest.Wait()
		require.Equal(t, 200, g.send("GET", "/v1/connectors", "").status)
		close(answer.gate)
		all.Wait()
	})
}

// stuck takes no answer until its gate is closed.
type stuck struct {
	*httptest.ResponseRecorder
	gate chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	<-s.gate
	return s.ResponseRecorder.Write(p)
}
