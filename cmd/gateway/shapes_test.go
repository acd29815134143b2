//go:build shapes

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

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

// prism is a running Prism behind a relay that counts.
type prism struct {
	url string

	mu       sync.Mutex
	example  string
	arrivals []arrival
}

type arrival struct {
	request    string
	status     int
	violations string // what Prism found wrong with the exchange
	answer     string
}

func (p *prism) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.arrivals)
}

func (p *prism) last() arrival {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrivals[len(p.arrivals)-1]
}

// answerWith chooses the example that Prism answers with; "" leaves it to Prism.
func (p *prism) answerWith(example string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.example = example
}

var listening = regexp.MustCompile(`Prism is listening on (http://127\.0\.0\.1:[0-9]+)`)

// giveTeamType mends GitHub's example of a pull request (23.0.2), in which a team
// lacks the type that its schema requires: Prism will not answer with it.
func giveTeamType(t *testing.T, doc map[string]any) {
	t.Helper()
	example := member(t, doc, "components", "examples", "pull-request", "value")
	teams, _ := example["requested_teams"].([]any)
	require.Len(t, teams, 1)
	team, _ := teams[0].(map[string]any)
	require.NotContains(t, team, "type", "GitHub has mended it: take this away")
	team["type"] = "organization"
}

// startPrism starts Prism over some paths of the document that a variable names,
// once mend has been at it.
func startPrism(t *testing.T, document string, mend func(*testing.T, map[string]any), paths ...string) *prism {
	t.Helper()
	for _, name := range []string{"SHAPES_NODE", "SHAPES_PRISM", document} {
		require.FileExists(t, os.Getenv(name), "%s: run make shapes, which installs it", name)
	}
	file, bodies := cutDocument(t, os.Getenv(document), mend, paths)
	cmd := exec.Command(os.Getenv("SHAPES_NODE"), os.Getenv("SHAPES_PRISM"), "mock",
		"--host", "127.0.0.1", "--port", "0", "--errors", "--multiprocess=false", file)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	address, drained, said := make(chan string, 1), make(chan struct{}), &logs{}
	go func() {
		defer close(drained)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			_, _ = said.Write(append(lines.Bytes(), '\n'))
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case address <- m[1]:
				default:
				}
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-drained
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prism said:\n%s", said)
		}
	})
	select {
	case at := <-address:
		return relayTo(t, at, bodies)
	case <-drained:
		require.FailNow(t, "Prism did not start", "%s", said)
	case <-time.After(60 * time.Second):
		require.FailNow(t, "Prism does not listen", "%s", said)
	}
	return nil
}

// relayTo counts what goes to Prism and keeps what it answers. Members that the
// document does not name it refuses itself: a schema leaves JSON open to them, and
// of a form Prism 5.14.2 reads only those that are named.
func relayTo(t *testing.T, address string, bodies []body) *prism {
	t.Helper()
	p := &prism{}
	target, err := url.Parse(address)
	require.NoError(t, err)
	relay := httputil.NewSingleHostReverseProxy(target)
	relay.Transport = &http.Transport{DisableKeepAlives: true}
	relay.ModifyResponse = func(resp *http.Response) error {
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		resp.Body = io.NopCloser(strings.NewReader(string(raw)))
		p.mu.Lock()
		defer p.mu.Unlock()
		last := &p.arrivals[len(p.arrivals)-1]
		last.status, last.answer, last.violations = resp.StatusCode, string(raw), resp.Header.Get("sl-violations")
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.arrivals = append(p.arrivals, arrival{request: r.Method + " " + r.URL.Path})
		example := p.example
		p.mu.Unlock()
		sent, err := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(sent))
		if name := unknownMember(bodies, r, sent); err != nil || name != "" {
			p.mu.Lock()
			p.arrivals[len(p.arrivals)-1].status = http.StatusUnprocessableEntity
			p.arrivals[len(p.arrivals)-1].answer = "unknown member " + name
			p.mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(map[string]string{"message": "unknown member " + name})
			return
		}
		if example != "" {
			r.Header.Set("Prefer", "example="+example)
		}
		// GitHub's own name for JSON is in its pages and not in its document, so
		// Prism would have no answer of that type.
		if r.Header.Get("Accept") == "application/vnd.github+json" {
			r.Header.Set("Accept", "application/json")
		}
		relay.ServeHTTP(w, r)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	p.url = "http://" + l.Addr().String()
	return p
}

// body is what one operation may be sent.
type body struct {
	method string
	path   *regexp.Regexp
	names  map[string]any
}

