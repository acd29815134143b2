package api_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/tenants"
)

var created = time.Date(2026, 11, 29, 17, 4, 5, 678_900_000, time.FixedZone("CET", 3600))

func succeeded() *dedupe.Record {
	return &dedupe.Record{
		ID: dedupe.ActionID{1, 0x9a}, Identity: identity.Identity{0x9f, 0x2c, 7: 0x56}, Source: identity.Derived,
		State: dedupe.Succeeded, ConnectionID: "con_secret", Connection: "billing", Action: "create_invoice",
		Connector: "stripe@1.0.0", KeyID: "k1", RequestID: "req_01M8M7436348F6NWE7WAX1MWFN",
		Created: created, Settled: created.Add(time.Second), WindowEnd: created.Add(24 * time.Hour),
		HoldUntil: created.Add(24 * time.Hour), Deadline: created.Add(time.Minute),
		Marker: "marker-secret", VendorKey: "vendor-key-secret", Evidence: dedupe.ByVendor,
		Outcome:  dedupe.Outcome{Phase: "answered", VendorStatus: 201},
		Attempts: []dedupe.Attempt{{At: created, Duration: 450 * time.Millisecond, Phase: "answered", Status: 201}},
		History:  []dedupe.Change{{At: created, Event: dedupe.EventClaimed, By: "k1"}, {At: created.Add(time.Second), Event: dedupe.EventSucceeded}},
	}
}

const actionID = "act_01K80000000000000000000000"

func jsonAnswer(data string) *actions.Answer {
	return &actions.Answer{Kind: actions.ResultJSON, ContentType: "application/json", Data: []byte(data)}
}

func (g *gateway) replies(r actions.Reply) {
	g.do = func(context.Context, actions.Request) (actions.Reply, error) { return r, nil }
}

