package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/doctor"
	"holdfast.dev/gateway/internal/sandbox"
)

// balancer sends each request to the next of several addresses, as a load
// balancer in front of replicas does. meddle may be nil.
func balancer(t *testing.T, meddle func(next http.Handler) http.Handler, targets ...string) string {
	t.Helper()
	var turn atomic.Uint64
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		to, err := url.Parse(targets[turn.Add(1)%uint64(len(targets))])
		if err != nil {
			t.Error(err)
		}
		r.SetURL(to)
	}}
	var handler http.Handler = proxy
	if meddle != nil {
		handler = meddle(proxy)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// diagnose runs the command and returns its findings by check.
func diagnose(t *testing.T, a *agent, base string, args ...string) (map[string]doctor.Finding, error) {
	t.Helper()
	out, err := runCommand(t, append([]string{"doctor", "--url", base, "--key", a.key, "--json", "--slow=100ms", "--tries=4"}, args...)...)
	var report doctor.Report
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&report), "%v %s", err, out)
	require.Equal(t, err == nil, report.Healthy, out)
	worst := map[string]doctor.Finding{}
	for _, f := range report.Findings {
		t.Logf("%s | %s | %s | %s", f.Level, f.Check, f.Found, f.Do)
		if f.Level == doctor.Problem || f.Level == doctor.Warning {
			require.NotEmpty(t, f.Do, "%s: what to do", f.Check)
		}
		if before, ok := worst[f.Check]; !ok || before.Level == doctor.OK || f.Level == doctor.Problem {
			worst[f.Check] = f
		}
	}
	return worst, err
}

// problems lists the checks that found one.
func problems(found map[string]doctor.Finding) []string {
	list := []string{}
	for name, f := range found {
		if f.Level == doctor.Problem {
			list = append(list, name)
		}
	}
	return list
}

// pair is two replicas on one Redis, and a tenant.
func pair(t *testing.T) (one, two *App, a *agent) {
	t.Helper()
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	one, _ = boot(t, cfg)
	two, _ = boot(t, cfg)
	return one, two, newAgent(t, one.URL())
}

func TestDoctorOfAHealthyPair(t *testing.T) {
	t.Parallel()
	one, two, a := pair(t)
	base := balancer(t, nil, one.URL(), two.URL())
	found, err := diagnose(t, a, base, "--admin-url", one.AdminURL(), "--admin-url", two.AdminURL())
	require.NoError(t, err)
	for _, check := range []string{"key", "encryption", "admin listener", "error bodies", "one store", "vendor reached", "same key", "other payload", "derived key",
		"at the same time", "slow write", "unavailable vendor", "clocks", "store's clock", "readiness", "store", "replicas"} {
		require.Equal(t, doctor.OK, found[check].Level, "%s: %v", check, found[check])
	}
	require.Len(t, found, 17)
	require.Contains(t, found["same key"].Found, "one arrival at the vendor")
	require.Empty(t, a.must(200, "GET", "/v1/connections", nil).body["data"], "it cleans up")

	out, err := runCommand(t, "doctor", "--url", base, "--key", a.key, "--slow=0s", "--tries=2")
	require.NoError(t, err)
	require.Regexp(t, `(?m)^ok +same key +2 repeats, the same answer, one arrival at the vendor$`, out)
	require.Contains(t, out, "0 problems, 0 warnings")

	found, err = diagnose(t, a, base, "--admin-url", one.AdminURL(), "--admin-url", two.URL())
	require.Error(t, err)
	require.Equal(t, []string{"readiness"}, problems(found), "that is no admin listener")
}

