package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// The tests of this file speak to the real program as MCP clients do, with the
// client of the official SDK and, where the bytes matter, without one.

// bearer adds a key to what the SDK's client sends.
type bearer struct {
	key  string
	wire *http.Transport
}

// client sends with this agent's key, on connections of its own: they end with the
// test, also those that were dialled ahead and not used.
func (a *agent) client() *http.Client {
	wire := &http.Transport{}
	a.t.Cleanup(wire.CloseIdleConnections)
	return &http.Client{Transport: bearer{a.key, wire}}
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.key)
	return b.wire.RoundTrip(r)
}

// mcp connects the SDK's client as this agent. It repeats nothing by itself.
func (a *agent) mcp() *mcpsdk.ClientSession {
	a.t.Helper()
	return connectMCP(a.t, &mcpsdk.StreamableClientTransport{
		Endpoint: a.base + "/mcp", HTTPClient: a.client(), MaxRetries: -1, DisableStandaloneSSE: true,
	})
}

func connectMCP(t testing.TB, transport mcpsdk.Transport) *mcpsdk.ClientSession {
	t.Helper()
	client := mcpsdk.NewClient(&mcpsdk.Implementation{Name: "test", Version: "1"},
		&mcpsdk.ClientOptions{MultiRoundTrip: &mcpsdk.MultiRoundTripOptions{Disabled: true}})
	session, err := client.Connect(t.Context(), transport, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

// toolAnswer is what a tool returned.
type toolAnswer struct {
	reply
	first string // the text an agent reads first
	bad   bool
}

func callTool(t testing.TB, session *mcpsdk.ClientSession, name, arguments string) toolAnswer {
	t.Helper()
	r, err := session.CallTool(t.Context(), &mcpsdk.CallToolParams{Name: name, Arguments: json.RawMessage(arguments)})
	require.NoError(t, err)
	return readTool(t, r)
}

func readTool(t testing.TB, r *mcpsdk.CallToolResult) toolAnswer {
	t.Helper()
	require.NotEmpty(t, r.Content)
	out := toolAnswer{first: r.Content[0].(*mcpsdk.TextContent).Text, bad: r.IsError, reply: reply{t: t}}
	if len(r.Content) > 1 {
		out.raw = []byte(r.Content[1].(*mcpsdk.TextContent).Text)
		d := json.NewDecoder(bytes.NewReader(out.raw))
		d.UseNumber()
		require.NoError(t, d.Decode(&out.body))
		structured, err := json.Marshal(r.StructuredContent)
		require.NoError(t, err)
		require.JSONEq(t, string(out.raw), string(structured), "the text and the structured content are one answer")
	}
	return out
}

// says insists on the first words.
func (a toolAnswer) says(words string) toolAnswer {
	a.t.Helper()
	require.True(a.t, strings.HasPrefix(a.first, words), "%q does not begin with %q", a.first, words)
	return a
}

func (a toolAnswer) failed(yes bool) toolAnswer {
	a.t.Helper()
	require.Equal(a.t, yes, a.bad, a.first)
	return a
}

func TestMCPVendorFaults(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		want := expectations(t, false)
		for i, f := range vendortest.Faults() {
			t.Run(f.Name, func(t *testing.T) { playFaultOverMCP(t, newAgent(t, app.URL()), f, want[f.Name], i) })
		}
	})
}

