package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

func held() *dedupe.Record {
	rec := succeeded()
	rec.State, rec.Evidence = dedupe.Held, ""
	rec.Outcome = dedupe.Outcome{Phase: "sent_no_answer", Reason: "deadline"}
	rec.Attempts = []dedupe.Attempt{{At: created, Duration: 30 * time.Second, Phase: "sent_no_answer", Reason: "deadline"}}
	rec.History = []dedupe.Change{{At: created, Event: dedupe.EventHeld, By: "k1", Detail: "note"}}
	return rec
}

func lookup() *actions.Check {
	return &actions.Check{Automatic: true, How: "lookup", Detail: "Look.", Method: "GET", URL: "https://vendor.example/x?a=1&b=<2>", Match: "body.id == op.marker", Settle: time.Minute}
}

const heldMembers = `"id":"` + actionID + `","state":"held","connection":"billing","action":"create_invoice",` +
	`"key":{"source":"derived","id":"9f2c000000000056"},"connector":"stripe@1.0.0",` +
	`"outcome":{"kind":"unknown","phase":"sent_no_answer","reason":"deadline"},` +
	`"created_at":"2026-11-29T16:04:05.678Z","settled_at":"2026-11-29T16:04:06.678Z","replay_until":"2026-11-30T16:04:05.678Z",` +
	`"hold_until":"2026-11-30T16:04:05.678Z","deadline":"2026-11-29T16:05:05.678Z","replays":0,` +
	`"request_id":"req_01M8M7436348F6NWE7WAX1MWFN","key_id":"k1",` +
	`"attempts":[{"at":"2026-11-29T16:04:05.678Z","duration_ms":30000,"phase":"sent_no_answer","reason":"deadline"}],` +
	checkMember + `,` +
	`"history":[{"at":"2026-11-29T16:04:05.678Z","event":"held","by":"k1","detail":"note"}]`

const checkMember = `"check":{"automatic":true,"how":"lookup","detail":"Look.","request":{"method":"GET","url":"https://vendor.example/x?a=1&b=<2>"},"match":"body.id == op.marker","settle":"60s"}`

func TestGetAction(t *testing.T) {
	g := newGateway(t)
	g.get = func(p tenants.Principal, id string) (actions.View, error) {
		require.Equal(t, "acme", p.Tenant)
		require.Equal(t, actionID, id)
		return actions.View{Record: held(), Check: lookup()}, nil
	}
	a := g.send("GET", "/v1/actions/"+actionID, "")
	require.Equal(t, 200, a.status)
	require.Equal(t, "{"+heldMembers+"}", string(a.body))

	g.get = func(tenants.Principal, string) (actions.View, error) {
		return actions.View{Record: succeeded(), Answer: jsonAnswer(`{ "raw" : 1.0 }`), Replays: 2}, nil
	}
	a = g.send("GET", "/v1/actions/"+actionID, "")
	require.Contains(t, string(a.body), `"result":{ "raw" : 1.0 },"outcome":{"kind":"succeeded","phase":"answered"},"vendor":{"status":201}`)
	require.Contains(t, string(a.body), `"replays":2`)
}

// Each state has its words, and none says more than is known.
func TestOutcomeOfEachState(t *testing.T) {
	for _, row := range []struct {
		state    dedupe.State
		phase    string
		resolved bool
		want     any
	}{
		{dedupe.InFlight, "", false, nil},
		{dedupe.Succeeded, "answered", false, "succeeded"},
		{dedupe.Refused, "answered", false, "refused"},
		{dedupe.Held, "sent_no_answer", false, "unknown"},
		{dedupe.Lapsed, "sent_no_answer", false, "unknown"},
		{dedupe.NotDone, "not_sent", false, "not_sent"},
		{dedupe.NotDone, "answered", false, "retryable"},
		{dedupe.NotDone, "sent_no_answer", true, "not_performed"},
	} {
		g := newGateway(t)
		g.get = func(tenants.Principal, string) (actions.View, error) {
			rec := succeeded()
			rec.State, rec.Outcome, rec.Resolved = row.state, dedupe.Outcome{Phase: row.phase}, row.resolved
			return actions.View{Record: rec}, nil
		}
		outcome, _ := g.send("GET", "/v1/actions/"+actionID, "").json()["outcome"].(map[string]any)
		require.Equal(t, row.want, outcome["kind"], "%s %s", row.state, row.phase)
	}
}