// TestDoctorWithAKeyThatOnlyDoes: a connection that is there serves, and its
// vendor is asked what arrived.
func TestDoctorWithAKeyThatOnlyDoes(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embeddedConfig(t))
	a := newAgent(t, app.URL())
	vendor, err := sandbox.Start("127.0.0.1:0", sandbox.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, vendor.Close()) })
	a.connect("box", "sandbox@1", vendor.URL)
	admin := &agent{t: t, base: app.URL(), key: testAdminKey}
	poor := *a
	poor.key = admin.must(201, "POST", "/v1/tenants/"+a.name+"/keys", map[string]any{"label": "x", "scopes": []string{"do"}}).text("key")

	found, err := diagnose(t, &poor, app.URL(), "--connection", "box")
	require.NoError(t, err)
	require.Contains(t, found["same key"].Found, "one arrival at the vendor")
	require.Equal(t, doctor.NotShown, found["readiness"].Level)
	a.must(200, "GET", "/v1/connections/box", nil)

	found, err = diagnose(t, &poor, app.URL())
	require.Error(t, err)
	require.Contains(t, found["probe"].Do, "--connection")
	found, err = diagnose(t, &poor, app.URL(), "--connection", "nothing")
	require.Error(t, err)
	require.Equal(t, []string{"probe"}, problems(found))
}

func TestDoctorFindsDifferentStores(t *testing.T) {
	t.Parallel()
	t.Run("two new ones", func(t *testing.T) {
		t.Parallel()
		one, _ := boot(t, embeddedConfig(t))
		two, _ := boot(t, embeddedConfig(t))
		found, err := diagnose(t, newAgent(t, one.URL()), balancer(t, nil, one.URL(), two.URL()),
			"--admin-url", one.AdminURL(), "--admin-url", two.AdminURL())
		require.Error(t, err)
		require.ElementsMatch(t, []string{"one store", "store"}, problems(found))
		require.Contains(t, found["one store"].Do, "GATEWAY_STORE")
	})
	t.Run("one a copy of the other", func(t *testing.T) {
		t.Parallel()
		cfg := embeddedConfig(t)
		app, _ := boot(t, cfg)
		a := newAgent(t, app.URL())
		vendor, err := sandbox.Start("127.0.0.1:0", sandbox.Options{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, vendor.Close()) })
		a.connect("box", "sandbox@1", vendor.URL)
		require.NoError(t, app.Close())
		other := cfg
		other.Store = embeddedPrefix + filepath.Join(t.TempDir(), "copy")
		require.NoError(t, os.CopyFS(other.folder(), os.DirFS(cfg.folder())))
		one, _ := boot(t, cfg)
		two, _ := boot(t, other)
		base := balancer(t, nil, one.URL(), two.URL())

		found, err := diagnose(t, a, base)
		require.Error(t, err)
		require.Equal(t, []string{"one store"}, problems(found), "its own connection is there on half of them")
		for _, replica := range []string{one.URL(), two.URL()} {
			require.Len(t, a.at(replica).must(200, "GET", "/v1/connections", nil).body["data"], 1, "it cleans up in both")
		}
		found, err = diagnose(t, a, base, "--connection", "box")
		require.Error(t, err)
		require.Contains(t, problems(found), "same key", "and one that both have is written to twice")
		require.Contains(t, found["same key"].Do, "GATEWAY_STORE")
	})
}

func TestDoctorFindsDifferentSecretKeys(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	one, _ := boot(t, cfg)
	cfg.SecretKey = "YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODk="
	two, _ := boot(t, cfg)
	found, err := diagnose(t, newAgent(t, one.URL()), balancer(t, nil, one.URL(), two.URL()))
	require.Error(t, err)
	require.Equal(t, []string{"vendor reached"}, problems(found))
	require.Contains(t, found["vendor reached"].Do, "GATEWAY_SECRET_KEY")
}

func TestDoctorSaysWhatItNeeds(t *testing.T) {
	t.Parallel()
	cfg := embeddedConfig(t)
	cfg.EgressAllow = nil
	app, _ := boot(t, cfg)
	found, err := diagnose(t, newAgent(t, app.URL()), app.URL())
	require.Error(t, err)
	require.Equal(t, []string{"probe"}, problems(found))
	require.Contains(t, found["probe"].Do, "GATEWAY_EGRESS_ALLOW")
}

