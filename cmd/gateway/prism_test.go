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
)

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
