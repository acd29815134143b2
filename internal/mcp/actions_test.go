package mcp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// fakeAPI answers GET /v1/tools by cursor, and keeps what is done.
type fakeAPI struct {
	pages map[string]string
	did   []string
}

func (f *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	status, body := 200, `{"id":"act_1","state":"succeeded","settled_at":"now"}`
	if r.URL.Path == "/v1/tools" {
		body = f.pages[r.URL.Query().Get("cursor")]
		switch {
		case body == "":
			return nil, io.ErrUnexpectedEOF
		case strings.Contains(body, `"code"`):
			status = 503
		}
	} else {
		raw, _ := io.ReadAll(r.Body)
		f.did = append(f.did, r.URL.Path+" "+string(raw))
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func page(next string, pairs ...[2]string) string {
	var items []string
	for _, p := range pairs {
		items = append(items, fmt.Sprintf(`{"connection":%q,"account":"Jo & Co","action":{"name":%q,"effect":"create","input":{"type":"object"},"replay":{"window":"24h"}}}`, p[0], p[1]))
	}
	more := ""
	if next != "" {
		more = fmt.Sprintf(`,"next_cursor":%q`, next)
	}
	return `{"data":[` + strings.Join(items, ",") + `]` + more + `}`
}

func connected(t *testing.T, api *fakeAPI) *sdk.ClientSession {
	t.Helper()
	server := New(Config{API: api, Version: "test"})
	near, far := sdk.NewInMemoryTransports()
	ss, err := server.sdk.Connect(t.Context(), far, nil)
	require.NoError(t, err)
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(), near, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close(); _ = ss.Wait() })
	return session
}

const awkward = "a__b" // a connection whose tools have names that were cut

func TestNamesThatWereCutAreLookedFor(t *testing.T) {
	api := &fakeAPI{pages: map[string]string{
		"": page("n1", [2]string{"a", "create"}), "n1": page("n2"), "n2": page("", [2]string{awkward, "create"}, [2]string{awkward, "twice"}, [2]string{awkward, "twice"}),
	}}
	session := connected(t, api)
	call := func(name string) (*sdk.CallToolResult, error) {
		return session.CallTool(t.Context(), &sdk.CallToolParams{Name: name, Arguments: json.RawMessage(`{ "n" : 1.10 }`)})
	}
	r, err := call(toolName(awkward, "create"))
	require.NoError(t, err)
	require.False(t, r.IsError)
	_, err = call("plain__create")
	require.NoError(t, err)
	require.Equal(t, []string{
		`/v1/do {"connection":"a__b","action":"create","body":{"n":1.10}}`, // the client took the blanks out
		`/v1/do {"connection":"plain","action":"create","body":{"n":1.10}}`,
	}, api.did)

	// Two of a name are none, and so is one that is not there.
	for _, name := range []string{toolName(awkward, "twice"), toolName(awkward, "none")} {
		_, err = call(name)
		var refused *jsonrpc.Error
		require.ErrorAs(t, err, &refused)
		require.EqualValues(t, jsonrpc.CodeInvalidParams, refused.Code)
	}

	// What became of the write is no matter of the protocol, also when the name could
	// not be looked up.
	api.pages["n1"] = `{"code":"store_unavailable","detail":"The store is away."}`
	r, err = call(toolName(awkward, "create"))
	require.NoError(t, err)
	require.True(t, r.IsError)
	require.Contains(t, r.Content[0].(*sdk.TextContent).Text, "NOT DONE by this call: The store is away.")
	api.pages["n1"] = ""
	r, err = call(toolName(awkward, "create"))
	require.NoError(t, err)
	require.True(t, r.IsError)
	require.Contains(t, r.Content[0].(*sdk.TextContent).Text, "UNKNOWN: may have been done")
	require.Len(t, api.did, 2)
}

func TestListOfTools(t *testing.T) {
	api := &fakeAPI{pages: map[string]string{
		"": page("n1", [2]string{"a", "create"}), "n1": page("", [2]string{"b", "create"}),
		"odd": `{"data":[{"connection":"c","action":{"name":"odd","effect":"delete","input":true,"replay":{"window":"60s"}}}]}`,
	}}
	session := connected(t, api)
	list := func(cursor string) *sdk.ListToolsResult {
		t.Helper()
		r, err := session.ListTools(t.Context(), &sdk.ListToolsParams{Cursor: cursor})
		require.NoError(t, err)
		return r
	}
	first := list("")
	require.Len(t, first.Tools, 7)
	require.Equal(t, "n1", first.NextCursor)
	require.Contains(t, first.Tools[6].Description, "(account: Jo & Co)")
	second := list("n1")
	require.Len(t, second.Tools, 1)
	require.Equal(t, "b__create", second.Tools[0].Name)
	require.Empty(t, second.NextCursor)
	odd := list("odd").Tools[0]
	require.Equal(t, map[string]any{"type": "object"}, odd.InputSchema, "clients refuse a list for one schema of no object")
	require.True(t, *odd.Annotations.DestructiveHint)

	for _, away := range []string{"", `{"code":"store_unavailable"}`} {
		api.pages["n1"] = away
		_, err := session.ListTools(t.Context(), &sdk.ListToolsParams{Cursor: "n1"})
		require.Error(t, err, "a page that was asked for is there or is not")
		whole := api.pages[""]
		api.pages[""] = away
		r := list("")
		require.Len(t, r.Tools, 6, "the fixed tools do not depend on the gateway")
		require.NotEmpty(t, r.Meta[metaIncomplete])
		api.pages[""] = whole
	}
}