func playFaultOverMCP(t *testing.T, a *agent, f vendortest.Fault, want string, n int) {
	vendor := vendortest.New(t, f.Behaviour)
	pin := "probe@1"
	if f.Hangs {
		pin = "probe-fast@1"
	}
	a.connect("c", pin, vendor.URL())
	body := fmt.Sprintf(`{"n":%d}`, n)
	if f.Name == "early_413" {
		body = fmt.Sprintf(`{"n":%d,"pad":%q}`, n, strings.Repeat("x", 900_000))
	}
	session := a.mcp()
	do := func() toolAnswer { t.Helper(); return callTool(t, session, "do", doBody("c", "create", body)) }
	own := func() toolAnswer { t.Helper(); return callTool(t, session, "c__create", body) }
	first := []func() toolAnswer{do, own}[n%2]()
	require.Equal(t, 1, vendor.Arrivals(), first.first)
	require.NotContains(t, string(first.raw), "s3cret")
	switch want {
	case held:
		first.says("UNKNOWN: may have been done; do not send again; check " + first.text("action_id")).failed(true)
		again := do().says("UNKNOWN: may have been done; do not send again; check " + first.text("action_id")).failed(true)
		require.Equal(t, "true", again.text("replayed"))
		require.Equal(t, first.text("action_id"), own().says("UNKNOWN: may have been done; do not send again; check ").failed(true).text("action_id"))
		require.Equal(t, first.text("action_id"), a.do("c", "create", body).is(423, "outcome_unknown").text("action_id"))
	case done:
		first.says("DONE at " + first.text("settled_at")).failed(false)
		again := do().says("ALREADY DONE at " + first.text("settled_at") + " (not sent again)").failed(false)
		requireSameResult(t, first.reply, again.reply)
		requireSameResult(t, first.reply, own().says("ALREADY DONE at ").failed(false).reply)
		requireSameResult(t, first.reply, a.do("c", "create", body).is(200, "succeeded").replayed())
	case refused:
		first.says("NOT DONE: the vendor refused it").failed(true)
		require.Equal(t, "true", do().says("NOT DONE").failed(true).text("replayed"))
		require.Equal(t, "true", own().says("NOT DONE").failed(true).text("replayed"))
		a.do("c", "create", body).is(424, "vendor_refused").replayed()
	case limited, denied:
		first.says("NOT DONE: ").failed(true)
		vendor.Use(vendortest.OK)
		do().says("DONE at ").failed(false) // released: the next one runs
		require.Equal(t, 2, vendor.Arrivals())
		return
	}
	require.Equal(t, 1, vendor.Arrivals(), "no repeat was sent, over either front")
}

// A write is one whatever front, replica, session or key it is asked for by.
func TestMCPAndRESTAreOneLedger(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		vendor := vendortest.New(t, vendortest.OK)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		bases := []string{app.URL()}
		if cfg.isRedis() {
			other, _ := boot(t, cfg)
			bases = append(bases, other.URL())
		}
		for i, base := range bases {
			b := a.at(base)
			body := fmt.Sprintf(`{"n":1%d}`, i)
			first := callTool(t, a.mcp(), "do", doBody("c", "create", body)).says("DONE")
			again := b.do("c", "create", body).is(200, "succeeded").replayed()
			requireSameResult(t, first.reply, again)
			require.Equal(t, first.text("key.id"), again.text("key.id"))

			body = fmt.Sprintf(`{"n":2%d}`, i)
			rest := a.do("c", "create", body).is(200, "succeeded").fresh()
			over := callTool(t, b.mcp(), "do", doBody("c", "create", body)).says("ALREADY DONE")
			requireSameResult(t, rest, over.reply)

			key := fmt.Sprintf(`"idempotency_key":"k%d"`, i)
			callTool(t, b.mcp(), "do", doBody("c", "create", `{"n":3}`, key)).says("DONE")
			a.do("c", "create", `{"n":3}`, key).is(200, "succeeded").replayed()
			callTool(t, a.mcp(), "do", doBody("c", "create", `{"n":4}`, key)).says("NOT DONE").failed(true)
			require.Equal(t, 3*(i+1), vendor.Arrivals())
		}
	})
}