func TestListActions(t *testing.T) {
	g := newGateway(t)
	g.list = func(p tenants.Principal, f actions.ListFilter, cursor string, limit int) ([]actions.View, string, error) {
		require.Equal(t, "acme", p.Tenant)
		require.Equal(t, actions.ListFilter{State: "held", Connection: "billing", Action: "create_invoice",
			Since: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC), Until: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}, f)
		require.Equal(t, "abc", cursor)
		require.Equal(t, 2, limit)
		return []actions.View{{Record: held(), Check: lookup()}, {Record: succeeded(), Answer: jsonAnswer(`"large"`)}}, "next", nil
	}
	a := g.send("GET", "/v1/actions?state=held&connection=billing&action=create_invoice&since=2026-11-29T00:00:00Z&until=2026-11-30T00:00:00Z&limit=2&cursor=abc", "")
	require.Equal(t, 200, a.status)
	require.Contains(t, string(a.body), `{"data":[{`+heldMembers+`},{"id":"`)
	require.NotContains(t, string(a.body), `"result"`, "results stay out of lists")
	require.Equal(t, "next", a.json()["next_cursor"])

	g.list = func(_ tenants.Principal, f actions.ListFilter, _ string, limit int) ([]actions.View, string, error) {
		require.Zero(t, f)
		require.Equal(t, 50, limit)
		return nil, "", nil
	}
	require.Equal(t, `{"data":[]}`, string(g.send("GET", "/v1/actions", "").body))
}

func TestQueriesAreReadStrictly(t *testing.T) {
	g := newGateway(t)
	for _, row := range []struct {
		query      string
		parameters []any
	}{
		{"sate=held", []any{"sate"}},
		{"State=held", []any{"State"}},
		{"state=HELD", []any{"state"}},
		{"state=held&state=held", []any{"state"}},
		{"limit=0", []any{"limit"}},
		{"limit=201", []any{"limit"}},
		{"limit=x", []any{"limit"}},
		{"limit=1e2", []any{"limit"}},
		{"since=yesterday", []any{"since"}},
		{"until=2026-11-29", []any{"until"}},
		{"since=1&until=2&limit=-1", []any{"limit", "since", "until"}},
		{"state=%zz", []any{nil}},
		{"a;b", []any{nil}},
	} {
		a := g.send("GET", "/v1/actions?"+row.query, "")
		require.Equal(t, "invalid_request", a.code(), row.query)
		var got []any
		for _, e := range a.json()["errors"].([]any) {
			got = append(got, e.(map[string]any)["parameter"])
		}
		require.Equal(t, row.parameters, got, row.query)
	}
}

func TestCheckAction(t *testing.T) {
	g := newGateway(t)
	g.check = func(id, requestID string) (actions.CheckResult, error) {
		require.Equal(t, actionID, id)
		require.NotEmpty(t, requestID)
		return actions.CheckResult{Verdict: "still_unknown", Detail: "Nothing found yet.", View: actions.View{Record: held(), Check: lookup()}}, nil
	}
	a := g.send("POST", "/v1/actions/"+actionID+"/check", "")
	require.Equal(t, `{"verdict":"still_unknown","detail":"Nothing found yet.","request_id":"`+a.header.Get("Request-Id")+`","action":{`+heldMembers+`}}`, string(a.body))
}

