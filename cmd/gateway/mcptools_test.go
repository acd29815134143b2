package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/api/apitest"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/identity/identitytest"
	"holdfast.dev/gateway/internal/vendortest"
)

// A connection's actions as tools of their own.

func (a *agent) mcpTools(name string, on bool) {
	a.t.Helper()
	r := a.must(200, "PUT", "/v1/connections/"+name, map[string]any{"mcp_tools": on})
	require.Equal(a.t, on, r.body["mcp_tools"])
}

// listTools pages through the tools.
func listTools(t testing.TB, session *mcpsdk.ClientSession) (list []*mcpsdk.Tool, pages int) {
	t.Helper()
	for cursor := ""; ; {
		page, err := session.ListTools(t.Context(), &mcpsdk.ListToolsParams{Cursor: cursor})
		require.NoError(t, err)
		list = append(list, page.Tools...)
		pages++
		if cursor = page.NextCursor; cursor == "" {
			return list, pages
		}
	}
}

// actionTools are those that are not fixed.
func actionTools(t testing.TB, session *mcpsdk.ClientSession) (names []string) {
	t.Helper()
	list, _ := listTools(t, session)
	for _, tool := range list {
		if strings.Contains(tool.Name, "__") {
			names = append(names, tool.Name)
		}
	}
	slices.Sort(names)
	return names
}

func TestMCPActionTools(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	for _, name := range []string{"billing", "off"} {
		a.connect(name, "probe@1", vendor.URL())
	}
	session := a.mcp()
	require.Empty(t, actionTools(t, session), "not unless a connection says so")
	a.mcpTools("billing", true)
	require.Equal(t, []string{"billing__create", "billing__remove"}, actionTools(t, session))
	page, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "private", page.CacheScope, "the list is the key's own")

	tools, _ := listTools(t, session)
	for _, tool := range tools {
		if tool.Name != "billing__create" && tool.Name != "billing__remove" {
			continue
		}
		described := callTool(t, session, "describe_action", `{"connection":"billing","action":"`+strings.TrimPrefix(tool.Name, "billing__")+`"}`)
		schema, err := json.Marshal(tool.InputSchema)
		require.NoError(t, err)
		require.JSONEq(t, rawMember(t, described.raw, "input"), string(schema), "the action's own schema")
		h := tool.Annotations
		require.Equal(t, tool.Name == "billing__remove", *h.DestructiveHint, "as the manifest says")
		require.True(t, *h.OpenWorldHint)
		require.True(t, h.IdempotentHint)
		require.False(t, h.ReadOnlyHint)
		require.Contains(t, tool.Description, "within 24h")
	}

	// It is the write that `do` makes, over either front.
	first := callTool(t, session, "billing__create", `{"n":10}`).says("DONE at ").failed(false)
	again := a.do("billing", "create", `{ "n" : 1e1 }`).is(200, "succeeded").replayed()
	requireSameResult(t, first.reply, again)
	require.Equal(t, first.text("key.id"), again.text("key.id"))
	a.do("billing", "remove", `{"n":"7"}`).is(200, "succeeded").fresh()
	callTool(t, session, "billing__remove", `{"n":"7"}`).says("ALREADY DONE at ").failed(false)
	require.Equal(t, 2, vendor.Arrivals())

	// Arguments are the body, and read as one.
	for _, body := range []string{`{"n":9007199254740993}`, `{"n":1,"n":2}`, `{"n":"\ud800"}`, `{"m":1}`, `{}`, `[]`, `"x"`, `{"n":1,"idempotency_key":"k"}`} {
		rest := a.do("billing", "create", body)
		over := a.rawTool("1", "billing__create", body).says("NOT DONE by this call: ").failed(true)
		delete(rest.body, "request_id")
		delete(over.body, "request_id")
		require.Equal(t, rest.body, over.body, body)
	}

	// The list is no permission, and a write that exists is answered.
	a.mcpTools("billing", false)
	require.Empty(t, actionTools(t, session))
	callTool(t, session, "billing__create", `{"n":10}`).says("ALREADY DONE at ").failed(false)
	callTool(t, session, "off__remove", `{"n":"1"}`).says("DONE at ").failed(false)
	callTool(t, session, "none__create", `{"n":1}`).says("NOT DONE by this call: ").failed(true)
	callTool(t, session, "billing__none", `{"n":1}`).says("NOT DONE by this call: ").failed(true)
	require.Equal(t, 3, vendor.Arrivals())
	for _, name := range []string{"none", "billing___0123456789abcdef", "billing__", "DO"} {
		_, err := session.CallTool(t.Context(), &mcpsdk.CallToolParams{Name: name})
		var refused *jsonrpc.Error
		require.ErrorAs(t, err, &refused, name)
		require.EqualValues(t, jsonrpc.CodeInvalidParams, refused.Code, "a tool that there is not is a fault of the protocol")
	}
}

