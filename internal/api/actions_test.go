package api_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
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

	lost := "act_01M8MJ56KJMRW8MFNY6FM36R2N"
	g.list = func(tenants.Principal, actions.ListFilter, string, int) ([]actions.View, string, error) {
		return []actions.View{{Lost: lost, LostAt: created}, {Record: succeeded()}}, "", nil
	}
	page := g.send("GET", "/v1/actions", "").json()["data"].([]any)
	require.Equal(t, map[string]any{"id": lost, "unreadable": true, "created_at": "2026-11-29T16:04:05.678Z"}, page[0])
	require.Len(t, page, 2)
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