func TestResolveAction(t *testing.T) {
	g := newGateway(t)
	var got actions.Resolution
	g.resolve = func(id string, r actions.Resolution) (actions.View, error) {
		require.Equal(t, actionID, id)
		got = r
		return actions.View{Record: succeeded(), Answer: jsonAnswer(`{}`)}, nil
	}
	path := "/v1/actions/" + actionID + "/resolve"
	require.Equal(t, 200, g.send("POST", path, `{"outcome":"succeeded","result":{ "id":1.0 },"note":"seen"}`).status)
	require.Equal(t, actions.Resolution{Succeeded: true, Result: []byte(`{ "id":1.0 }`), Note: "seen"}, got)
	require.Equal(t, 200, g.send("POST", path, `{"outcome":"succeeded"}`).status)
	require.Equal(t, actions.Resolution{Succeeded: true}, got)
	require.Equal(t, 200, g.send("POST", path, `{"outcome":"succeeded","result":null}`).status)
	require.Equal(t, "null", string(got.Result))
	require.Equal(t, 200, g.send("POST", path, `{"outcome":"not_performed","note":"asked"}`).status)
	require.Equal(t, actions.Resolution{Note: "asked"}, got)

	g.resolve = nil
	for body, pointer := range map[string]string{
		`{}`:                      "/outcome",
		`{"outcome":""}`:          "/outcome",
		`{"outcome":"failed"}`:    "/outcome",
		`{"outcome":null}`:        "/outcome",
		`{"Outcome":"succeeded"}`: "/Outcome",
		`{"outcome":"not_performed","result":{}}`:                            "/result",
		`{"outcome":"succeeded","note":1}`:                                   "/note",
		`{"outcome":"succeeded","result":9007199254740993}`:                  "/result",
		`{"outcome":"succeeded","note":"` + strings.Repeat("x", 1025) + `"}`: "/note",
	} {
		a := g.send("POST", path, body)
		require.Equal(t, "invalid_request", a.code(), body)
		require.Equal(t, pointer, pointersOf(a)[0], body)
	}
}

func TestHeldProblemCarriesTheCheck(t *testing.T) {
	g := newGateway(t)
	rec := held()
	rec.Previous = &dedupe.Previous{ID: dedupe.ActionID{1}, State: dedupe.Refused, At: created}
	a := g.answerWith(&actions.Error{Code: actions.OutcomeUnknown, Detail: "D.", Record: rec, Check: lookup(), Replayed: true})
	require.Equal(t, "true", a.header.Get("Idempotent-Replayed"))
	require.Equal(t, "/v1/actions/"+actionID, a.header.Get("Location"))
	require.Equal(t, `{"type":"/problems/outcome_unknown","title":"Outcome unknown","status":423,"code":"outcome_unknown","detail":"D.",`+
		`"next":"check_vendor","request_id":"`+a.header.Get("Request-Id")+`","action_id":"`+actionID+`",`+
		`"outcome":{"kind":"unknown","phase":"sent_no_answer","reason":"deadline"},"replayed":true,`+checkMember+`,`+
		`"previous_write":{"id":"act_01000000000000000000000000","state":"refused","at":"2026-11-29T16:04:05.678Z"}}`, string(a.body))
}

func TestRefusalCarriesTheVendorsWords(t *testing.T) {
	g := newGateway(t)
	rec := succeeded()
	rec.State = dedupe.Refused
	rec.Outcome = dedupe.Outcome{Phase: "answered", VendorStatus: 404, Code: "resource_missing", Message: `No "such" customer <x>`}
	a := g.answerWith(&actions.Error{Code: actions.VendorRefused, Record: rec, Next: actions.AskOperator})
	require.Contains(t, string(a.body), `"next":"ask_operator"`)
	require.Contains(t, string(a.body), `"outcome":{"kind":"refused","phase":"answered"},"replayed":false,`+
		`"vendor":{"status":404,"code":"resource_missing","message":"No \"such\" customer <x>"}}`)
}

// The other write's outcome is not this one's: an agent reads it literally.
func TestProblemsAboutAnotherWriteDoNotTellItsOutcome(t *testing.T) {
	for _, code := range []actions.Code{actions.KeyReused, actions.TwinUnsettled} {
		g := newGateway(t)
		a := g.answerWith(&actions.Error{Code: code, Record: succeeded()})
		require.Equal(t, actionID, a.json()["action_id"])
		for _, member := range []string{"outcome", "vendor", "replayed", "previous_write"} {
			require.NotContains(t, a.json(), member)
		}
	}
}

func TestAnswerNotSavedCarriesTheAnswer(t *testing.T) {
	rec := succeeded()
	rec.State = dedupe.InFlight
	for _, row := range []struct {
		unsaved *actions.Answer
		want    string
	}{
		{jsonAnswer(`{ "id" : 1.0 }`), `"unsaved_result":{ "id" : 1.0 }}`},
		{&actions.Answer{Kind: actions.ResultBinary, ContentType: "text/html", Data: []byte("<p>")}, `"unsaved_result_base64":"PHA+","unsaved_result_content_type":"text/html"}`},
		{&actions.Answer{Kind: actions.ResultOmitted, Reason: "too_large", Bytes: 9}, `"unsaved_result_omitted":{"reason":"too_large","bytes":9}}`},
	} {
		g := newGateway(t)
		a := g.answerWith(&actions.Error{Code: actions.AnswerNotSaved, Record: rec, Unsaved: row.unsaved})
		require.Contains(t, string(a.body), `"replayed":false,"vendor":{"status":201},`+row.want)
	}
}

