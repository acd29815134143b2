package main

import (
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// issuer is an authorization server whose refresh tokens change with each use,
// and the vendor that takes its access tokens. A refresh token that is used twice
// ends all of them, as real ones do.
type issuer struct {
	mu      sync.Mutex
	n       int    // tokens issued
	refresh string // the one that is good
	life    int    // seconds of an access token
	broken  int    // status of the next answers; 0: sound
	asked   int
	reused  bool
	form    url.Values // of the last request
	auth    string
}

func (i *issuer) token(c *vendortest.Call) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.asked++
	i.form, _ = url.ParseQuery(string(c.ReadBody()))
	i.auth = c.Arrival.Header.Get("Authorization")
	if i.broken != 0 {
		c.JSON(i.broken, `{"error":"invalid_grant","error_description":"`+sentinel+`"}`)
		return
	}
	if i.form.Get("grant_type") == "refresh_token" && i.form.Get("refresh_token") != i.refresh {
		i.reused = true
		c.JSON(400, `{"error":"invalid_grant"}`)
		return
	}
	i.n++
	i.refresh = fmt.Sprintf("refresh-token-%d", i.n)
	c.JSON(200, fmt.Sprintf(`{"access_token":"access-token-%d","token_type":"Bearer","expires_in":%d,"refresh_token":%q}`, i.n, i.life, i.refresh))
}

// vendor does what a good token asks for, and echoes it.
func (i *issuer) vendor(c *vendortest.Call) {
	i.mu.Lock()
	good := fmt.Sprintf("Bearer access-token-%d", i.n)
	i.mu.Unlock()
	if got := c.Arrival.Header.Get("Authorization"); got != good {
		c.JSON(401, `{"error":"invalid_token"}`)
		return
	}
	c.JSON(200, fmt.Sprintf(`{"arrival":1,"echo":%q}`, good))
}

func (i *issuer) state() (asked int, reused bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.asked, i.reused
}

func (i *issuer) set(change func(*issuer)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change(i)
}

// oauthConfig is a gateway whose connector oauth asks the issuer.
func oauthConfig(t *testing.T, i *issuer, auth string) (Config, *vendortest.Vendor, *vendortest.Vendor) {
	server := vendortest.NewTLS(t, i.token)
	vendor := vendortest.New(t, i.vendor)
	cfg := testConfig(t)
	cfg.wire.RootCAs = server.CertPool()
	cfg.wire.Resolver = vendortest.Resolver(vendortest.Static(map[string]string{"vendor.test": "127.0.0.1", "vendor.test.": "127.0.0.1"}))
	manifest := strings.Replace(testManifests()["probe"], "{type: bearer, prefix: Bearer, secret: token}",
		fmt.Sprintf(auth, "https://vendor.test:"+server.Port()+"/token"), 1)
	writeManifest(t, cfg.ConnectorsDir, "oauth", "1.0.0", strings.Replace(manifest, "name: probe,", "name: oauth,", 1))
	return cfg, server, vendor
}

const (
	refreshAuth = "{type: oauth2_refresh, token_url: %q, client_id: id, client_secret: secret, refresh_token: refresh, rotates: true}"
	clientAuth  = "{type: oauth2_client_credentials, token_url: %q, client_id: id, client_secret: secret, scopes: [a, b], client_auth: body}"
)

func (a *agent) connectOAuth(base string, creds map[string]string) {
	a.must(201, "PUT", "/v1/connections/c", map[string]any{"connector": "oauth@1", "base_url": base, "credentials": creds})
}

