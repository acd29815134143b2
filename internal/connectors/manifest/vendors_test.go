package manifest_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/connectortest"
)

var asJSON = []string{"Content-Type", "application/json; charset=utf-8"}

func TestSlack(t *testing.T) {
	const params = `{"channel":"C0123","text":"hi \ud83d\ude00 <!here>"}`
	say := func(name string, status int, body string, o connectors.Outcome, rule int, code, result string, headers ...string) connectortest.Case {
		return connectortest.Case{
			Name: name, Action: "post_message", Params: params, Answer: answer(status, body, append(headers, asJSON...)...),
			Outcome: o, Rule: rule, Code: code, Result: result,
		}
	}
	sent := say("sent", 200, `{"ok":true,"channel":"C0123","ts":"1700000000.000100"}`, connectors.Succeeded, 0, "", `{"channel":"C0123","ts":"1700000000.000100"}`)
	sent.Request = &connectors.Request{
		Method: "POST", URL: "https://slack.com/api/chat.postMessage",
		Header: http.Header{"Content-Type": {"application/json"}, "Idempotency-Key": {""}},
		Body:   []byte(`{"channel":"C0123","text":"hi \ud83d\ude00 <!here>","metadata":{"event_type":"gw_op","event_payload":{"id":"` + connectortest.Marker + `"}},"client_msg_id":"01000000-0000-4000-8000-000000000000"}`),
	}
	connectortest.Run(t, mustCompile(t, testdata(t, "slack.yaml")), "", []connectortest.Case{
		sent,
		say("429", 429, `{"ok":false,"error":"ratelimited"}`, connectors.Retryable, 1, "", "", "Retry-After", "3"),
		say("rate limit inside 200", 200, `{"ok":false,"error":"rate_limited"}`, connectors.Retryable, 2, "", ""),
		say("fatal inside 200", 200, `{"ok":false,"error":"fatal_error"}`, connectors.Unknown, 3, "fatal_error", ""),
		say("bad credential", 200, `{"ok":false,"error":"token_revoked"}`, connectors.Retryable, 4, "", ""),
		say("no such channel", 200, `{"ok":false,"error":"channel_not_found"}`, connectors.Refused, 5, "channel_not_found", ""),
		say("no ok", 200, `{"error":"what"}`, connectors.Unknown, 0, "", ""),
		say("ok that is a word", 200, `{"ok":"true"}`, connectors.Unknown, 2, "", ""),
		say("503", 503, `{"ok":false,"error":"service_unavailable"}`, connectors.Unknown, connectors.NoRule, "", ""),
		say("404 page", 404, `{}`, connectors.Unknown, connectors.NoRule, "", ""),
	})
}

func TestGitHub(t *testing.T) {
	const params = `{"owner":"o","repo":"r","title":"t","labels":["a",  "b"]}`
	say := func(name string, status int, body string, o connectors.Outcome, rule int, code, result string, headers ...string) connectortest.Case {
		return connectortest.Case{
			Name: name, Action: "create_issue", Params: params, Answer: answer(status, body, append(headers, asJSON...)...),
			Outcome: o, Rule: rule, Code: code, Result: result,
		}
	}
	created := say("created", 201, `{"number":15947634569000323,"html_url":"https://github.com/o/r/issues/1"}`, connectors.Succeeded, 0, "", `{"number":15947634569000323,"url":"https://github.com/o/r/issues/1"}`)
	created.Request = &connectors.Request{
		Method: "POST", URL: "https://api.octo.ghe.com/repos/o/r/issues",
		Header: http.Header{"Accept": {"application/vnd.github+json"}, "X-Github-Api-Version": {"2022-11-28"}},
		Body:   []byte(`{"title":"t","body":"<!-- gw:` + connectortest.Marker + ` -->","labels":["a",  "b"]}`),
	}
	connectortest.Run(t, mustCompile(t, testdata(t, "github.yaml")), "https://api.octo.ghe.com", []connectortest.Case{
		created,
		say("429", 429, `{}`, connectors.Retryable, 1, "", ""),
		say("403 with retry-after", 403, `{"message":"no"}`, connectors.Retryable, 1, "", "", "Retry-After", "60"),
		say("403 at the limit", 403, `{"message":"no"}`, connectors.Retryable, 1, "", "", "X-RateLimit-Remaining", "0"),
		say("403 secondary", 403, `{"message":"You have exceeded a secondary rate limit."}`, connectors.Retryable, 1, "", ""),
		say("403", 403, `{"message":"Resource not accessible"}`, connectors.Retryable, 2, "", "", "X-RateLimit-Remaining", "10"),
		say("401", 401, `{"message":"Bad credentials"}`, connectors.Retryable, 2, "", ""),
		say("422", 422, `{"message":"Validation Failed"}`, connectors.Refused, 3, "Validation Failed", ""),
		say("500", 500, `{"message":"Server Error"}`, connectors.Unknown, connectors.NoRule, "", ""),
		say("202", 202, `{}`, connectors.Unknown, connectors.NoRule, "", ""),
	})
}

func TestGitHubReasonsAndLookup(t *testing.T) {
	c := mustCompile(t, testdata(t, "github.yaml"))
	op := connectortest.Op(t, c, "create_issue", `{"owner":"o","repo":"r","title":"t","body":"text"}`)
	v, err := c.Judge(t.Context(), op, answer(403, `{"message":"x"}`, "Retry-After", "60"))
	require.NoError(t, err)
	require.Equal(t, connectors.Credential, v.Reason, "403 is a credential unless the rule names a reason")

	r, err := c.Plan(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, `{"title":"t","body":"text\n\n<!-- gw:`+connectortest.Marker+` -->"}`, string(r.Body))

	steps, err := c.Check(t.Context(), op)
	require.NoError(t, err)
	require.Equal(t, "https://api.github.com/repos/o/r/issues?state=all&sort=created&direction=desc&since=2026-05-04T03%3A02%3A01Z&per_page=100", steps[0].Request.URL)
	found, err := c.MatchLookup(t.Context(), op, 0, answer(200, `[{"number":1,"body":null},{"number":2,"html_url":"u","body":"x <!-- gw:`+connectortest.Marker+` -->"}]`))
	require.NoError(t, err)
	require.Equal(t, connectors.Found{Kind: connectors.FoundOne, Matches: 1, Result: []byte(`{"number":2,"url":"u"}`)}, found)
}

func TestSlackLookup(t *testing.T) {
	c := mustCompile(t, testdata(t, "slack.yaml"))
	op := connectortest.Op(t, c, "post_message", `{"channel":"C1","text":"t"}`)
	found, err := c.MatchLookup(t.Context(), op, 0, answer(200,
		`{"ok":true,"messages":[{"text":"a"},{"ts":"1.5","metadata":{"event_type":"gw_op","event_payload":{"id":"`+connectortest.Marker+`"}}}]}`))
	require.NoError(t, err)
	require.Equal(t, `{"channel":"C1","ts":"1.5"}`, string(found.Result))
	found, err = c.MatchLookup(t.Context(), op, 0, answer(200, `{"ok":false,"error":"ratelimited"}`))
	require.NoError(t, err)
	require.Equal(t, connectors.Doubtful, found.Kind)
}