func TestFieldProblemsOfThePathAreShown(t *testing.T) {
	g := newGateway(t)
	a := g.answerWith(&actions.Error{Code: actions.InvalidBody, Fields: []actions.FieldProblem{{Pointer: "/body/x", Reason: "r"}}})
	require.Contains(t, string(a.body), `"errors":[{"pointer":"/body/x","detail":"r"}]`)
}

func connection() connections.Connection {
	return connections.Connection{ID: "con_1", Name: "billing", Connector: "stripe@1", Config: []byte(`{"n":1.0}`), BaseURL: "https://api.stripe.com",
		CreatedAt: created, UpdatedAt: created, CredentialNames: []string{"api_key"}, Fingerprint: "00ff00ff00ff00ff"}
}

const connectionJSON = `{"name":"billing","id":"con_1","connector":"stripe@1","config":{"n":1.0},"base_url":"https://api.stripe.com","paused":false,"auto_resend":false,` +
	`"credentials":{"names":["api_key"],"fingerprint":"00ff00ff00ff00ff"},"created_at":"2026-11-29T16:04:05.678Z","updated_at":"2026-11-29T16:04:05.678Z"}`

func TestConnections(t *testing.T) {
	g := newGateway(t)
	var got connections.Spec
	fresh := true
	g.conns.put = func(c audit.Caller, name string, s connections.Spec) (connections.Connection, bool, error) {
		require.Equal(t, audit.Actor{Kind: "key", KeyID: "k1"}, c.Actor)
		require.Equal(t, "acme", c.Tenant)
		require.Equal(t, "rest", c.Front)
		require.NotEmpty(t, c.RequestID)
		require.Equal(t, "billing", name)
		got = s
		return connection(), fresh, nil
	}
	a := g.send("PUT", "/v1/connections/billing", `{"connector":"stripe@1","config":{ "n":1.0 },"credentials":{"api_key":"sentinel-credential"},"base_url":"https://api.stripe.com","paused":false}`)
	require.Equal(t, 201, a.status)
	require.Equal(t, connectionJSON, string(a.body))
	no := false
	require.Equal(t, connections.Spec{Connector: "stripe@1", Config: []byte(`{ "n":1.0 }`), BaseURL: "https://api.stripe.com",
		Credentials: connections.Credentials{"api_key": "sentinel-credential"}, Paused: &no}, got)
	require.NotContains(t, g.logs.String(), "sentinel")

	fresh = false
	require.Equal(t, 200, g.send("PUT", "/v1/connections/billing", `{"auto_resend":true}`).status)
	yes := true
	require.Equal(t, connections.Spec{AutoResend: &yes}, got, "what is left out is left alone")

	g.conns.get = func(string) (connections.Connection, error) { return connection(), nil }
	require.Equal(t, connectionJSON, string(g.send("GET", "/v1/connections/billing", "").body))
	g.conns.list = func(cursor string, limit int) ([]connections.Connection, string, error) {
		require.Equal(t, "c", cursor)
		require.Equal(t, 7, limit)
		return []connections.Connection{connection()}, "n", nil
	}
	require.Equal(t, `{"data":[`+connectionJSON+`],"next_cursor":"n"}`, string(g.send("GET", "/v1/connections?limit=7&cursor=c", "").body))
	g.conns.remove = func(string) error { return nil }
	a = g.send("DELETE", "/v1/connections/billing", "")
	require.Equal(t, 204, a.status)
	require.Empty(t, a.body)
}