// TestOneRefreshForAllReplicas: fifty writes at once on two replicas, whose token
// is over: one refresh, with the one refresh token that is good, and every write
// is made. Again after the next end, and after a restart.
func TestOneRefreshForAllReplicas(t *testing.T) {
	const writes = 50
	i := &issuer{refresh: "refresh-token-0", life: 3600}
	cfg, _, vendor := oauthConfig(t, i, refreshAuth)
	var ahead atomic.Int64 // hours
	cfg.tokenNow = func() time.Time { return time.Now().Add(time.Duration(ahead.Load()) * time.Hour) }
	server := redistest.Start(t, redistest.Durable()...)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}))
	cfg.Store = server.URL()
	here, _ := boot(t, cfg)
	there, _ := boot(t, cfg)
	a := newAgent(t, here.URL())
	a.connectOAuth(vendor.URL(), map[string]string{"id": "client", "secret": sentinel, "refresh": "refresh-token-0"})
	n := 0
	for round := 1; round <= 2; round++ {
		var all sync.WaitGroup
		answers := make([]reply, writes)
		for w := range writes {
			n++
			body, base := doBody("c", "create", numbered(n)), []string{here.URL(), there.URL()}[w%2]
			all.Go(func() { answers[w], _ = a.at(base).send(t.Context(), "POST", "/v1/do", body, nil) })
		}
		all.Wait()
		for _, r := range answers {
			require.Equal(t, 200, r.status, "%s", r.raw)
			require.NotContains(t, string(r.raw), "access-token", "masked like every credential")
		}
		asked, reused := i.state()
		require.False(t, reused)
		require.Equal(t, round, asked, "one refresh")
		if round == 1 {
			require.Equal(t, "Basic Y2xpZW50OlNFTlRJTkVMLWNyZWRlbnRpYWwtZjdjMWUw", i.auth)
			ahead.Store(1) // it is over
		}
	}
	require.Equal(t, 2*writes, vendor.Arrivals())
	require.NoError(t, here.Close())
	again, _ := boot(t, cfg)
	a.at(again.URL()).do("c", "create", numbered(n+1)).is(200, "succeeded")
	asked, _ := i.state()
	require.Equal(t, 2, asked, "the token outlived the process")
	require.NoError(t, again.Close())
	require.NoError(t, there.Close())
	_, err := server.Do(t.Context(), "SAVE")
	require.NoError(t, err)
	require.NoError(t, server.Stop())
	requireNothingOf(t, server.Dir(), "access-token-", "refresh-token-", sentinel)
}

// TestTokenTrouble: a token that cannot be had is not_sent and an operator's
// business; replays go on; a token that the vendor does not take is replaced; and
// the words of the authorization server reach nobody.
func TestTokenTrouble(t *testing.T) {
	i := &issuer{life: 3600}
	cfg, server, vendor := oauthConfig(t, i, clientAuth)
	dir := filepath.Join(t.TempDir(), "data")
	cfg.Store = embeddedPrefix + dir
	app, log := boot(t, cfg)
	a := newAgent(t, app.URL())
	a.connectOAuth(vendor.URL(), map[string]string{"id": "client", "secret": sentinel})
	a.do("c", "create", numbered(1)).is(200, "succeeded")
	require.Equal(t, url.Values{"grant_type": {"client_credentials"}, "scope": {"a b"}, "client_id": {"client"}, "client_secret": {sentinel}}, i.form)
	require.Empty(t, i.auth)

	// The vendor stops taking the token: not done, and the next write has a new one.
	i.set(func(i *issuer) { i.n++ })
	require.Equal(t, "vendor_unavailable", a.do("c", "create", numbered(2)).text("code"))
	i.set(func(i *issuer) { i.broken = 400 })
	r := a.do("c", "create", numbered(2)).is(503, "not_sent")
	require.Equal(t, "ask_operator", r.text("next"))
	require.NotContains(t, string(r.raw), "SENTINEL")
	arrivals := vendor.Arrivals()
	a.do("c", "create", numbered(1)).is(200, "succeeded").replayed()
	i.set(func(i *issuer) { i.broken = 0 })
	eventually(t, 5*time.Second, "the next write asks again", func() bool { return a.do("c", "create", numbered(2)).status == 200 })
	require.Equal(t, arrivals+1, vendor.Arrivals())
	require.Equal(t, server.Arrivals(), i.asked)

	// A connection made again has nothing of the old one's.
	a.must(204, "DELETE", "/v1/connections/c", nil)
	a.connectOAuth(vendor.URL(), map[string]string{"id": "client", "secret": sentinel})
	asked, _ := i.state()
	a.do("c", "create", numbered(1)).is(200, "succeeded").fresh()
	later, _ := i.state()
	require.Equal(t, asked+1, later)
	require.NotContains(t, log.String(), "access-token-")
	require.NotContains(t, log.String(), sentinel)
	require.NoError(t, app.Close())
	requireNothingOf(t, dir, "access-token-", sentinel)
}
