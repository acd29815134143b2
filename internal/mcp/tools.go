package mcp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"holdfast.dev/gateway/internal/strictjson"
)

// tool is one thing an agent can ask for.
type tool struct {
	name, title, description string
	input                    string // JSON Schema
	reads                    bool   // changes nothing anywhere
	// run makes the request. The arguments are as the message has them.
	run func(ctx context.Context, arguments json.RawMessage) (answer, error)
	// word says in the first words of the text what the answer means.
	word func(answer) words
}

const (
	nameSchema  = `{"type":"string","minLength":1}`
	pageSchemas = `"limit":{"type":"integer","minimum":1,"maximum":200},"cursor":{"type":"string","description":"next_cursor of the page before"}`
)

func object(required, properties string) string {
	return `{"type":"object","additionalProperties":false,"required":[` + required + `],"properties":{` + properties + `}}`
}

func (s *Server) tools() []tool {
	idSchema := object(`"id"`, `"id":{"type":"string","description":"of the action: act_…"}`)
	return []tool{
		{
			name: "do", title: "Make a write, at most once",
			description: "Makes a write at a vendor through one of your connections. Repeating the same call is always safe: it is sent once, and a repeat is answered from the record. " +
				"After UNKNOWN do not send the write again in other words or under another key.",
			input: object(`"connection","action"`, `"connection":`+nameSchema+`,"action":`+nameSchema+`,`+
				`"body":{"type":"object","description":"the arguments of the action; describe_action has their schema"},`+
				`"idempotency_key":{"type":"string","minLength":1,"maxLength":255,"description":"only to make the very same write once more on purpose: a new key for a new write"},`+
				`"retry_refused":{"type":"boolean","description":"send again a write that the vendor refused"},`+
				`"allow_duplicate":{"type":"boolean","description":"send although an identical write under another key is unsettled"},`+
				`"dry_run":{"type":"boolean","description":"only say what would happen"},`+
				`"meta":{"type":"object","maxProperties":16,"additionalProperties":{"type":"string"},"description":"your own labels for the audit; never part of what makes two writes the same"}`),
			run: func(ctx context.Context, arguments json.RawMessage) (answer, error) {
				return s.api.call(ctx, http.MethodPost, "/v1/do", arguments)
			},
			word: wordsOfDo,
		},
		{
			name: "list_connections", title: "List connections", reads: true,
			description: "The accounts at vendors you can write to, and the connector of each.",
			input:       object(``, pageSchemas),
			run:         s.get(wantPage(), func(p params) string { return "/v1/connections" + p.page(nil) }),
			word:        wordsOfLook,
		},
		{
			name: "describe_action", title: "Describe an action", reads: true,
			description: "What an action of a connection takes (its input schema), what it does, and how long an answer is replayed. Without an action: all actions of the connection.",
			input:       object(`"connection"`, `"connection":`+nameSchema+`,"action":`+nameSchema),
			run:         s.describe,
			word:        wordsOfLook,
		},
		{
			name: "get_action", title: "Look at a write", reads: true,
			description: "How a write stands, its result, and its history.",
			input:       idSchema,
			run:         s.get(wantID(), func(p params) string { return "/v1/actions/" + url.PathEscape(p.ID) }),
			word:        wordsOfAction,
		},
		{
			name: "list_held", title: "List held writes", reads: true,
			description: "Writes of which it is not known whether they were done. They are not sent again.",
			input:       object(``, `"connection":`+nameSchema+`,`+pageSchemas),
			run: s.get(wantPage("connection"), func(p params) string {
				q := url.Values{"state": {"held"}}
				if p.Connection != "" {
					q.Set("connection", p.Connection)
				}
				return "/v1/actions" + p.page(q)
			}),
			word: wordsOfLook,
		},
		{
			name: "check_action", title: "Find out about a held write",
			description: "Finds out at the vendor whether a held write was done, as its connector says: by looking, or by sending the same bytes under the vendor's own key.",
			input:       idSchema,
			run: func(ctx context.Context, arguments json.RawMessage) (answer, error) {
				p, bad := readParams(arguments, wantID())
				if bad != nil {
					return *bad, nil
				}
				return s.api.call(ctx, http.MethodPost, "/v1/actions/"+url.PathEscape(p.ID)+"/check", nil)
			},
			word: wordsOfCheck,
		},
	}
}