// unknownMember names a member that no body of the operation has; "" is none.
func unknownMember(bodies []body, r *http.Request, raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	sent := map[string]any{}
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		if json.Unmarshal(raw, &sent) != nil {
			return "(not JSON)"
		}
	} else {
		form, err := url.ParseQuery(string(raw))
		if err != nil {
			return "(not a form)"
		}
		for name := range form {
			sent[name] = nil
		}
	}
	for _, b := range bodies {
		if b.method == r.Method && b.path.MatchString(r.URL.Path) {
			for name := range sent {
				if _, known := b.names[name]; !known {
					return name
				}
			}
			return ""
		}
	}
	return "(no such operation with a body)"
}

// cutDocument writes the part of a document that some paths need, since whole ones
// take Prism long to read, and tells the bodies in it.
func cutDocument(t *testing.T, file string, mend func(*testing.T, map[string]any), paths []string) (string, []body) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(raw, &doc))
	if mend != nil {
		mend(t, doc)
	}
	all := member(t, doc, "paths")
	kept := map[string]any{}
	var bodies []body
	parameter := regexp.MustCompile(`\\\{[^}]*\}`)
	for _, path := range paths {
		item := member(t, all, path)
		kept[path] = item
		for _, method := range []string{"post", "put", "patch"} {
			if op, ok := item[method].(map[string]any); ok {
				at := "^" + parameter.ReplaceAllString(regexp.QuoteMeta(path), "[^/]+") + "$"
				bodies = append(bodies, body{strings.ToUpper(method), regexp.MustCompile(at), namesOf(t, doc, op)})
			}
		}
	}
	cut := map[string]any{
		"openapi": doc["openapi"], "info": doc["info"], "servers": doc["servers"], "security": doc["security"],
		"paths": kept, "components": needed(t, doc, kept),
	}
	dropNullable(cut)
	raw, err = json.Marshal(cut)
	require.NoError(t, err)
	file = filepath.Join(t.TempDir(), "openapi.json")
	require.NoError(t, os.WriteFile(file, raw, 0o600))
	return file, bodies
}

// dropNullable takes nullable out of the schemas without a type, where it has no
// effect (OpenAPI 3.0.3, Schema Object). Prism 5.14.2 cannot compile a schema that
// has it, and then checks nothing and says that all is well.
func dropNullable(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			dropNullable(e)
		}
	case map[string]any:
		if _, flag := v["nullable"].(bool); flag && v["type"] == nil {
			delete(v, "nullable")
		}
		for _, e := range v {
			dropNullable(e)
		}
	}
}

// needed are the components that paths refer to, and all security schemes.
func needed(t *testing.T, doc, paths map[string]any) map[string]any {
	t.Helper()
	components := member(t, doc, "components")
	kept := map[string]any{}
	if schemes, ok := components["securitySchemes"]; ok {
		kept["securitySchemes"] = schemes
	}
	var keep func(v any)
	keep = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				keep(e)
			}
		case map[string]any:
			for _, e := range v {
				keep(e)
			}
			ref, _ := v["$ref"].(string)
			kind, name, ok := strings.Cut(strings.TrimPrefix(ref, "#/components/"), "/")
			if !ok {
				return
			}
			of, _ := kept[kind].(map[string]any)
			if of == nil {
				of = map[string]any{}
				kept[kind] = of
			}
			if of[name] == nil {
				of[name] = member(t, components, kind, name)
				keep(of[name])
			}
		}
	}
	keep(paths)
	return kept
}

// namesOf are the members of an operation's body. For a list in a form it also
// writes into the document what OpenAPI 3.0 has as the default (Encoding Object: style
// form, explode true), which Prism 5.14.2 knows only if it is said: it takes
// MediaUrl=x for a string otherwise.
func namesOf(t *testing.T, doc, op map[string]any) map[string]any {
	t.Helper()
	names := map[string]any{}
	for contentType, media := range member(t, op, "requestBody", "content") {
		m, _ := media.(map[string]any)
		schema := member(t, m, "schema")
		if ref, ok := schema["$ref"].(string); ok {
			schema = member(t, doc, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
		maps.Copy(names, member(t, schema, "properties"))
		if contentType != "application/x-www-form-urlencoded" {
			continue
		}
		encoding := map[string]any{}
		for name, property := range member(t, schema, "properties") {
			if p, _ := property.(map[string]any); p["type"] == "array" {
				encoding[name] = map[string]any{"style": "form", "explode": true}
			}
		}
		m["encoding"] = encoding
	}
	return names
}

func member(t *testing.T, v map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, name := range path {
		next, ok := v[name].(map[string]any)
		require.True(t, ok, "the document has no %s", strings.Join(path, " → "))
		v = next
	}
	return v
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
