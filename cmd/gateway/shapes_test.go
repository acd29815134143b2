//go:build shapes

package main

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors/builtin"
	"holdfast.dev/gateway/internal/connectors/workbench"
)

// `make shapes` runs these tests. What the connectors for GitHub and Twilio write
// goes through the real gateway to Prism (npm @stoplight/prism-cli), which holds
// each request against the vendor's own OpenAPI document and answers with the
// examples in it. scripts/shapes.sh installs them and names them here.

// shape is one write.
type shape struct {
	action, body string
	// example names the answer among those the document has; "" leaves it to Prism.
	example string
}

// Besides what the fixtures say: every member that an action can send, once.
var (
	githubShapes = []shape{
		{action: "create_issue", body: `{"owner":"octocat","repo":"Hello-World","title":"Found a bug","body":"it **breaks**","labels":["bug"],"assignees":["octocat"]}`},
		{action: "create_comment", body: `{"owner":"octocat","repo":"Hello-World","number":1347,"body":"Me too"}`},
		{action: "update_issue", body: `{"owner":"octocat","repo":"Hello-World","number":1347,"title":"Found a bug","body":"it breaks","state":"closed","state_reason":"not_planned","labels":["bug"]}`},
		{action: "create_pull_request", body: `{"owner":"octocat","repo":"Hello-World","title":"New feature","head":"octocat:new-feature","base":"main","body":"please pull","draft":true}`},
	}
	twilioShapes = []shape{
		{action: "send_message", body: `{"to":"+15005550006","from":"+15005550001","body":"hi & bye","media_url":"https://example.com/a.png"}`},
		{action: "send_message", body: `{"to":"+15005550006","messaging_service_sid":"MG00000000000000000000000000000000","body":"hi"}`},
		{action: "make_call", body: `{"to":"+15005550006","from":"+15005550001","twiml":"<Response><Say>hi</Say></Response>"}`},
		{action: "cancel_message", body: `{"message_sid":"SM22222222222222222222222222222222"}`, example: "cancelMessage"},
		{action: "delete_message", body: `{"message_sid":"SM22222222222222222222222222222222"}`},
	}
)

const twilioAccount = "AC00000000000000000000000000000000"

func TestShapesGitHub(t *testing.T) {
	vendor := startPrism(t, "SHAPES_GITHUB", giveTeamType, "/repos/{owner}/{repo}/issues", "/repos/{owner}/{repo}/pulls",
		"/repos/{owner}/{repo}/issues/{issue_number}", "/repos/{owner}/{repo}/issues/{issue_number}/comments")
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	writeManifest(t, cfg.ConnectorsDir, "github-lax", "1.0.0", changedBuiltin(t, "github",
		"name: github,", "name: github-lax,",
		`state_reason: {$opt: "params.?state_reason"}`, `reason: {$opt: "params.?state_reason"}`))
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.connect("github", "github@1", vendor.url)
	a.connect("lax", "github-lax@1", vendor.url)
	vendor.takesEveryAction(t, a, "github", githubShapes)

	// A member that GitHub's document does not name is refused, and the refusal is
	// judged as the manifest says.
	change := `{"owner":"octocat","repo":"Hello-World","number":1347,"state":"open","state_reason":"reopened"}`
	a.do("github", "update_issue", change).is(200, "succeeded")
	seen := vendor.count()
	a.do("lax", "update_issue", change).is(424, "vendor_refused").fresh()
	require.Equal(t, seen+1, vendor.count())
	require.Equal(t, http.StatusUnprocessableEntity, vendor.last().status)
	const asJSON = "application/json"
	vendor.refuses(t, "POST", "/repos/o/r/issues", asJSON, `{"body":"no title"}`)
	vendor.refuses(t, "POST", "/repos/o/r/issues", asJSON, `{"title":"t","labels":"bug"}`)
	vendor.refuses(t, "POST", "/repos/o/r/issues/7/comments", asJSON, `{}`)
	vendor.refuses(t, "PATCH", "/repos/o/r/issues/7", asJSON, `{"state":"shut"}`)
	vendor.refuses(t, "POST", "/repos/o/r/pulls", asJSON, `{"title":"t","head":"h","base":["main"]}`)
}