// described is the tool as the protocol lists it. What writes is called
// destructive and open: the connection decides what it reaches. It is idempotent
// within the replay window.
func (t tool) described() *sdk.Tool {
	yes, no := true, false
	a := &sdk.ToolAnnotations{Title: t.title, IdempotentHint: true, DestructiveHint: &yes, OpenWorldHint: &yes}
	if t.reads {
		a.ReadOnlyHint, a.DestructiveHint, a.OpenWorldHint = true, &no, &no
	}
	return &sdk.Tool{Name: t.name, Title: t.title, Description: t.description, InputSchema: json.RawMessage(t.input), Annotations: a}
}

// handler runs a tool. Whatever the API answers is a result; an agent never sees
// a protocol error for what became of a write.
func (s *Server) handler(t tool) sdk.ToolHandler {
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		arguments := req.Params.Arguments
		if len(arguments) == 0 {
			arguments = json.RawMessage("{}")
		}
		stop := s.progress(ctx, req)
		a, err := t.run(traceable(ctx, req.Params.Meta), arguments)
		stop()
		if err != nil {
			s.log.WarnContext(ctx, "tool call without an answer", "tool", t.name, "error", err)
			return unanswered(t), nil
		}
		return result(t, a), nil
	}
}

// progress tells a caller that asked for it that the call still runs. The
// function it returns ends that, and returns when it has ended.
func (s *Server) progress(ctx context.Context, req *sdk.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(s.every)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			// A caller that cannot be told is told nothing; its call runs on.
			_ = req.Session.NotifyProgress(ctx, &sdk.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(n), Message: "still running; it is sent once",
			})
		}
	}()
	return func() { close(quit); <-done }
}

// params are the arguments of the tools that look.
type params struct {
	ID         string `json:"id"`
	Connection string `json:"connection"`
	Action     string `json:"action"`
	Limit      int    `json:"limit"`
	Cursor     string `json:"cursor"`
}

func (p params) page(q url.Values) string {
	if q == nil {
		q = url.Values{}
	}
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if p.Cursor != "" {
		q.Set("cursor", p.Cursor)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// want says which members a tool takes, and which of them it needs.
type want struct {
	may  []string
	must string
}

func wantID() want                    { return want{may: []string{"id"}, must: "id"} }
func wantPage(also ...string) want    { return want{may: append(also, "limit", "cursor")} }
func wantConnection() want            { return want{may: []string{"connection", "action"}, must: "connection"} }
func (w want) takes(name string) bool { return slices.Contains(w.may, name) }

func (s *Server) get(w want, path func(params) string) func(context.Context, json.RawMessage) (answer, error) {
	return func(ctx context.Context, arguments json.RawMessage) (answer, error) {
		p, bad := readParams(arguments, w)
		if bad != nil {
			return *bad, nil
		}
		return s.api.call(ctx, http.MethodGet, path(p), nil)
	}
}

// describe reads the connection to find its connector, and of that the action.
func (s *Server) describe(ctx context.Context, arguments json.RawMessage) (answer, error) {
	p, bad := readParams(arguments, wantConnection())
	if bad != nil {
		return *bad, nil
	}
	a, err := s.api.call(ctx, http.MethodGet, "/v1/connections/"+url.PathEscape(p.Connection), nil)
	if err != nil || !a.ok() {
		return a, err
	}
	connector := text(a.body, "connector")
	a, err = s.api.call(ctx, http.MethodGet, "/v1/connectors/"+url.PathEscape(connector), nil)
	if err != nil || !a.ok() || p.Action == "" {
		return a, err
	}
	list, err := strictjson.Elements(member(a.body, "actions"))
	if err != nil {
		return answer{}, errNoAnswer
	}
	for _, action := range list {
		if text(action, "name") == p.Action {
			a.body = action
			return a, nil
		}
	}
	return problem("/action", "the connector "+connector+" has no such action; leave action out to see those it has"), nil
}