func TestConnectionRefusals(t *testing.T) {
	for _, row := range []struct {
		err      error
		code     string
		pointers []string
	}{
		{&connections.SpecError{Pointer: "/config/a", Reason: "r"}, "invalid_request", []string{"/config/a"}},
		{&connections.SpecError{Reason: "r"}, "invalid_request", nil},
		{fmt.Errorf("base_url: %w", connections.ErrFixed), "connection_fixed", nil},
		{connections.ErrUnsettled, "unsettled_writes", nil},
		{connections.ErrNotFound, "not_found", nil},
		{fmt.Errorf("x: %w", connections.ErrUnreadable), "stored_answer_unreadable", nil},
		{fmt.Errorf("x: %w", ledger.ErrUnavailable), "store_unavailable", nil},
		{fmt.Errorf("x: %w", ledger.ErrNotReady), "store_unavailable", nil},
		{fmt.Errorf("x: %w", audit.ErrClosed), "unauthenticated", nil},
		{errors.New("x"), "internal", nil},
	} {
		g := newGateway(t)
		g.conns.put = func(audit.Caller, string, connections.Spec) (connections.Connection, bool, error) {
			return connections.Connection{}, false, row.err
		}
		g.conns.remove = func(string) error { return row.err }
		method, body := "PUT", `{}`
		if row.code == "unsettled_writes" || row.code == "not_found" {
			method, body = "DELETE", ""
		}
		a := g.send(method, "/v1/connections/billing", body)
		require.Equal(t, row.code, a.code())
		require.Equal(t, row.pointers, pointersOf(a))
	}
	for body, pointer := range map[string]string{
		`{"credentials":{"api_key":1}}`: "/credentials/api_key",
		`{"credentials":null}`:          "/credentials",
		`{"paused":null}`:               "/paused",
		`{"secret":"x"}`:                "/secret",
	} {
		g := newGateway(t)
		require.Equal(t, []string{pointer}, pointersOf(g.send("PUT", "/v1/connections/billing", body)))
	}
}

func stripe(version string) connectors.Spec {
	schema, err := connectors.CompileSchema([]byte(`{"type": "object", "required": ["customer"]}`))
	if err != nil {
		panic(err)
	}
	return connectors.Spec{
		Name: "stripe", Version: version, Docs: "https://docs.stripe.com/api", VendorAPI: "basil",
		Auth:    connectors.Auth{Type: connectors.Bearer, Secret: "api_key"},
		BaseURL: connectors.BaseURL{Allow: []string{"https://api.stripe.com"}},
		Actions: map[string]connectors.ActionSpec{
			"create_invoice": {Name: "create_invoice", Effect: "create", Input: schema, Timeout: 30 * time.Second,
				Ignore: []string{"/nonce"}, ExposeHeaders: []string{"Request-Id"},
				Idempotency: &connectors.Idempotency{In: "header", Name: "Idempotency-Key", Retention: 24 * time.Hour, Documented: true},
				Checks: []connectors.CheckRule{{Kind: connectors.Resend, Within: 23 * time.Hour},
					{Kind: connectors.Lookup, Settle: time.Minute, Match: "m", Absent: connectors.StillUnknown}}},
			"create_customer": {Name: "create_customer", Description: "d", Effect: "create", Window: 90 * time.Second},
		},
	}
}

const stripeJSON = `{"connector":"stripe@1","name":"stripe","version":"1.2.0","docs":"https://docs.stripe.com/api","vendor_api":"basil",` +
	`"auth":{"type":"bearer","credentials":["api_key"]},"config":{"type":"object","additionalProperties":false},"base_url":{"allow":["https://api.stripe.com"]},"actions":[` +
	`{"name":"create_customer","description":"d","effect":"create","input":{"type":"object","additionalProperties":false},"timeout":"30s","replay":{"window":"90s","ignore":[],"check":[]},"expose_headers":[]},` +
	`{"name":"create_invoice","effect":"create","input":{"type": "object", "required": ["customer"]},"timeout":"30s","replay":{"window":"24h","ignore":["/nonce"],` +
	`"vendor_key":{"in":"header","name":"Idempotency-Key","strength":"documented","retention":"24h"},` +
	`"check":[{"how":"resend","within":"23h"},{"how":"lookup","settle":"60s","match":"m","absent":"still_unknown"}]},"expose_headers":["Request-Id"]}]}`