func TestShapesTwilio(t *testing.T) {
	const messages = "/2010-04-01/Accounts/{AccountSid}/Messages.json"
	vendor := startPrism(t, "SHAPES_TWILIO", nil, messages,
		"/2010-04-01/Accounts/{AccountSid}/Messages/{Sid}.json", "/2010-04-01/Accounts/{AccountSid}/Calls.json")
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.must(201, "PUT", "/v1/connections/twilio", map[string]any{
		"connector": "twilio@1", "base_url": vendor.url, "config": map[string]string{"account_sid": twilioAccount},
		"credentials": map[string]string{"key_sid": "SK00", "key_secret": sentinel},
	})
	vendor.takesEveryAction(t, a, "twilio", twilioShapes)

	// One example of an answer to a change is of a message that was sent: taken, and
	// not cancelled, so what came of it is not known.
	vendor.answerWith("redactBody")
	a.do("twilio", "cancel_message", `{"message_sid":"SM33333333333333333333333333333333"}`).is(423, "outcome_unknown").fresh()
	require.Equal(t, http.StatusOK, vendor.last().status)
	vendor.answerWith("")

	path := strings.Replace(messages, "{AccountSid}", twilioAccount, 1)
	const form = "application/x-www-form-urlencoded"
	vendor.refuses(t, "POST", strings.Replace(path, "/Messages", "/Calls", 1), form, "From=%2B15005550001&Twiml=x")
	vendor.refuses(t, "POST", strings.Replace(path, ".json", "/SM22222222222222222222222222222222.json", 1), form, "Status=gone")
	vendor.refuses(t, "POST", path, form, "From=%2B15005550001&Body=hi")
	vendor.refuses(t, "POST", path, form, "To=%2B15005550006&From=%2B15005550001&Body=hi&Marker=x")
	vendor.refuses(t, "POST", strings.Replace(path, twilioAccount, "AC1", 1), form, "To=%2B15005550006&Body=hi")
}

// takesEveryAction sends the fixtures of every action of a connector and the
// given shapes, each of which must arrive once, be taken and be judged done.
func (p *prism) takesEveryAction(t *testing.T, a *agent, connector string, shapes []shape) {
	t.Helper()
	raw, err := builtin.Fixtures(connector)
	require.NoError(t, err)
	fixtures, err := workbench.ReadFixtures(connector, raw)
	require.NoError(t, err)
	left := maps.Clone(fixtures.Actions)
	for _, s := range shapes {
		// The answer is wanted of the action, not of one body.
		if f, ok := left[s.action]; ok {
			delete(left, s.action)
			p.takes(t, a, connector, shape{action: s.action, body: string(f.Params), example: s.example})
		}
		p.takes(t, a, connector, s)
	}
	require.Empty(t, left, "actions that nothing here sends")
}

func (p *prism) takes(t *testing.T, a *agent, connector string, s shape) {
	t.Helper()
	p.answerWith(s.example)
	defer p.answerWith("")
	before := p.count()
	r := a.do(connector, s.action, s.body)
	require.Equal(t, before+1, p.count(), "%s %s: arrivals", s.action, s.body)
	got := p.last()
	require.Equal(t, 200, r.status, "%s %s: %d %s\n%s", s.action, s.body, got.status, got.answer, r.raw)
	first := r.is(200, "succeeded").fresh()
	require.NotContains(t, []string{"", "map[]"}, first.text("result"), "%s", r.raw)
	require.Empty(t, got.violations, "%s %s", s.action, s.body)
	again := a.do(connector, s.action, s.body).is(200, "succeeded").replayed()
	requireSameResult(t, first, again)
	require.Equal(t, before+1, p.count(), "%s %s: arrivals after a repeat", s.action, s.body)
	t.Logf("%s %s: %s, %d, succeeded, one arrival", connector, s.action, got.request, got.status)
}

// refuses shows that Prism does look: sent without the gateway, this is refused.
func (p *prism) refuses(t *testing.T, method, path, contentType, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, p.url+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", contentType)
	req.SetBasicAuth("SK00", "secret")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	raw, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, "%s: %s", body, raw)
}

// changedBuiltin is a built-in manifest with some text in it replaced.
func changedBuiltin(t *testing.T, name string, oldnew ...string) string {
	t.Helper()
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	for _, s := range sources {
		if s.File == "builtin/"+name+".yaml" {
			changed := string(s.Manifest)
			for i := 0; i < len(oldnew); i += 2 {
				require.Contains(t, changed, oldnew[i])
				changed = strings.Replace(changed, oldnew[i], oldnew[i+1], 1)
			}
			return changed
		}
	}
	require.FailNow(t, "no such built-in manifest", "%s", name)
	return ""
}