// Audit rows name the front that was used.
func TestMCPIsNamedInTheAudit(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	result, err := a.mcp().CallTool(t.Context(), &mcpsdk.CallToolParams{
		Meta: mcpsdk.Meta{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01"}, Name: "do",
		Arguments: json.RawMessage(doBody("c", "create", `{"n":1}`, `"meta":{"tool_call_id":"x"}`)),
	})
	require.NoError(t, err)
	done := readTool(t, result)
	a.do("c", "create", `{"n":1}`).replayed()
	rows := a.must(200, "GET", "/v1/audit?action_id="+done.text("id"), nil)
	fronts := map[string]string{}
	for _, row := range rows.body["data"].([]any) {
		row := row.(map[string]any)
		fronts[fmt.Sprint(row["event"])] = fmt.Sprint(row["front"])
		if row["front"] == "mcp" {
			require.Equal(t, trace, row["trace_id"], "the trace that the message names")
			require.Equal(t, done.text("request_id"), row["request_id"])
		}
	}
	require.Equal(t, map[string]string{"claimed": "mcp", "succeeded": "mcp", "replayed": "rest"}, fronts)
}

// post sends one message as bytes.
func (a *agent) post(ctx context.Context, message string, header ...string) (status int, head http.Header, answer string) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.base+"/mcp", strings.NewReader(message))
	require.NoError(a.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	if a.key != "" {
		req.Header.Set("Authorization", "Bearer "+a.key)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(a.t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(a.t, err)
	require.NoError(a.t, resp.Body.Close())
	return resp.StatusCode, resp.Header, string(raw)
}

// rawDo makes a `do` whose arguments are these bytes.
func (a *agent) rawDo(id, arguments string) toolAnswer {
	a.t.Helper()
	return a.rawTool(id, "do", arguments)
}

// The arguments come through as bytes: what REST refuses is refused with the same
// answer, and what it takes has the same identity.
func TestMCPReadsArgumentsAsRESTReadsABody(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	refused := []string{
		doBody("c", "create", `{"n":9007199254740993}`),
		doBody("c", "create", `{"n":1,"n":2}`),
		doBody("c", "create", `{"n":1,"\u006e":2}`),
		doBody("c", "create", `null`),
		doBody("c", "create", `[]`),
		doBody("c", "create", `{"n":"\ud800"}`),
		doBody("c", "create", `{"n":1e400}`),
		`{"connection":"c","connection":"c","action":"x","body":{}}`,
		`{"Connection":"c","action":"x","body":{}}`,
		doBody("c", "create", `{}`, `"more":1`),
		doBody("c", "create", `{}`, `"idempotency_key":" k"`),
		doBody("c", "create", `{}`, `"idempotency_key":null`),
		doBody("c", "create", `{}`, `"meta":{"a":1}`),
		doBody("c", "create", `{}`, `"dry_run":"yes"`),
		doBody("nowhere", "create", `{}`),
		`{"action":"x"}`, `null`, `[]`, `"x"`, `{}`,
	}
	for _, arguments := range refused {
		rest := a.call("POST", "/v1/do", arguments)
		over := a.rawDo("1", arguments)
		over.says("NOT DONE by this call: ").failed(true)
		for _, r := range []reply{rest, over.reply} {
			delete(r.body, "request_id")
		}
		require.Equal(t, rest.body, over.body, arguments)
	}
	require.Zero(t, vendor.Arrivals())
}

// Digits, member order and blanks of the answer come through in the text.
func TestMCPKeepsDigits(t *testing.T) {
	app, _ := boot(t, embedded(t))
	const result = `{"total": 1.10,"big":12345678901234567890, "a":[] ,"h":"<&>"}`
	vendor := vendortest.New(t, func(c *vendortest.Call) { c.JSON(201, result) })
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	over := a.rawDo("1", doBody("c", "create", `{"n":10}`))
	require.Equal(t, result, rawMember(t, over.raw, "result"))
	rest := a.do("c", "create", `{"n":10}`).replayed()
	require.Equal(t, result, rawMember(t, rest.raw, "result"))
	// Another spelling of the same number is the same write (RFC 8785).
	a.rawDo("2", doBody("c", "create", `{ "n" : 1e1 }`)).says("ALREADY DONE")
	require.Equal(t, 1, vendor.Arrivals())
}

// A message that two readers would read as two is no message.
func TestMCPRefusesAnAmbiguousEnvelope(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	one, two := doBody("c", "create", `{"n":1}`), doBody("c", "create", `{"n":2}`)
	for _, message := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":` + one + `,"arguments":` + two + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":` + one + `,"Arguments":` + two + `}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":` + one + `},"params":{}}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":` + one + `,"argument\u0073":` + two + `}}`,
	} {
		status, _, raw := a.post(t.Context(), message)
		require.Equal(t, 400, status)
		require.Contains(t, raw, "-32600")
	}
	require.Zero(t, vendor.Arrivals())
}

// The same call under other ids, at once, is one write.
func TestMCPDuplicatesAreOneWrite(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		gate := make(chan struct{})
		vendor := vendortest.New(t, gated(gate, vendortest.OK))
		a := newAgent(t, app.URL())
		a.connect("c", "probe-slow@1", vendor.URL())
		answers := make(chan toolAnswer, 2)
		var calls sync.WaitGroup
		for id := range 2 {
			calls.Go(func() { answers <- a.rawDo(fmt.Sprint(id+1), doBody("c", "create", `{"n":1}`)) })
		}
		early := <-answers
		early.says("IN FLIGHT").failed(true)
		close(gate)
		(<-answers).says("DONE").failed(false)
		calls.Wait()
		a.rawDo(`"three"`, doBody("c", "create", `{"n":1}`)).says("ALREADY DONE").failed(false)
		require.Equal(t, 1, vendor.Arrivals())
	})
}

// A client that gives up, by a cancellation or by hanging up, changes nothing.
func TestMCPCancellationDoesNotCancelTheVendorCall(t *testing.T) {
	app, _ := boot(t, embedded(t))
	gate := make(chan struct{})
	vendor := vendortest.New(t, gated(gate, vendortest.OK))
	a := newAgent(t, app.URL())
	a.connect("c", "probe-slow@1", vendor.URL())
	ctx, giveUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	session := a.mcp()
	go func() {
		_, err := session.CallTool(ctx, &mcpsdk.CallToolParams{Name: "do", Arguments: json.RawMessage(doBody("c", "create", `{"n":1}`))})
		ended <- err
	}()
	eventually(t, 10*time.Second, "the write arrives", func() bool { return vendor.Arrivals() == 1 })
	giveUp()
	require.Error(t, <-ended)
	require.Equal(t, 409, a.do("c", "create", `{"n":1}`).status, "it still runs")
	close(gate)
	eventually(t, 10*time.Second, "the answer is there", func() bool { return a.do("c", "create", `{"n":1}`).status == 200 })
	callTool(t, a.mcp(), "do", doBody("c", "create", `{"n":1}`)).says("ALREADY DONE")
	require.Equal(t, 1, vendor.Arrivals())
}

func TestMCPAsksForAKey(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	const list = `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`
	for name, key := range map[string]string{"none": "", "unknown": "hf_nobody_" + strings.Repeat("x", 40), "cut": a.key[:len(a.key)-1]} {
		b := *a
		b.key = key
		status, head, raw := b.post(t.Context(), list)
		require.Equal(t, 401, status, name)
		require.Contains(t, raw, `"code":"unauthenticated"`)
		require.Contains(t, head.Get("WWW-Authenticate"), "Bearer")
	}
	admin := *a
	admin.key = testAdminKey
	status, _, _ := admin.post(t.Context(), list)
	require.Equal(t, 403, status, "the platform's key is no tenant's")

	status, _, _ = a.post(t.Context(), list, "Origin", "https://elsewhere.example")
	require.Equal(t, 403, status)
	status, _, _ = a.post(t.Context(), list, "Origin", a.base)
	require.Equal(t, 200, status)
	require.Equal(t, 405, a.call("GET", "/mcp", nil).status)

	reader := *a
	made := a.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"label": "reads", "scopes": []string{"read"}})
	reader.key = made.text("key")
	session := reader.mcp()
	callTool(t, session, "do", doBody("c", "create", `{"n":1}`)).says("NOT DONE by this call: ").failed(true)
	callTool(t, session, "list_held", `{}`).says("OK").failed(false)
	rows, _ := a.must(200, "GET", "/v1/audit?event=denied", nil).body["data"].([]any)
	require.Len(t, rows, 2, "the foreign page and the reader's do")
	for _, row := range rows {
		require.Equal(t, "mcp", row.(map[string]any)["front"])
	}
	stranger := newAgent(t, app.URL())
	callTool(t, stranger.mcp(), "do", doBody("c", "create", `{"n":1}`)).says("NOT DONE by this call: ").failed(true)
	require.Zero(t, vendor.Arrivals())
}

// The tools that look give the answers of the calls they stand for.
func TestMCPToolsThatLook(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	session := a.mcp()

	list, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	hints := map[string]string{}
	for _, tool := range list.Tools {
		h := tool.Annotations
		hints[tool.Name] = fmt.Sprint(h.ReadOnlyHint, *h.DestructiveHint, *h.OpenWorldHint, h.IdempotentHint)
	}
	const writes, looks = "false true true true", "true false false true"
	require.Equal(t, map[string]string{
		"do": writes, "check_action": writes,
		"list_connections": looks, "describe_action": looks, "get_action": looks, "list_held": looks,
	}, hints)

	require.JSONEq(t, string(a.must(200, "GET", "/v1/connections", nil).raw), string(callTool(t, session, "list_connections", `{}`).says("OK").raw))
	create := callTool(t, session, "describe_action", `{"connection":"c","action":"create"}`).says("OK").failed(false)
	require.Equal(t, "create", create.text("effect"))
	require.NotEmpty(t, create.text("input"))
	require.Equal(t, "24h", create.text("replay.window"))
	require.Equal(t, "probe@1", callTool(t, session, "describe_action", `{"connection":"c"}`).text("connector"))
	callTool(t, session, "describe_action", `{"connection":"c","action":"none"}`).says("FAILED").failed(true)
	callTool(t, session, "describe_action", `{"connection":"none"}`).says("FAILED").failed(true)
	callTool(t, session, "get_action", `{"id":"../connections"}`).says("FAILED").failed(true)
	callTool(t, session, "get_action", `{}`).says("FAILED").failed(true)
	callTool(t, session, "list_held", `{"state":"x"}`).says("FAILED").failed(true)

	done := callTool(t, session, "do", doBody("c", "create", `{"n":1}`))
	callTool(t, session, "get_action", `{"id":"`+done.text("id")+`"}`).says("DONE at ").failed(false)
	callTool(t, session, "do", doBody("c", "create", `{"n":1}`, `"dry_run":true`)).says("DRY RUN, nothing was sent: would replay").failed(false)

	vendor.Use(vendortest.CloseAfterBody)
	lost := callTool(t, session, "do", doBody("c", "create", `{"n":2}`)).says("UNKNOWN")
	id := lost.text("action_id")
	callTool(t, session, "get_action", `{"id":"`+id+`"}`).says("UNKNOWN: may have been done; do not send again; check " + id)
	require.Contains(t, string(callTool(t, session, "list_held", `{"connection":"c","limit":5}`).raw), id)
	callTool(t, session, "check_action", `{"id":"`+id+`"}`).says("UNKNOWN")
	require.Equal(t, "succeeded", a.must(200, "POST", "/v1/actions/"+id+"/resolve", map[string]any{"outcome": "succeeded"}).text("state"))
	callTool(t, session, "check_action", `{"id":"`+id+`"}`).says("FAILED").failed(true)
	require.Equal(t, 2, vendor.Arrivals())
}

// A client that asked for it hears that a long call still runs.
func TestMCPReportsProgress(t *testing.T) {
	cfg := embedded(t)
	cfg.progress = 10 * time.Millisecond
	app, _ := boot(t, cfg)
	gate := make(chan struct{})
	vendor := vendortest.New(t, gated(gate, vendortest.OK))
	a := newAgent(t, app.URL())
	a.connect("c", "probe-slow@1", vendor.URL())
	heard := make(chan string, 100)
	client := mcpsdk.NewClient(&mcpsdk.Implementation{Name: "test", Version: "1"}, &mcpsdk.ClientOptions{
		MultiRoundTrip: &mcpsdk.MultiRoundTripOptions{Disabled: true},
		ProgressNotificationHandler: func(_ context.Context, r *mcpsdk.ProgressNotificationClientRequest) {
			select {
			case heard <- r.Params.Message:
			default:
			}
		},
	})
	session, err := client.Connect(t.Context(), &mcpsdk.StreamableClientTransport{
		Endpoint: a.base + "/mcp", HTTPClient: a.client(), MaxRetries: -1, DisableStandaloneSSE: true,
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	params := &mcpsdk.CallToolParams{Name: "do", Arguments: json.RawMessage(doBody("c", "create", `{"n":1}`))}
	params.SetProgressToken("p1")
	ended := make(chan toolAnswer, 1)
	go func() {
		r, err := session.CallTool(t.Context(), params)
		if err == nil {
			ended <- readTool(t, r)
		}
		close(ended)
	}()
	require.Contains(t, <-heard, "still running")
	require.Contains(t, <-heard, "still running")
	close(gate)
	(<-ended).says("DONE").failed(false)
	require.Equal(t, 1, vendor.Arrivals())
}