func TestConnectors(t *testing.T) {
	g := newGateway(t)
	g.specs = func() []connectors.Spec { return []connectors.Spec{stripe("1.2.0")} }
	require.Equal(t, `{"data":[`+stripeJSON+`]}`, string(g.send("GET", "/v1/connectors", "", as(readKey)).body))
	require.Equal(t, stripeJSON, string(g.send("GET", "/v1/connectors/stripe@1", "").body))
	require.Equal(t, stripeJSON, string(g.send("GET", "/v1/connectors/stripe", "").body))
	require.Equal(t, "not_found", g.send("GET", "/v1/connectors/stripe@2", "").code())
	require.Equal(t, "not_found", g.send("GET", "/v1/connectors/slack", "").code())

	g.specs = func() []connectors.Spec {
		return []connectors.Spec{stripe("2.0.0"), stripe("10.0.0"), stripe("9.1.0")}
	}
	require.Equal(t, "10.0.0", g.send("GET", "/v1/connectors/stripe", "").json()["version"], "the newest major, by number")
	require.Equal(t, "9.1.0", g.send("GET", "/v1/connectors/stripe@9", "").json()["version"])
}

func TestAudit(t *testing.T) {
	g := newGateway(t)
	row := audit.Row{Event: audit.Claimed, At: created, Tenant: "acme", Actor: audit.Actor{Kind: "key", KeyID: "k1"}, Front: "rest",
		RequestID: "req_1", ActionID: actionID, Connection: "billing", Action: "create_invoice", Meta: map[string]string{"run": `<"é">`}}
	g.query = func(scope ledger.Scope, f audit.Filter, p audit.Page) ([]audit.Entry, string, error) {
		require.Equal(t, ledger.ScopeOf("acme"), scope)
		require.Equal(t, audit.Filter{Event: audit.Claimed, Connection: "billing", Action: "create_invoice", ActionID: actionID, KeyID: "k1",
			Since: time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)}, f)
		require.Equal(t, audit.Page{Limit: 3, Newest: false, Cursor: "c"}, p)
		return []audit.Entry{{Row: row}, {Row: audit.Row{At: created}, Unreadable: true}}, "n", nil
	}
	a := g.send("GET", "/v1/audit?event=claimed&connection=billing&action=create_invoice&action_id="+actionID+"&key_id=k1&since=2026-11-29T00:00:00Z&order=oldest&limit=3&cursor=c", "")
	require.Equal(t, `{"data":[`+string(row.Encode())+`,{"at":"2026-11-29T16:04:05.678Z","unreadable":true}],"next_cursor":"n"}`, string(a.body))

	g.query = func(_ ledger.Scope, f audit.Filter, p audit.Page) ([]audit.Entry, string, error) {
		require.Zero(t, f)
		require.Equal(t, audit.Page{Limit: 50, Newest: true}, p)
		return nil, "", audit.ErrCursor
	}
	a = g.send("GET", "/v1/audit", "")
	require.Equal(t, "invalid_request", a.code())
	require.Contains(t, string(a.body), `"parameter":"cursor"`)
	for _, query := range []string{"event=nothing", "order=up", "state=held"} {
		require.Equal(t, "invalid_request", g.send("GET", "/v1/audit?"+query, "").code(), query)
	}
}

