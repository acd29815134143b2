package benchtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

const (
	adminKey  = "bench-platform-admin-key-0123456789abcdef"
	secretKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)

// gateway is the program as it ships, in a process of its own, with a tenant and a
// connection to the vendor.
type gateway struct {
	cmd  *exec.Cmd
	dir  string
	addr string
	key  string // of an agent of the tenant
}

// unlimited switches off what bounds one tenant: it is not what is measured.
func unlimited() []string {
	return []string{
		"--tenant-requests-per-second=0", "--tenant-writes-per-second=0", "--tenant-concurrent-calls=0",
		"--tenant-new-identities=0", "--tenant-requests-at-once=0", "--address-requests-per-second=0",
	}
}

// embedded starts a gateway on an embedded store of its own.
func embedded(t testing.TB, program, vendor string, env ...string) *gateway {
	t.Helper()
	dir := t.TempDir()
	return startGateway(t, program, dir, "embedded:"+filepath.Join(dir, "data"), vendor, env...)
}

// onRedis starts a gateway on a Redis of its own that appends and syncs before it
// answers, as a store has to.
func onRedis(t testing.TB, b *Bench, vendor string) (*gateway, *redistest.Server) {
	t.Helper()
	dir := t.TempDir()
	server, err := redistest.Launch(dir, redistest.Durable()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	if err := redisstore.Init(t.Context(), redisstore.Options{URL: server.URL()}); err != nil {
		t.Fatal(err)
	}
	return startGateway(t, b.Program, dir, server.URL(), vendor), server
}

func startGateway(t testing.TB, program, dir, store, vendor string, env ...string) *gateway {
	t.Helper()
	g := &gateway{dir: dir, addr: freeAddress(t)}
	g.cmd = exec.Command(program, append([]string{
		"serve", "--listen=" + g.addr, "--admin-listen=127.0.0.1:0", "--store=" + store,
		"--egress-allow=127.0.0.0/8", "--drain-timeout=1s",
	}, unlimited()...)...)
	g.cmd.Env = append(append(os.Environ(), "GATEWAY_ADMIN_KEY="+adminKey, "GATEWAY_SECRET_KEY="+secretKey), env...)
	// The log goes where `2>> file` would send it.
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	g.cmd.Stderr = log
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	g.listening(t)
	g.prepare(t, "http://"+vendor)
	return g
}

// close ends the gateway and removes what it kept; more than once is no error.
func (g *gateway) close() {
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
	_ = os.RemoveAll(g.dir)
}

func (g *gateway) pid() int { return g.cmd.Process.Pid }

// freeAddress is one that was free a moment ago.
func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// listening waits until the API is served. Not by the log: one of the gateways
// measured writes none.
func (g *gateway) listening(t testing.TB) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); time.Now().Before(end); <-tick.C {
		if conn, err := net.Dial("tcp", g.addr); err == nil {
			_ = conn.Close()
			return
		}
	}
	raw, _ := os.ReadFile(filepath.Join(g.dir, "log"))
	t.Fatalf("the gateway does not listen: %s", raw)
}

// prepare makes a tenant, a key for its agents, and a connection to the vendor.
func (g *gateway) prepare(t testing.TB, vendor string) {
	t.Helper()
	var made struct{ Key string }
	g.call(t, http.MethodPost, "/v1/tenants", adminKey, map[string]any{"id": "acme"}, nil)
	g.call(t, http.MethodPost, "/v1/tenants/acme/keys", adminKey,
		map[string]any{"label": "agents", "scopes": []string{"do", "read", "manage"}}, &made)
	g.key = made.Key
	g.call(t, http.MethodPut, "/v1/connections/c", g.key, map[string]any{
		"connector": "http-json@1", "base_url": vendor, "credentials": map[string]string{"token": "t"},
	}, nil)
}

func (g *gateway) call(t testing.TB, method, path, key string, body, into any) {
	t.Helper()
	payload, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.addr+path, bytes.NewReader(payload))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		t.Fatal(fmt.Errorf("%s %s: %d %s %w", method, path, resp.StatusCode, raw, err))
	}
	if into != nil {
		if err := json.Unmarshal(raw, into); err != nil {
			t.Fatal(err)
		}
	}
}
