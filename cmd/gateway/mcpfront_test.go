package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/vendortest"
)

// What a front owes besides its tools: limits, sessions, and clients that give up,
// are cut off, or ask twice.

// A call that timed out at its client over MCP is one write for whoever repeats it:
// over REST, by another client, under another key, on another replica.
func TestMCPTimedOutCallIsOneWriteForEveryone(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		bases := []string{app.URL()}
		if cfg.isRedis() {
			other, _ := boot(t, cfg)
			bases = append(bases, other.URL())
		}
		gate := make(chan struct{})
		vendor := vendortest.New(t, gated(gate, vendortest.OK))
		a := newAgent(t, app.URL())
		a.connect("c", "probe-slow@1", vendor.URL())
		other := *a
		other.key = a.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"label": "other", "scopes": []string{"do"}}).text("key")

		impatient, giveUp := context.WithTimeout(t.Context(), 2*time.Second)
		defer giveUp()
		ended := make(chan error, 1)
		go func() {
			_, err := a.mcp().CallTool(impatient, &mcpsdk.CallToolParams{Name: "c__create", Arguments: json.RawMessage(`{"n":1}`)})
			ended <- err
		}()
		eventually(t, 20*time.Second, "the write arrives, or its client was too quick", func() bool {
			return vendor.Arrivals() == 1 || impatient.Err() != nil
		})
		require.ErrorIs(t, <-ended, context.DeadlineExceeded)

		if vendor.Arrivals() == 1 {
			for _, base := range bases {
				callTool(t, other.at(base).mcp(), "do", doBody("c", "create", `{"n":1}`)).says("IN FLIGHT: ").failed(true)
				a.at(base).do("c", "create", `{"n":1}`).is(409, "in_flight")
			}
		}
		close(gate)
		eventually(t, 20*time.Second, "it is done", func() bool { return a.do("c", "create", `{"n":1}`).status == 200 })
		id := ""
		for _, base := range bases {
			for _, who := range []*agent{a, &other} {
				over := callTool(t, who.at(base).mcp(), "c__create", `{"n":1}`).says("ALREADY DONE at ").failed(false)
				rest := who.at(base).do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
				require.Equal(t, over.text("id"), rest.text("id"))
				require.True(t, id == "" || id == rest.text("id"))
				id = rest.text("id")
			}
		}
		require.Equal(t, 1, vendor.Arrivals())
	})
}

// Two calls of the same, three milliseconds apart and with different ids, from two
// clients of the SDK.
func TestMCPDuplicatesThreeMillisecondsApart(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	one, two := a.mcp(), a.mcp()
	_, err := two.ListTools(t.Context(), nil) // so that the ids of the two differ
	require.NoError(t, err)
	const rounds = 20
	for n := range rounds {
		var calls sync.WaitGroup
		answers := make([]toolAnswer, 2)
		for i, session := range []*mcpsdk.ClientSession{one, two} {
			calls.Go(func() {
				<-time.After(time.Duration(3*i) * time.Millisecond)
				answers[i] = callTool(t, session, "do", doBody("c", "create", fmt.Sprintf(`{"n":%d}`, n)))
			})
		}
		calls.Wait()
		for _, answer := range answers {
			require.Regexp(t, `^(DONE at |ALREADY DONE at |IN FLIGHT: )`, answer.first)
		}
	}
	require.Equal(t, rounds, vendor.Arrivals())
}

// cutter stands between a client and a gateway. It passes every request on and lets
// the first answers to tools/call break off.
type cutter struct {
	url   string
	calls atomic.Int64 // tools/call that came
	gets  atomic.Int64
	cuts  atomic.Int64 // answers still to cut
	early atomic.Bool  // cut before any of the answer
}

func newCutter(t *testing.T, gateway string) *cutter {
	t.Helper()
	c := &cutter{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c.url = "http://" + l.Addr().String()
	wire := &http.Transport{}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.serve(t, wire, gateway, w, r) })}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { _ = server.Close(); serving.Wait(); wire.CloseIdleConnections() })
	return c
}

