package main

import (
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

const injectable = `apiVersion: connectors/v1
kind: HTTPConnector
metadata: {name: injectable, version: 1.0.0}
base_url: {allow: ["https://vendor.example"]}
auth: {type: bearer, secret: token}
config: {type: object, properties: {site: {type: string}}}
actions:
  in_path:
    effect: create
    input: {type: object, properties: {v: {type: string}}}
    request: {method: POST, path: "/a/{params.v}/b", encoding: json, body: {fixed: 1}}
    outcomes: [{when: 'status == 200', is: succeeded}]
    check: []
  in_query:
    effect: create
    input: {type: object, properties: {v: {type: string}}}
    request: {method: POST, path: /a, query: {q: {$: params.v}, last: 1}, encoding: json, body: {fixed: 1}}
    outcomes: [{when: 'status == 200', is: succeeded}]
    check: []
  in_header:
    effect: create
    input: {type: object, properties: {v: {type: string}}}
    request: {method: POST, path: /a, headers: {X-Value: {$: params.v}}, encoding: json, body: {fixed: 1}}
    outcomes: [{when: 'status == 200', is: succeeded}]
    check: []
  in_form:
    effect: create
    input: {type: object, properties: {v: {type: string}}}
    request: {method: POST, path: /a, encoding: form, body: {q: {$: params.v}, last: 1}}
    outcomes: [{when: 'status == 200', is: succeeded}]
    check: []
  config_in_path:
    effect: create
    input: {type: object}
    request: {method: POST, path: "/a/{config.site}/b", encoding: json, body: {$: params}}
    outcomes: [{when: 'status == 200', is: succeeded}]
    check: []
  config_in_header:
    effect: create
    input: {type: object}
    request: {method: POST, path: /a, headers: {X-Site: {$: config.site}}, encoding: json, body: {$: params}}
    outcomes: [{when: 'status == 200', is: succeeded}]
    check: []
  config_in_query:
    effect: create
    input: {type: object}
    request: {method: POST, path: /a, query: {q: {$: config.site}, last: 1}, encoding: json, body: {$: params}}
    outcomes: [{when: 'status == 200', is: succeeded}]
    check: []
`

// hostile are values that end a segment, a parameter, a header or a request where
// something is built from text.
func hostile() []string {
	return []string{
		"..", ".", "", "../..", "%2e%2e", "%2E%2e", "%252e%252e", "%2f", "%5c", "a/b", "/", "//evil.example", "a?b=c", "a#b", "a;b",
		`a\b`, `\\evil.example`, "a\r\nX-Evil: 1", "a\nb", "a\rb", "a\x00b", "%00", "%0d%0aX-Evil:%201", "a&last=2", "a=b", "a b",
		"HTTP/1.1\r\nHost: evil.example\r\n\r\nGET / HTTP/1.1", "evil.example", "https://evil.example/", "@evil.example", "x@evil.example:80", "[::1]", "ü", "\u2028",
		"日本", "{params.v}", "${x}", "'\"<>", "+", "%", "%zz", "a,b", "*", " lead", "trail ", "\t", "\x7f", "\u0085",
	}
}

// TestInjectionIsImpossible: whatever an argument holds, it is refused before
// anything is sent, or the vendor's raw request line stays inside the template and
// the value arrives as it was. Nothing is held by it.
func TestInjectionIsImpossible(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	writeManifest(t, cfg.ConnectorsDir, "injectable", "1.0.0", injectable)
	app, _ := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "injectable@1", vendor.URL())
	body := func(v string) string {
		raw, err := json.Marshal(map[string]string{"v": v})
		require.NoError(t, err)
		return string(raw)
	}
	for _, action := range []string{"in_path", "in_query", "in_header", "in_form"} {
		for _, v := range hostile() {
			before := vendor.Arrivals()
			r := a.do("c", action, body(v))
			arrived(t, vendor, before, r, action, v)
		}
	}
	for i, v := range hostile() {
		name := "site-" + string(rune('a'+i/26)) + string(rune('a'+i%26))
		a.must(201, "PUT", "/v1/connections/"+name, map[string]any{
			"connector": "injectable@1", "base_url": vendor.URL(), "config": map[string]string{"site": v}, "credentials": map[string]string{"token": sentinel},
		})
		for _, action := range []string{"config_in_path", "config_in_query", "config_in_header"} {
			before := vendor.Arrivals()
			r := a.do(name, action, `{}`)
			arrived(t, vendor, before, r, strings.TrimPrefix(action, "config_"), v)
		}
	}
	heldOnes := a.must(200, "GET", "/v1/actions?state=held", nil)
	require.Empty(t, heldOnes.body["data"], "nothing is held by it")
	for _, r := range vendor.Requests() {
		require.Empty(t, r.Header.Values("X-Evil"))
		require.Equal(t, strings.TrimPrefix(vendor.URL(), "http://"), r.Host)
		require.Equal(t, "POST", r.Method)
	}
}

var (
	pathLine  = regexp.MustCompile(`^/a/([A-Za-z0-9._~%-]+)/b$`)
	queryLine = regexp.MustCompile(`^/a\?q=([A-Za-z0-9._~%-]*)&last=1$`)
	formBody  = regexp.MustCompile(`^q=([A-Za-z0-9._~%-]*)&last=1$`)
)

// arrived looks at what came of one value: nothing and a plain refusal, or
// exactly the template with the value in its place.
func arrived(t *testing.T, vendor *vendortest.Vendor, before int, r reply, place, v string) {
	t.Helper()
	if r.status != 200 {
		require.Contains(t, []string{"invalid_body", "not_sent"}, r.text("code"), "%s %q: %s", place, v, r.raw)
		require.Equal(t, before, vendor.Arrivals(), "%s %q", place, v)
		return
	}
	require.Equal(t, before+1, vendor.Arrivals(), "%s %q", place, v)
	got := vendor.Requests()[before]
	find := func(line *regexp.Regexp, text string) string {
		found := line.FindStringSubmatch(text)
		require.Len(t, found, 2, "%s %q: %s", place, v, text)
		plain, err := url.PathUnescape(found[1])
		require.NoError(t, err)
		return plain
	}
	switch place {
	case "in_path":
		require.Equal(t, v, find(pathLine, got.Target))
	case "in_query":
		require.Equal(t, v, find(queryLine, got.Target))
	case "in_form":
		require.Equal(t, "/a", got.Target)
		require.Equal(t, v, find(formBody, string(got.Body)))
	case "in_header":
		require.Equal(t, "/a", got.Target)
		name := "X-Value"
		if len(got.Header.Values(name)) == 0 {
			name = "X-Site"
		}
		require.Equal(t, []string{v}, got.Header.Values(name))
	}
}