func TestDoctorFindsWhatIsInBetween(t *testing.T) {
	t.Parallel()
	one, two, a := pair(t)
	admin, err := url.Parse(one.AdminURL())
	require.NoError(t, err)
	for name, c := range map[string]struct {
		meddle   func(next http.Handler) http.Handler
		problems []string
		advice   string
	}{
		"exposes the admin listener": {func(next http.Handler) http.Handler {
			inside := httputil.NewSingleHostReverseProxy(admin)
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/metrics", "/healthz", "/readyz":
					inside.ServeHTTP(w, r)
				default:
					next.ServeHTTP(w, r)
				}
			})
		}, []string{"admin listener"}, "GATEWAY_ADMIN_LISTEN"},
		"sends each write twice": {func(next http.Handler) http.Handler {
			return repeating(next, func(int) bool { return true })
		}, []string{"same key"}, "proxy_next_upstream"},
		"repeats what is 503": {func(next http.Handler) http.Handler {
			return repeating(next, func(status int) bool { return status == 503 })
		}, []string{"unavailable vendor"}, "proxy_next_upstream"},
		"strips Authorization": {func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.Header.Del("Authorization")
				next.ServeHTTP(w, r)
			})
		}, []string{"key"}, "Authorization"},
		"has its own pages for 4xx": {func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got := record(next, r)
				if got.Code >= 400 && got.Code < 500 {
					http.Error(w, "<h1>Sorry</h1>", got.Code)
					return
				}
				pass(w, got)
			})
		}, []string{"error bodies", "other payload"}, "error pages"},
		"leaves Request-Id out": {func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got := record(next, r)
				got.Header().Del("Request-Id")
				pass(w, got)
			})
		}, []string{"key", "error bodies"}, "header"},
		"is something else": {func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })
		}, []string{"key", "error bodies"}, "--url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, err := diagnose(t, a, balancer(t, c.meddle, one.URL(), two.URL()))
			require.Error(t, err)
			require.ElementsMatch(t, c.problems, problems(found))
			var advice []string
			for _, f := range found {
				advice = append(advice, f.Do)
			}
			require.Contains(t, strings.Join(advice, "\n"), c.advice)
		})
	}
	require.Empty(t, a.must(200, "GET", "/v1/connections", nil).body["data"], "it cleans up")
}

// repeating passes a POST on again if its answer asks for it, as a proxy does
// that takes it for safe.
func repeating(next http.Handler, again func(status int) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := record(next, withBody(r, body))
		if r.Method == http.MethodPost && again(got.Code) {
			got = record(next, withBody(r, body))
		}
		pass(w, got)
	})
}

func withBody(r *http.Request, body []byte) *http.Request {
	c := r.Clone(r.Context())
	c.Body = io.NopCloser(bytes.NewReader(body))
	return c
}

func record(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func pass(w http.ResponseWriter, got *httptest.ResponseRecorder) {
	for name, values := range got.Header() {
		w.Header()[name] = values
	}
	w.WriteHeader(got.Code)
	_, _ = w.Write(got.Body.Bytes())
}

func TestDoctorIsStrict(t *testing.T) {
	at := []string{"doctor", "--url", "http://127.0.0.1:1", "--key", "hf_x"}
	for _, args := range [][]string{
		{"doctor"},
		append([]string{"x"}, at...),
		append([]string{"--admin-url", "inside:9090"}, at...),
		append([]string{"--tries", "1"}, at...),
		append([]string{"--slow", "1m"}, at...),
		append([]string{"--sandbox-listen", "here"}, at...),
	} {
		_, err := runCommand(t, args...)
		require.True(t, isUsage(err), "%v: %v", args, err)
	}
	out, err := runCommand(t, append(at, "--tries=2")...)
	require.Error(t, err)
	require.False(t, isUsage(err))
	require.Contains(t, out, "no answer")
}