// Names that would be too long or could be taken for another's are cut, and lead to
// the one action they stand for.
func TestMCPActionToolNames(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	a := newAgent(t, app.URL())
	long := strings.Repeat("x", 60)
	vendors := map[string]*vendortest.Vendor{}
	for _, name := range []string{"a", "a_", "a__b", long} {
		vendors[name] = vendortest.New(t, vendortest.OK)
		a.connect(name, "probe@1", vendors[name].URL())
		a.mcpTools(name, true)
	}
	session := a.mcp()
	names := actionTools(t, session)
	require.Len(t, slices.Compact(slices.Clone(names)), 8)
	for i, name := range names {
		require.Regexp(t, `^[a-z0-9_-]{1,64}$`, name)
		arguments := fmt.Sprintf(`{"n":%d}`, i)
		action := "create"
		if list, _ := listTools(t, session); strings.HasPrefix(toolNamed(t, list, name).Title, "remove") {
			arguments, action = fmt.Sprintf(`{"n":"%d"}`, i), "remove"
		}
		_, connection, _ := strings.Cut(toolNamed(t, mustList(t, session), name).Title, " on ")
		before := vendors[connection].Arrivals()
		callTool(t, session, name, arguments).says("DONE at ")
		require.Equal(t, before+1, vendors[connection].Arrivals(), "%s goes to its own connection", name)
		a.do(connection, action, arguments).is(200, "succeeded").replayed()
	}
}

func mustList(t testing.TB, session *mcpsdk.ClientSession) []*mcpsdk.Tool {
	t.Helper()
	list, _ := listTools(t, session)
	return list
}

func toolNamed(t testing.TB, list []*mcpsdk.Tool, name string) *mcpsdk.Tool {
	t.Helper()
	i := slices.IndexFunc(list, func(tool *mcpsdk.Tool) bool { return tool.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return list[i]
}

// Many tools come in pages, and a key sees those it may run.
func TestMCPActionToolsArePagedAndNarrowed(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	for i := range 30 {
		name := fmt.Sprintf("c%02d", i)
		a.connect(name, "probe@1", vendor.URL())
		a.mcpTools(name, true)
	}
	session := a.mcp()
	list, pages := listTools(t, session)
	require.Equal(t, 2, pages, "50 at a time")
	require.Len(t, list, 6+60)
	names := map[string]bool{}
	for _, tool := range list {
		names[tool.Name] = true
	}
	require.Len(t, names, 66, "each once")
	_, err := session.ListTools(t.Context(), &mcpsdk.ListToolsParams{Cursor: "x~y"})
	var refused *jsonrpc.Error
	require.ErrorAs(t, err, &refused)
	require.EqualValues(t, jsonrpc.CodeInvalidParams, refused.Code)

	narrow := *a
	narrow.key = a.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"label": "narrow", "scopes": []string{"do"},
		"grants": []any{map[string]any{"connection": "c03"}, map[string]any{"connection": "c29", "actions": []string{"remove"}}}}).text("key")
	other := narrow.mcp()
	require.Equal(t, []string{"c03__create", "c03__remove", "c29__remove"}, actionTools(t, other))
	callTool(t, other, "c29__remove", `{"n":"1"}`).says("DONE")
	callTool(t, other, "c29__create", `{"n":1}`).says("NOT DONE by this call: ").failed(true)
	require.Equal(t, "forbidden", callTool(t, other, "c00__create", `{"n":1}`).text("code"))
	reader := *a
	reader.key = a.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"label": "reads", "scopes": []string{"resolve"}}).text("key")
	require.Empty(t, actionTools(t, reader.mcp()), "a key that may not write has none")
	require.Empty(t, actionTools(t, newAgent(t, app.URL()).mcp()), "nor has another tenant")
	require.Equal(t, 1, vendor.Arrivals())
	rows, _ := a.must(200, "GET", "/v1/audit?event=denied", nil).body["data"].([]any)
	for _, row := range rows {
		require.Equal(t, "mcp", row.(map[string]any)["front"])
	}
	require.Len(t, rows, 2, "to list is no attempt to write")
}

