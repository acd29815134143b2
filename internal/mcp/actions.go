package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"holdfast.dev/gateway/internal/strictjson"
)

// Names of the protocol's methods.
const (
	methodList = "tools/list"
	methodCall = "tools/call"
)

// Sizes of a page of tools: to an agent, and where one of them is looked for.
const (
	listPage = "50"
	findPage = "200"
)

// metaIncomplete is where a list says that it lacks the tools of actions, and why.
const metaIncomplete = "dev.holdfast/incomplete"

// metaLabels is where a call of an action's own tool may have labels for the audit:
// its arguments are those of the action, so there is no room among them.
const metaLabels = "dev.holdfast/meta"

// offered is one action of a connection that is to be a tool of its own.
type offered struct {
	name               string
	connection, action string
	account            string
	about              json.RawMessage // as describe_action shows it
}

// offers reads a page of them.
func (s *Server) offers(ctx context.Context, limit, cursor string) (page []offered, next string, a answer, err error) {
	q := url.Values{"limit": {limit}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if a, err = s.api.call(ctx, http.MethodGet, "/v1/tools?"+q.Encode(), nil); err != nil || !a.ok() {
		return nil, "", a, err
	}
	list, err := strictjson.Elements(member(a.body, "data"))
	if err != nil {
		return nil, "", a, errNoAnswer
	}
	for _, item := range list {
		about := member(item, "action")
		o := offered{connection: text(item, "connection"), action: text(about, "name"), account: text(item, "account"), about: about}
		o.name = toolName(o.connection, o.action)
		page = append(page, o)
	}
	return page, text(a.body, "next_cursor"), a, nil
}

// described is the action as the protocol lists a tool. What only adds is called
// not destructive, in the protocol's sense of the word; that a vendor is told is
// always open.
func (o offered) described() *sdk.Tool {
	effect, window := text(o.about, "effect"), text(member(o.about, "replay"), "window")
	destructive, open := effect != "create", true
	title := o.action + " on " + o.connection
	whose := ""
	if o.account != "" {
		whose = " (account: " + o.account + ")"
	}
	schema := json.RawMessage(member(o.about, "input"))
	if text(schema, "type") != "object" {
		schema = json.RawMessage(`{"type":"object"}`) // clients refuse a whole list for one other
	}
	return &sdk.Tool{
		Name: o.name, Title: title, InputSchema: schema,
		Description: text(o.about, "description") + " Through the connection " + o.connection + whose + ", at most once: repeating the same call within " + window +
			" is answered from the record. To make the very same write once more on purpose, call do with a new idempotency_key.",
		Annotations: &sdk.ToolAnnotations{Title: title, IdempotentHint: true, DestructiveHint: &destructive, OpenWorldHint: &open},
	}
}

// actionTools adds the tools of actions to the fixed ones. They are not kept in
// the SDK's server, which all callers share: who asks decides which there are.
func (s *Server) actionTools(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		switch r := req.(type) {
		case *sdk.ListToolsRequest:
			if method == methodList {
				return s.list(ctx, r, next)
			}
		case *sdk.CallToolRequest:
			if t, ok := s.actionTool(ctx, r); ok && method == methodCall {
				return s.handler(t)(ctx, r)
			}
		}
		return next(ctx, method, req)
	}
}

// list is a page: the first has the fixed tools, and each some of the others. The
// cursor is the API's.
func (s *Server) list(ctx context.Context, req *sdk.ListToolsRequest, next sdk.MethodHandler) (sdk.Result, error) {
	cursor := ""
	if req.Params != nil {
		cursor = req.Params.Cursor
		params := *req.Params
		params.Cursor = ""
		req.Params = &params
		ctx = traceable(ctx, params.Meta)
	}
	made, err := next(ctx, methodList, req)
	if err != nil {
		return nil, err
	}
	out, ok := made.(*sdk.ListToolsResult)
	if !ok {
		return made, nil
	}
	if cursor != "" {
		out.Tools = []*sdk.Tool{}
	}
	page, more, a, err := s.offers(ctx, listPage, cursor)
	if err != nil || !a.ok() {
		return s.listWithout(ctx, out, cursor, a, err)
	}
	for _, o := range page {
		out.Tools = append(out.Tools, o.described())
	}
	out.NextCursor = more
	return out, nil
}

// listWithout answers where the tools of actions could not be read. The fixed tools
// are better than none, since clients ask once, and `do` reaches every action; that
// the list is not whole is said.
func (s *Server) listWithout(ctx context.Context, out *sdk.ListToolsResult, cursor string, a answer, err error) (sdk.Result, error) {
	switch {
	case cursor == "":
		s.log.WarnContext(ctx, "list of tools without those of actions", "status", a.status, "error", err)
		out.Meta = sdk.Meta{metaIncomplete: "the tools of single actions could not be read; do reaches every action; list the tools again for the others"}
		return out, nil
	case err == nil && a.status == http.StatusBadRequest:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the cursor is not one of this list", Data: json.RawMessage(a.body)}
	default:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "this page of the tools could not be read; ask for it again"}
	}
}

// actionTool is the tool of an action, if the name is that of one. It does not ask
// whether the tool is listed (any more): the list is for agents to choose from and
// no permission, and a write that exists is answered whatever has changed since.
// What there is not is for the API to say. Only a name that was cut has to be looked
// for.
func (s *Server) actionTool(ctx context.Context, req *sdk.CallToolRequest) (t tool, ok bool) {
	t = tool{name: req.Params.Name, word: wordsOfDo}
	connection, action, plain := splitName(req.Params.Name)
	if !plain {
		if !isCut(req.Params.Name) {
			return tool{}, false
		}
		o, a, err := s.find(traceable(ctx, req.Params.Meta), req.Params.Name)
		if err != nil || !a.ok() {
			t.run = func(context.Context, json.RawMessage) (answer, error) { return a, err }
			return t, true
		}
		if o == nil {
			return tool{}, false
		}
		connection, action = o.connection, o.action
	}
	labels := req.Params.Meta[metaLabels]
	t.run = func(ctx context.Context, arguments json.RawMessage) (answer, error) {
		body, err := doOf(connection, action, arguments, labels)
		if err != nil {
			return answer{}, err
		}
		return s.api.call(ctx, http.MethodPost, "/v1/do", body)
	}
	return t, true
}

// find looks for the action whose name was cut. Two of one name are none: to choose
// would be to guess whose account is written to.
func (s *Server) find(ctx context.Context, name string) (*offered, answer, error) {
	var found []offered
	for cursor := ""; ; {
		page, next, a, err := s.offers(ctx, findPage, cursor)
		if err != nil || !a.ok() {
			return nil, a, err
		}
		for _, o := range page {
			if o.name == name {
				found = append(found, o)
			}
		}
		switch {
		case next != "":
			cursor = next
		case len(found) == 1:
			return &found[0], a, nil
		default:
			return nil, a, nil
		}
	}
}

// doOf is the body of the `do` that a call of an action's own tool stands for. The
// arguments are not touched.
func doOf(connection, action string, arguments json.RawMessage, labels any) ([]byte, error) {
	head, err := json.Marshal(struct {
		Connection string `json:"connection"`
		Action     string `json:"action"`
		Meta       any    `json:"meta,omitempty"`
	}{connection, action, labels})
	if err != nil {
		return nil, fmt.Errorf("encode do: %w", err)
	}
	body := append(head[:len(head)-1], `,"body":`...)
	return append(append(body, arguments...), '}'), nil
}