func TestTenants(t *testing.T) {
	g := newGateway(t)
	acme := tenants.Tenant{Ref: tenants.Ref{Tenant: "acme", TenantID: "incarnation-inside", Scope: ledger.ScopeOf("incarnation-inside")},
		Name: "Acme", Limits: tenants.Limits{MaxBody: 10}, CreatedAt: created, UpdatedAt: created}
	const acmeJSON = `{"id":"acme","name":"Acme","limits":{"max_body":10},"suspended":false,"created_at":"2026-11-29T16:04:05.678Z","updated_at":"2026-11-29T16:04:05.678Z"}`
	g.people.create = func(c audit.Caller, n tenants.NewTenant) (tenants.Tenant, error) {
		require.Equal(t, audit.Actor{Kind: "platform"}, c.Actor)
		require.Equal(t, tenants.NewTenant{ID: "acme", Name: "Acme", Limits: tenants.Limits{MaxBody: 10}}, n)
		return acme, nil
	}
	a := g.send("POST", "/v1/tenants", `{"id":"acme","name":"Acme","limits":{"max_body":10}}`, as(platformKey))
	require.Equal(t, 201, a.status)
	require.Equal(t, "/v1/tenants/acme", a.header.Get("Location"))
	require.Equal(t, acmeJSON, string(a.body))

	g.people.list = func(string, int) ([]tenants.Tenant, string, error) { return []tenants.Tenant{acme}, "", nil }
	require.Equal(t, `{"data":[`+acmeJSON+`]}`, string(g.send("GET", "/v1/tenants", "", as(platformKey)).body))
	g.people.get = func(id string) (tenants.Tenant, error) {
		require.Equal(t, "acme", id)
		return acme, nil
	}
	require.Equal(t, acmeJSON, string(g.send("GET", "/v1/tenants/acme", "", as(platformKey)).body))

	var patch tenants.Patch
	g.people.update = func(_ string, p tenants.Patch) (tenants.Tenant, error) {
		patch = p
		return acme, nil
	}
	require.Equal(t, 200, g.send("PATCH", "/v1/tenants/acme", `{"suspended":true}`, as(platformKey)).status)
	yes := true
	require.Equal(t, tenants.Patch{Suspended: &yes}, patch)
	require.Equal(t, 200, g.send("PATCH", "/v1/tenants/acme", `{"name":"","limits":{}}`, as(platformKey)).status)
	empty := ""
	require.Equal(t, tenants.Patch{Name: &empty, Limits: &tenants.Limits{}}, patch)

	g.people.remove = func(string) error { return nil }
	require.Equal(t, 204, g.send("DELETE", "/v1/tenants/acme", "", as(platformKey)).status)

	for _, row := range []struct {
		err  error
		code string
	}{
		{tenants.ErrExists, "already_exists"},
		{&tenants.InvalidError{Problems: []tenants.Problem{{Pointer: "/id", Reason: "r"}}}, "invalid_request"},
	} {
		g.people.create = func(audit.Caller, tenants.NewTenant) (tenants.Tenant, error) { return tenants.Tenant{}, row.err }
		require.Equal(t, row.code, g.send("POST", "/v1/tenants", `{"id":"acme"}`, as(platformKey)).code())
	}
	g.people.remove = func(string) error { return tenants.ErrUnsettled }
	require.Equal(t, "unsettled_writes", g.send("DELETE", "/v1/tenants/acme", "", as(platformKey)).code())
	g.people.get = func(string) (tenants.Tenant, error) { return tenants.Tenant{}, tenants.ErrNotFound }
	require.Equal(t, "not_found", g.send("GET", "/v1/tenants/gone", "", as(platformKey)).code())
}

// The host sees one tenant's lists with that tenant's scope and nothing more.
func TestHostsView(t *testing.T) {
	g := newGateway(t)
	ref := tenants.Ref{Tenant: "acme", TenantID: "i1", Scope: ledger.ScopeOf("i1")}
	g.people.get = func(string) (tenants.Tenant, error) { return tenants.Tenant{Ref: ref}, nil }
	g.list = func(p tenants.Principal, _ actions.ListFilter, _ string, _ int) ([]actions.View, string, error) {
		require.Equal(t, ref, p.Ref())
		require.True(t, p.Can(tenants.ScopeRead))
		require.False(t, p.Can(tenants.ScopeDo) || p.Can(tenants.ScopeResolve) || p.Can(tenants.ScopeManage))
		return nil, "", nil
	}
	g.query = func(s ledger.Scope, _ audit.Filter, _ audit.Page) ([]audit.Entry, string, error) {
		require.Equal(t, ref.Scope, s)
		return nil, "", nil
	}
	require.Equal(t, 200, g.send("GET", "/v1/tenants/acme/actions", "", as(platformKey)).status)
	require.Equal(t, 200, g.send("GET", "/v1/tenants/acme/audit", "", as(platformKey)).status)
}