func (c *cutter) serve(t *testing.T, wire *http.Transport, gateway string, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.Method == http.MethodGet {
		c.gets.Add(1)
	}
	call := strings.Contains(string(body), `"tools/call"`)
	if call {
		c.calls.Add(1)
	}
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, gateway+r.URL.Path, strings.NewReader(string(body)))
	if err != nil {
		t.Error(err)
		return
	}
	out.Header = r.Header.Clone()
	resp, err := wire.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, _ := io.ReadAll(resp.Body)
	for name, values := range resp.Header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	if call && c.cuts.Add(-1) >= 0 {
		if !c.early.Load() {
			w.WriteHeader(resp.StatusCode)
			_, _ = w.Write(answer[:len(answer)/2])
			_ = http.NewResponseController(w).Flush()
		}
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(answer)
}

// A stream that breaks off, before the answer or in it: the SDK's client, as it
// comes, runs nothing again by reconnecting, and the repeat is answered from the
// record.
func TestMCPCutStreams(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	for n, early := range []bool{false, true} {
		proxy := newCutter(t, app.URL())
		proxy.early.Store(early)
		session := connectMCP(t, &mcpsdk.StreamableClientTransport{Endpoint: proxy.url + "/mcp", HTTPClient: a.client()})
		proxy.cuts.Store(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := session.CallTool(ctx, &mcpsdk.CallToolParams{Name: "do", Arguments: json.RawMessage(doBody("c", "create", numbered(n)))})
		cancel()
		require.Error(t, err, "a cut answer is none")
		require.Equal(t, n+1, vendor.Arrivals())
		require.EqualValues(t, 1, proxy.calls.Load(), "the client sent it once")
		again := connectMCP(t, &mcpsdk.StreamableClientTransport{Endpoint: proxy.url + "/mcp", HTTPClient: a.client()})
		callTool(t, again, "do", doBody("c", "create", numbered(n))).says("ALREADY DONE at ").failed(false)
		a.do("c", "create", numbered(n)).is(200, "succeeded").replayed()
	}
	require.Equal(t, 2, vendor.Arrivals())
}

// There are no sessions: none is handed out, one that a client names is nothing,
// and there is no stream to open, resume or end.
func TestMCPHasNoSessions(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	a := newAgent(t, app.URL())
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	status, head, _ := a.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	require.Equal(t, 200, status)
	require.Empty(t, head.Get("Mcp-Session-Id"))
	for range 3 {
		status, head, _ := a.post(t.Context(), ping, "Mcp-Session-Id", "of-nobody")
		require.Equal(t, 200, status)
		require.Empty(t, head.Get("Mcp-Session-Id"))
	}
	for _, method := range []string{"GET", "DELETE", "PUT"} {
		require.Equal(t, 405, a.call(method, "/mcp", nil, "Mcp-Session-Id", "of-nobody", "Accept", "text/event-stream").status, method)
	}
	status, _, _ = a.post(t.Context(), ping, "Last-Event-ID", "1_1")
	require.Equal(t, 400, status, "what asks to resume runs nothing")
	// An answer's events have no id that a client could resume at.
	_, _, raw := a.post(t.Context(), ping)
	events := bufio.NewScanner(strings.NewReader(raw))
	for events.Scan() {
		require.False(t, strings.HasPrefix(events.Text(), "id:"), raw)
	}
}

// The limits are REST's: on requests, each call of a batch being one, on new writes,
// on the size of what is sent.
func TestMCPLimits(t *testing.T) {
	t.Parallel()
	cfg := embedded(t)
	cfg.Limits = limits.Policy{RequestsPerSecond: 20, WritesPerSecond: 2}
	cfg.MaxBody = 64 << 10
	app, _ := boot(t, cfg)
	vendor := vendortest.New(t, instant)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	var batch []string
	for i := range 40 {
		batch = append(batch, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"get_action","arguments":{"id":"act_none"}}}`, i))
	}
	_, _, raw := a.post(t.Context(), "["+strings.Join(batch, ",")+"]", "Mcp-Protocol-Version", "2025-03-26")
	require.Equal(t, 40, strings.Count(raw, `"isError":true`), raw)
	require.GreaterOrEqual(t, strings.Count(raw, `"code":"rate_limited"`), 15, "a batch is no way round the limit")
	require.Contains(t, a.events("event=rate_limited"), "rate_limited")

	session := a.patient()
	limited := false
	for n := 0; !limited; n++ {
		require.Less(t, n, 100)
		answer := session("do", doBody("c", "create", numbered(n)))
		if limited = answer.bad; limited {
			answer.says("NOT DONE by this call: ")
			require.Equal(t, "rate_limited", answer.text("code"))
			require.Contains(t, answer.first, "Wait ")
			session("do", doBody("c", "create", numbered(0))).says("ALREADY DONE at ").failed(false)
		}
	}

	big := doBody("c", "create", `{"n":1,"pad":"`+strings.Repeat("x", 64<<10)+`"}`)
	eventually(t, 10*time.Second, "it is refused for its size", func() bool {
		status, _, raw := a.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":`+big+`}}`)
		return status == 200 && strings.Contains(raw, `"code":"too_large"`)
	})
	eventually(t, 10*time.Second, "the message is refused for its size", func() bool {
		status, _, _ := a.post(t.Context(), `{"pad":"`+strings.Repeat("x", 200<<10)+`"}`)
		return status == 413
	})
}