// What names a call, and what it says beside its arguments, is no part of the write.
func TestMCPIdentityIsOfTheArgumentsAlone(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	meta := []string{
		`{"progressToken":1}`, `{"progressToken":"t2","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}`,
		`{"claudecode/toolUseId":"toolu_1"}`, `{"claudecode/toolUseId":"toolu_2","request_id":"r2"}`, `{"dev.holdfast/meta":{"tool_call_id":"x1"}}`,
	}
	ids := map[string]bool{}
	for i, m := range meta {
		id := fmt.Sprintf(`"call-%d"`, i)
		over := a.rawCall(id, `"name":"c__create","arguments":{"n":1},"_meta":`+m)
		ids[over.text("key.id")] = true
		ids[a.rawCall(id, `"_meta":`+m+`,"arguments":`+doBody("c", "create", `{"n":1}`, fmt.Sprintf(`"meta":{"call":"%d"}`, i))+`,"name":"do"`).text("key.id")] = true
	}
	require.Len(t, ids, 1)
	require.Equal(t, 1, vendor.Arrivals())
	// Labels of an action's own tool reach the audit.
	rows := a.must(200, "GET", "/v1/audit?event=replayed", nil)
	require.Contains(t, string(rows.raw), `"tool_call_id":"x1"`)
	// What is no label is refused as REST refuses it.
	a.rawCall("9", `"name":"c__create","arguments":{"n":2},"_meta":{"dev.holdfast/meta":{"a":1}}`).says("NOT DONE by this call: ")
	require.Equal(t, 1, vendor.Arrivals())
}

// The examples of identity, over every way in: REST, `do`, and the action's own tool
// give the same identity, which is the one that identity derives.
func TestMCPIdentityVectors(t *testing.T) {
	t.Parallel()
	cfg := embedded(t)
	writeManifest(t, cfg.ConnectorsDir, "any", "1.0.0", strings.NewReplacer(
		"name: probe,", "name: any,",
		"input: {type: object, additionalProperties: false, required: [n], properties: {n: {type: integer}, pad: {type: string}}}", "input: {type: object, additionalProperties: true}",
		`body: {n: {$: params.n}, pad: {$opt: "params.?pad"}}`, "body: {fixed: 1}",
	).Replace(testManifests()["probe"]))
	app, _ := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "any@1", vendor.URL())
	life, err := app.directory.FindLife(t.Context(), a.name, "")
	require.NoError(t, err)
	connection := a.must(200, "GET", "/v1/connections/c", nil).text("id")

	writes := map[string]bool{}
	for i, body := range append(identitytest.Same(), identitytest.Others()...) {
		want, err := identity.Derive(identity.Input{TenantID: life.TenantID, ConnectionID: connection, Action: "create", Body: []byte(body)})
		require.NoError(t, err)
		ways := []func() string{
			func() string { return a.do("c", "create", body).text("key.id") },
			func() string { return a.rawDo("1", doBody("c", "create", body)).text("key.id") },
			func() string { return a.rawTool("2", "c__create", body).text("key.id") },
		}
		for j := range ways {
			require.Equal(t, want.Identity.PublicID(), ways[(i+j)%len(ways)](), body)
		}
		writes[want.Identity.PublicID()] = true
	}
	require.Len(t, writes, 1+len(identitytest.Others()))
	require.Equal(t, len(writes), vendor.Arrivals(), "each write once, whichever way it came first")
}