func TestFirstAnswerIsExact(t *testing.T) {
	g := newGateway(t)
	g.replies(actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{"id":"in_1"}`)})
	a := g.send("POST", "/v1/do", smallest)
	require.Equal(t, 200, a.status)
	require.Equal(t, "application/json", a.header.Get("Content-Type"))
	require.Equal(t, "false", a.header.Get("Idempotent-Replayed"))
	require.Equal(t, "/v1/actions/"+actionID, a.header.Get("Location"))
	require.Equal(t, `{"id":"`+actionID+`","state":"succeeded","replayed":false,"connection":"billing","action":"create_invoice",`+
		`"key":{"source":"derived","id":"9f2c000000000056"},"result":{"id":"in_1"},"vendor":{"status":201},`+
		`"created_at":"2026-11-29T16:04:05.678Z","settled_at":"2026-11-29T16:04:06.678Z","replay_until":"2026-11-30T16:04:05.678Z",`+
		`"replays":0,"evidence":"vendor","request_id":"`+a.header.Get("Request-Id")+`"}`, string(a.body))
}

func TestReplayIsTheFirstAnswerAndSaysSo(t *testing.T) {
	g := newGateway(t)
	g.replies(actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{"id":"in_1"}`)})
	first := g.send("POST", "/v1/do", smallest)
	g.replies(actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{"id":"in_1"}`), Replayed: true, Replays: 3})
	replay := g.send("POST", "/v1/do", smallest)
	require.Equal(t, 200, replay.status)
	require.Equal(t, "true", replay.header.Get("Idempotent-Replayed"))
	require.Equal(t, first.header.Get("Location"), replay.header.Get("Location"))

	want := string(first.body)
	want = strings.Replace(want, `"replayed":false`, `"replayed":true`, 1)
	want = strings.Replace(want, `"replays":0`, `"replays":3`, 1)
	want = strings.Replace(want, first.header.Get("Request-Id"), replay.header.Get("Request-Id"), 1)
	want = strings.TrimSuffix(want, "}") +
		`,"original":{"request_id":"req_01M8M7436348F6NWE7WAX1MWFN","at":"2026-11-29T16:04:05.678Z"}` +
		`,"notice":"Not sent again: done at 2026-11-29T16:04:06.678Z, request req_01M8M7436348F6NWE7WAX1MWFN. To do it once more on purpose, send a new idempotency_key."}`
	require.Equal(t, want, string(replay.body))
}

func TestNoticeDoesNotClaimMoreThanIsKnown(t *testing.T) {
	for evidence, words := range map[dedupe.Evidence]string{
		dedupe.ByCheck:    "found done at the vendor by a check at 2026-11-29T16:04:06.678Z",
		dedupe.ByOperator: "confirmed as done by an operator at 2026-11-29T16:04:06.678Z",
	} {
		g := newGateway(t)
		rec := succeeded()
		rec.Evidence, rec.Outcome = evidence, dedupe.Outcome{Phase: "sent_no_answer"}
		g.replies(actions.Reply{Record: rec, Answer: jsonAnswer(`null`), Replayed: true})
		body := g.send("POST", "/v1/do", smallest).json()
		require.Contains(t, body["notice"], words)
		require.Equal(t, string(evidence), body["evidence"])
		require.NotContains(t, body, "vendor", "the vendor never answered")
	}
}

// The vendor's JSON passes byte for byte: blanks, escapes, digits, order, and
// what encoding/json would escape or drop.
func TestResultBytesAreTheVendors(t *testing.T) {
	for _, raw := range []string{
		`{}`, `[]`, `null`, `"x"`, `1.0`, `-0`,
		`{ "b" : [ ] , "a" : {} }`,
		"{\n\t\"a\": 1\n}\n",
		`{"n":15947634569000323,"m":18446744073709551615,"e":1e2,"f":1.10}`,
		`{"html":"<a href='x'>&</a>","u":"\u003c\u00e9é \/"}`,
		`{"a":1,"a":2}`,
		"\"\u2028\"",
	} {
		g := newGateway(t)
		g.replies(actions.Reply{Record: succeeded(), Answer: jsonAnswer(raw)})
		a := g.send("POST", "/v1/do", smallest)
		require.Contains(t, string(a.body), `"result":`+raw+`,"vendor"`)
	}
}

func TestResultForms(t *testing.T) {
	pdf := []byte("%PDF-1.7\x00\xff")
	for name, row := range map[string]struct {
		answer *actions.Answer
		want   string
	}{
		"none":    {&actions.Answer{Kind: actions.ResultNone}, `"result":null,`},
		"binary":  {&actions.Answer{Kind: actions.ResultBinary, ContentType: "application/pdf", Data: pdf}, `"result_base64":"` + base64.StdEncoding.EncodeToString(pdf) + `","result_content_type":"application/pdf",`},
		"no type": {&actions.Answer{Kind: actions.ResultBinary, Data: []byte("x")}, `"result_base64":"eA==","result_content_type":"application/octet-stream",`},
		"omitted": {&actions.Answer{Kind: actions.ResultOmitted, Reason: "too_large", Bytes: 5_000_000_000, SHA256: strings.Repeat("ab", 32)},
			`"result_omitted":{"reason":"too_large","bytes":5000000000,"sha256":"` + strings.Repeat("ab", 32) + `"},`},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			g.replies(actions.Reply{Record: succeeded(), Answer: row.answer})
			a := g.send("POST", "/v1/do", smallest)
			require.Contains(t, string(a.body), `,`+row.want+`"vendor"`)
		})
	}
}

func TestExposedHeadersAndPreviousWrite(t *testing.T) {
	g := newGateway(t)
	answer := jsonAnswer(`{}`)
	answer.Headers = map[string]string{"X-B": "2", "X-A": `"1"`}
	rec := succeeded()
	rec.Previous = &dedupe.Previous{ID: dedupe.ActionID{1}, State: dedupe.Lapsed, At: created}
	g.replies(actions.Reply{Record: rec, Answer: answer})
	a := g.send("POST", "/v1/do", smallest)
	require.Contains(t, string(a.body), `"vendor":{"status":201,"headers":{"X-A":"\"1\"","X-B":"2"}}`)
	require.Contains(t, string(a.body), `,"previous_write":{"id":"act_01000000000000000000000000","state":"lapsed","at":"2026-11-29T16:04:05.678Z"}}`)
}

// What the record holds for the gateway alone is never shown.
func TestSecretsOfTheRecordStayInside(t *testing.T) {
	g := newGateway(t)
	g.replies(actions.Reply{Record: succeeded(), Answer: jsonAnswer(`{}`)})
	g.get = func(tenants.Principal, string) (actions.View, error) {
		return actions.View{Record: succeeded(), Answer: jsonAnswer(`{}`)}, nil
	}
	for _, body := range [][]byte{
		g.send("POST", "/v1/do", smallest).body,
		g.send("GET", "/v1/actions/"+actionID, "").body,
	} {
		require.NotContains(t, string(body), "secret")
		require.NotContains(t, string(body), succeeded().Identity.String())
	}
}

func TestDryRun(t *testing.T) {
	g := newGateway(t)
	g.replies(actions.Reply{Would: "execute"})
	const dry = `{"connection":"billing","action":"create_invoice","dry_run":true}`
	a := g.send("POST", "/v1/do", dry)
	require.Equal(t, `{"dry_run":true,"would":"execute","connection":"billing","action":"create_invoice","request_id":"`+a.header.Get("Request-Id")+`"}`, string(a.body))
	require.Equal(t, "false", a.header.Get("Idempotent-Replayed"))
	require.Empty(t, a.header.Get("Location"))

	g.replies(actions.Reply{Would: "replay", Record: succeeded()})
	a = g.send("POST", "/v1/do", dry)
	require.Equal(t, "false", a.header.Get("Idempotent-Replayed"), "nothing was replayed")
	require.Equal(t, "/v1/actions/"+actionID, a.header.Get("Location"))
	require.Equal(t, actionID, a.json()["action_id"])
	require.NotContains(t, a.json(), "result")
}