// patient calls tools, and waits where the whole message is over the limit.
func (a *agent) patient() func(name, arguments string) toolAnswer {
	return func(name, arguments string) (answer toolAnswer) {
		a.t.Helper()
		message := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, name, arguments)
		eventually(a.t, 20*time.Second, "the message is admitted", func() bool {
			status, _, raw := a.post(a.t.Context(), message)
			if status != 200 {
				require.Equal(a.t, 429, status, raw)
				return false
			}
			_, data, _ := strings.Cut(raw, "data: ")
			answer = readTool(a.t, unmarshalResult(a.t, rawMember(a.t, []byte(data), "result")))
			return true
		})
		return answer
	}
}

// The rows of a write differ between the fronts in the front alone.
func TestMCPWritesTheAuditOfREST(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	rows := map[string][]map[string]any{}
	for _, front := range []string{"rest", "mcp"} {
		vendor := vendortest.New(t, vendortest.OK)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		session := a.mcp()
		do := func(body string, extra ...string) {
			if front == "rest" {
				a.do("c", "create", body, extra...)
			} else {
				callTool(t, session, "do", doBody("c", "create", body, extra...))
			}
		}
		do(`{"n":1}`, `"idempotency_key":"k"`, `"meta":{"run":"r1"}`)
		do(`{"n":1}`, `"idempotency_key":"k"`)
		do(`{"n":2}`, `"idempotency_key":"k"`)
		vendor.Use(vendortest.Status(422))
		do(`{"n":3}`)
		vendor.Use(vendortest.CloseAfterBody)
		do(`{"n":4}`)
		do(`{"n":4}`)
		do(`{"n":4}`, `"idempotency_key":"twin"`)
		for _, row := range a.must(200, "GET", "/v1/audit?order=oldest&connection=c", nil).body["data"].([]any) {
			row := row.(map[string]any)
			if row["event"] == "connection.created" {
				continue
			}
			require.Equal(t, front, row["front"])
			if actor, ok := row["actor"].(map[string]any); ok {
				require.NotEmpty(t, actor["key_id"])
			}
			for _, own := range []string{"front", "at", "request_id", "trace_id", "action_id", "identity", "tenant", "actor", "duration_ms", "subject", "seq", "prev", "hash"} {
				delete(row, own)
			}
			rows[front] = append(rows[front], row)
		}
	}
	require.GreaterOrEqual(t, len(rows["rest"]), 10)
	require.Equal(t, rows["rest"], rows["mcp"])
}