// REST's table of refusals, over MCP: the same answer where the arguments are one
// JSON value, and a fault of the protocol where the message itself is broken.
func TestMCPRefusesWhatRESTRefuses(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	broken := 0
	for _, row := range apitest.Refusals() {
		t.Run(row.Name, func(t *testing.T) {
			a := *a
			a.t = t
			message := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":` + row.Body + `}}`
			if !json.Valid([]byte(message)) {
				broken++
				status, _, raw := a.post(t.Context(), message)
				require.Equal(t, http.StatusBadRequest, status, raw)
				return
			}
			rest := a.call("POST", "/v1/do", row.Body)
			require.Equal(t, row.Code, rest.text("code"))
			over := a.rawDo("1", row.Body).says("NOT DONE by this call: ").failed(true)
			delete(rest.body, "request_id")
			delete(over.body, "request_id")
			require.Equal(t, rest.body, over.body)
		})
	}
	require.Equal(t, 4, broken, "blank, cut, two values, byte-order mark")
	require.Zero(t, vendor.Arrivals())
}

// structuredContent is the answer of REST: each token as it is. The SDK takes the
// blanks between them out and writes <, > and & as \u escapes, which is the same
// JSON; the text has the very bytes.
func TestMCPStructuredContentHasTheTokensOfTheAnswer(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, func(c *vendortest.Call) {
		c.JSON(201, `{"total": 1.10,"big":12345678901234567890, "z":[] ,"a":"<&>\u00e9é","e":1E+2}`)
	})
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	status, _, raw := a.post(t.Context(), `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"do","arguments":`+doBody("c", "create", `{"n":1}`)+`}}`)
	require.Equal(t, 200, status)
	_, data, _ := strings.Cut(raw, "data: ")
	result := rawMember(t, []byte(data), "result")
	structured := rawMember(t, []byte(result), "structuredContent")
	over := readTool(t, unmarshalResult(t, result))
	var want bytes.Buffer
	require.NoError(t, json.Compact(&want, over.raw))
	require.Equal(t, strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`).Replace(want.String()), structured)
	require.Contains(t, structured, `"total":1.10,"big":12345678901234567890,"z":[],"a":`)
	require.Equal(t, over.text("request_id"), rawText(t, []byte(rawMember(t, []byte(result), "_meta")), "dev.holdfast/request-id"))
}

func unmarshalResult(t testing.TB, raw string) *mcpsdk.CallToolResult {
	t.Helper()
	var r mcpsdk.CallToolResult
	require.NoError(t, json.Unmarshal([]byte(raw), &r))
	return &r
}

func rawText(t testing.TB, raw []byte, name string) (s string) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(rawMember(t, raw, name)), &s))
	return s
}

// rawCall sends one tools/call with these params, as bytes.
func (a *agent) rawCall(id, params string) toolAnswer {
	a.t.Helper()
	status, _, raw := a.post(a.t.Context(), `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{`+params+`}}`)
	_, data, ok := strings.Cut(raw, "data: ")
	require.True(a.t, ok, "%d %s", status, raw)
	var message struct {
		Result *mcpsdk.CallToolResult `json:"result"`
	}
	require.NoError(a.t, json.Unmarshal([]byte(data), &message), data)
	require.NotNil(a.t, message.Result, data)
	return readTool(a.t, message.Result)
}

func (a *agent) rawTool(id, name, arguments string) toolAnswer {
	a.t.Helper()
	return a.rawCall(id, fmt.Sprintf(`"name":%q,"arguments":%s`, name, arguments))
}