func TestKeys(t *testing.T) {
	key := tenants.APIKey{ID: "pub", Label: "agent", Scopes: []tenants.KeyScope{"do", "read"},
		Grants: []tenants.Grant{{Connection: "billing", Actions: []string{"a"}}, {Connection: "chat"}}, ExpiresAt: created, CreatedAt: created,
		CreatedBy: audit.Actor{Kind: "key", KeyID: "k1"}}
	const keyMembers = `{"id":"pub","label":"agent","scopes":["do","read"],"grants":[{"connection":"billing","actions":["a"]},{"connection":"chat"}],` +
		`"expires_at":"2026-11-29T16:04:05.678Z","created_at":"2026-11-29T16:04:05.678Z","created_by":{"kind":"key","key_id":"k1"}`
	for _, who := range []string{tenantKey, platformKey} {
		g := newGateway(t)
		ref := someTenant().Ref()
		g.people.get = func(string) (tenants.Tenant, error) { return tenants.Tenant{Ref: ref}, nil }
		g.people.newKey = func(got tenants.Ref, n tenants.NewKey) (string, tenants.APIKey, error) {
			require.Equal(t, ref, got)
			require.Equal(t, tenants.NewKey{Label: "agent", Scopes: []tenants.KeyScope{"do", "read"},
				Grants: []tenants.Grant{{Connection: "billing", Actions: []string{"a"}}}, ExpiresAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)}, n)
			return "hf_sentinel", key, nil
		}
		a := g.send("POST", "/v1/tenants/acme/keys",
			`{"label":"agent","scopes":["do","read"],"grants":[{"connection":"billing","actions":["a"]}],"expires_at":"2027-01-01T00:00:00Z"}`, as(who))
		require.Equal(t, 201, a.status)
		require.Equal(t, keyMembers+`,"key":"hf_sentinel"}`, string(a.body))
		require.NotContains(t, g.logs.String(), "sentinel")

		g.people.keys = func(got tenants.Ref) ([]tenants.APIKey, string, error) {
			require.Equal(t, ref, got)
			return []tenants.APIKey{key}, "n", nil
		}
		require.Equal(t, `{"data":[`+keyMembers+`}],"next_cursor":"n"}`, string(g.send("GET", "/v1/tenants/acme/keys", "", as(who)).body))
		g.people.revoke = func(got tenants.Ref, id string) error {
			require.Equal(t, ref, got)
			require.Equal(t, "pub", id)
			return nil
		}
		require.Equal(t, 204, g.send("DELETE", "/v1/tenants/acme/keys/pub", "", as(who)).status)
	}
	g := newGateway(t)
	for body, pointer := range map[string]string{
		`{"scopes":["do"],"expires_at":"tomorrow"}`: "/expires_at",
		`{"scopes":["do"],"expires_at":""}`:         "/expires_at",
		`{"scopes":null}`:                           "/scopes",
		`{"scopes":["do"],"grants":null}`:           "/grants",
		`{"scopes":["do"],"grants":[{"conn":"a"}]}`: "/grants/0/conn",
	} {
		require.Equal(t, []string{pointer}, pointersOf(g.send("POST", "/v1/tenants/acme/keys", body)))
	}
}

func TestAdminListener(t *testing.T) {
	g := newGateway(t)
	admin := g.server.AdminHandler()
	require.Equal(t, `{"status":"ok"}`, string(g.sendTo(admin, "GET", "/healthz", "", with("Authorization")).body))
	require.Equal(t, `{"status":"ready"}`, string(g.sendTo(admin, "GET", "/readyz", "").body))

	g.ready = func() error { return fmt.Errorf("%w: maxmemory-policy is not noeviction", ledger.ErrNotReady) }
	a := g.sendTo(admin, "GET", "/readyz", "")
	require.Equal(t, "store_unavailable", a.code())
	require.Equal(t, 503, a.status)
	require.Contains(t, a.json()["detail"], "maxmemory-policy is not noeviction")
	require.Equal(t, "ask_operator", a.json()["next"])
	g.ready = func() error { return &actions.Error{Code: actions.Draining} }
	require.Equal(t, "draining", g.sendTo(admin, "GET", "/readyz", "").code())
	require.Equal(t, 200, g.sendTo(admin, "GET", "/healthz", "").status, "it runs all the same")

	a = g.sendTo(admin, "GET", "/metrics", "")
	require.Equal(t, 200, a.status)
	require.Contains(t, string(a.body), `holdfast_problems_total{code="draining"} 1`)
	require.Equal(t, "method_not_allowed", g.sendTo(admin, "POST", "/metrics", "").code())
	require.Equal(t, "not_found", g.sendTo(admin, "POST", "/debug/pprof", "").code())
	require.True(t, json.Valid(g.sendTo(admin, "GET", "/readyz", "").body))
}
