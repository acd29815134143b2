package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/connectors/builtin"
	"holdfast.dev/gateway/internal/connectors/workbench"
	"holdfast.dev/gateway/internal/vendortest"
)

// impatient is the version that these tests give a connector whose timeouts they
// cut, so that a vendor that hangs does not hang them.
const impatient = "1.999.0"

// subject is a built-in connector and its fixtures.
type subject struct {
	spec     connectors.Spec
	fixtures *workbench.Fixtures
}

// impatientBuiltins writes every built-in connector into the folder once more,
// as a newer version that waits for nothing.
func impatientBuiltins(t *testing.T, dir string) []subject {
	t.Helper()
	bench, err := workbench.New()
	require.NoError(t, err)
	sources, err := builtin.Manifests()
	require.NoError(t, err)
	timeout := regexp.MustCompile(`(?m)^    timeout: \d+s`)
	var list []subject
	for _, s := range sources {
		c, err := bench.Compile(s.Manifest)
		require.NoError(t, err)
		own, err := url.Parse(c.Spec().BaseURL.Default)
		require.NoError(t, err)
		text := strings.Replace(string(s.Manifest), "version: 1.0.0", "version: "+impatient, 1)
		text = strings.Replace(text, "allow: [", `allow: ["https://nowhere.example`+own.Path+`", `, 1)
		text = timeout.ReplaceAllString(text, "    timeout: 300ms")
		writeManifest(t, dir, c.Spec().Name, impatient, text)
		raw, err := builtin.Fixtures(c.Spec().Name)
		require.NoError(t, err)
		f, err := workbench.ReadFixtures("fixtures", raw)
		require.NoError(t, err)
		list = append(list, subject{spec: c.Spec(), fixtures: f})
	}
	return list
}

// connectTo binds a connector to a vendor at an address, under the path of its
// own base URL.
func (s subject) connectTo(a *agent, name, base string, config json.RawMessage) {
	a.t.Helper()
	own, err := url.Parse(s.spec.BaseURL.Default)
	require.NoError(a.t, err)
	creds := map[string]string{}
	for _, credential := range s.spec.Auth.Credentials() {
		creds[credential] = sentinel
	}
	body := map[string]any{"connector": s.spec.Major(), "base_url": base + own.Path, "credentials": creds}
	if len(config) > 0 {
		body["config"] = config
	}
	a.must(201, "PUT", "/v1/connections/"+name, body)
}

// conformanceFault is one of the faults that every connector must stand, and the
// codes it may come to.
type conformanceFault struct {
	name    string
	base    func(t testing.TB) string // where nothing arrives
	behave  vendortest.Behaviour
	allowed []string
}

func conformanceFaults(stranger string) []conformanceFault {
	held, unsent := []string{"outcome_unknown"}, []string{"not_sent"}
	at := func(u string) func(testing.TB) string { return func(testing.TB) string { return u } }
	return []conformanceFault{
		{name: "refused", base: func(t testing.TB) string { return vendortest.RefusedURL(t) }, allowed: unsent},
		{name: "dns", base: at("https://nowhere.example"), allowed: unsent},
		{name: "tls", base: at(stranger), allowed: unsent},
		{name: "cut before the headers", behave: vendortest.CloseAfterBody, allowed: held},
		{name: "cut during the headers", behave: vendortest.Raw("HTTP/1.1 200 OK\r\nContent-Ty"), allowed: held},
		{name: "cut body with a length", behave: vendortest.Raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{\"id\":\"x\""), allowed: held},
		{name: "cut body without a length", behave: vendortest.Raw("HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n{\"id\":\"x\""), allowed: held},
		{name: "204", behave: vendortest.Status(204), allowed: []string{"outcome_unknown", "succeeded"}},
		{name: "307", behave: vendortest.Status(307, "Location: /elsewhere"), allowed: held},
		{name: "429", behave: vendortest.Status(429, "Retry-After: 3"), allowed: []string{"outcome_unknown", "vendor_rate_limited"}},
		{name: "HTML 200", behave: func(c *vendortest.Call) { c.Respond(200, "text/html", "<html>Welcome</html>") }, allowed: held},
		{name: "HTML 502", behave: func(c *vendortest.Call) { c.Respond(502, "text/html", "<html>Bad Gateway</html>") }, allowed: held},
		{name: "hang", behave: vendortest.Hang, allowed: held},
	}
}

// TestEveryBuiltinStandsEveryFault: through the whole program, each action of
// each built-in connector, at most one arrival for each do, only allowed
// outcomes, and no second arrival for the repeat of what is held.
func TestEveryBuiltinStandsEveryFault(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + t.TempDir()
	subjects := impatientBuiltins(t, cfg.ConnectorsDir)
	names := map[string]string{}
	cfg.wire.Resolver = vendortest.Resolver(vendortest.Static(names))
	stranger := vendortest.NewTLS(t, nil)
	app, out := boot(t, cfg)
	t.Run("all", func(t *testing.T) {
		for _, s := range subjects {
			t.Run(s.spec.Name, func(t *testing.T) {
				t.Parallel()
				s.standsEveryFault(t, app.URL(), stranger.URL())
			})
		}
	})
	require.Zero(t, stranger.Arrivals())
	require.NotContains(t, out.String(), sentinel)
}

func (s subject) standsEveryFault(t *testing.T, gateway, stranger string) {
	owner := newAgent(t, gateway)
	for i, f := range conformanceFaults(stranger) {
		for action, fixtures := range s.fixtures.Actions {
			t.Run(action+"/"+f.name, func(t *testing.T) {
				connection := fmt.Sprintf("%s-%d", strings.ReplaceAll(action, "_", "-"), i)
				a := &agent{t: t, base: owner.base, key: owner.key, name: owner.name}
				s.playConformance(a, f, connection, action, fixtures)
			})
		}
	}
}

func (s subject) playConformance(a *agent, f conformanceFault, connection, action string, fixtures workbench.ActionFixtures) {
	vendor := vendortest.New(a.t, f.behave)
	base := vendor.URL()
	if f.base != nil {
		base = f.base(a.t)
	}
	s.connectTo(a, connection, base, fixtures.Config)
	r := a.do(connection, action, string(fixtures.Params))
	word := r.text("code")
	if r.status == 200 {
		word = r.text("state")
	}
	require.True(a.t, slices.Contains(f.allowed, word), "%s", r.raw)
	want := 1
	if f.base != nil {
		want = 0
	}
	require.Equal(a.t, want, vendor.Arrivals())
	require.NotContains(a.t, string(r.raw), sentinel)
	if word == "vendor_rate_limited" || word == "not_sent" {
		return // released: a repeat is another write
	}
	a.do(connection, action, string(fixtures.Params))
	require.Equal(a.t, want, vendor.Arrivals(), "the repeat was not sent")
}
