package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// childEnv makes this test binary be the gateway: the very main that ships, in
// a process that can be killed and stopped.
const childEnv = "HOLDFAST_TEST_GATEWAY"

// process is a gateway in a process of its own.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	addr string
	mu   sync.Mutex
	log  strings.Builder
	done chan struct{}
}

// spawn starts `gateway serve` and waits until it listens.
func spawn(t testing.TB, cfg Config, flags ...string) *process {
	t.Helper()
	return spawnUnder(t, nil, cfg, flags...)
}

// spawnUnder is spawn under a command that runs another and becomes it.
func spawnUnder(t testing.TB, wrapper []string, cfg Config, flags ...string) *process {
	t.Helper()
	args := slices.Concat(wrapper, []string{
		os.Args[0],
		"serve", "--listen=" + cfg.Listen, "--admin-listen=" + cfg.AdminListen, "--store=" + cfg.Store,
		"--connectors-dir=" + cfg.ConnectorsDir, "--egress-allow=127.0.0.0/8", "--drain-timeout=5s",
	}, flags)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"=1", "GATEWAY_ADMIN_KEY="+testAdminKey, "GATEWAY_SECRET_KEY="+testSecretKey)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{t: t, cmd: cmd, done: make(chan struct{})}
	listening := make(chan string, 1)
	go p.read(out, listening)
	t.Cleanup(func() { p.kill() })
	select {
	case p.addr = <-listening:
	case <-p.done:
		require.FailNow(t, "the gateway ended", p.logged())
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the gateway does not listen", p.logged())
	}
	return p
}

func (p *process) read(out io.Reader, listening chan<- string) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		p.log.WriteString(lines.Text() + "\n")
		p.mu.Unlock()
		var line struct{ Msg, Listener, Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "listening" && line.Listener == "api" {
			listening <- line.Addr
		}
	}
}

func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (p *process) url() string { return "http://" + p.addr }

func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends the process without letting it do anything.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
	_ = p.cmd.Wait()
}

const shortLease = 3 * time.Second

// TestKilledWhileTheVendorWorks: after the restart the write is in flight until
// its lease ends, then held; it is never sent again.
func TestKilledWhileTheVendorWorks(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		// The lease must outlast a restart, which takes seconds on a busy machine.
		began := time.Now()
		spawn(t, cfg).kill()
		lasts := max(shortLease, (4 * time.Since(began)).Round(time.Second))
		lease := "--lease=" + lasts.String()
		vendor := vendortest.New(t, vendortest.Hang)
		p := spawn(t, cfg, lease)
		a := newAgent(t, p.url())
		a.connect("c", "probe-slow@1", vendor.URL())
		go func() { _, _ = a.send(t.Context(), "POST", "/v1/do", doBody("c", "create", `{"n":1}`), nil) }()
		vendor.AwaitArrivals(1)
		p.kill()

		a = a.at(spawn(t, cfg, lease).url())
		first := a.do("c", "create", `{"n":1}`).is(409, "in_flight")
		require.LessOrEqual(t, first.retryAfter(), int(lasts/time.Second))
		var last reply
		eventually(t, lasts+5*time.Second, "the write is held", func() bool {
			last = a.do("c", "create", `{"n":1}`)
			return last.status == 423
		})
		last.is(423, "outcome_unknown")
		require.Equal(t, "owner_lost", last.text("outcome.reason"))
		require.Equal(t, 1, vendor.Arrivals())
		a.call("POST", "/v1/actions/"+last.text("action_id")+"/resolve", `{"outcome":"not_performed","note":"?"}`).
			is(409, "still_possible").retryAfter()
	})
}

// TestLapseIsNoticedThoughNobodyRepeats: within 5 s of the lapse.
func TestLapseIsNoticedThoughNobodyRepeats(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		lease := "--lease=" + shortLease.String()
		vendor := vendortest.New(t, vendortest.Hang)
		p := spawn(t, cfg, lease)
		a := newAgent(t, p.url())
		a.connect("c", "probe-slow@1", vendor.URL())
		go func() { _, _ = a.send(t.Context(), "POST", "/v1/do", doBody("c", "create", `{"n":1}`), nil) }()
		vendor.AwaitArrivals(1)
		p.kill()
		a = a.at(spawn(t, cfg, lease).url())
		eventually(t, shortLease+5*time.Second, "the sweep has held it", func() bool {
			return strings.Contains(strings.Join(a.writeEvents(), " "), "lease_lost")
		})
		require.Equal(t, []string{"claimed", "lease_lost"}, a.writeEvents())
		require.Equal(t, 1, vendor.Arrivals())
	})
}

// TestTwoProcessesOnOneRedis: fifty identical requests at once across two
// gateways give one arrival.
func TestTwoProcessesOnOneRedis(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	one, two := spawn(t, cfg), spawn(t, cfg)
	a := newAgent(t, one.url())
	vendor := vendortest.New(t, vendortest.OK)
	a.connect("c", "probe@1", vendor.URL())
	fiftyAtOnce(t, vendor, a, a.at(two.url()))
	a.at(two.url()).do("c", "create", `{"n":50}`).is(200, "succeeded").replayed()
}

// TestPausedOwnerSendsNothing is the story of the design: a gateway is stopped
// between its claim and its first byte, its write is resolved as not performed
// and done anew by another, and when it goes on it must not send.
func TestPausedOwnerSendsNothing(t *testing.T) {
	vendor := vendortest.NewTLS(t, vendortest.OK)
	t.Setenv("SSL_CERT_FILE", vendor.CAFile())
	slow := newRelay(t, vendor.Addr())
	cfg := testConfig(t)
	cfg.Store = redisShared.url(t)
	lease := "--lease=" + shortLease.String()
	one, two := spawn(t, cfg, lease), spawn(t, cfg, lease)
	a := newAgent(t, one.url())
	b := a.at(two.url())
	a.connect("c", "probe@1", "https://"+slow.addr())
	go func() { _, _ = a.send(t.Context(), "POST", "/v1/do", doBody("c", "create", `{"n":1}`), nil) }()
	<-slow.accepted // claimed, and stuck in its handshake
	one.signal(syscall.SIGSTOP)
	var held reply
	eventually(t, 2*shortLease+5*time.Second, "the lease has lapsed", func() bool {
		held = b.do("c", "create", `{"n":1}`)
		return held.status == 423
	})
	eventually(t, 15*time.Second, "the deadline is over", func() bool {
		return b.call("POST", "/v1/actions/"+held.text("action_id")+"/resolve",
			`{"outcome":"not_performed","note":"the owner is gone"}`).status == 200
	})
	slow.release()
	b.do("c", "create", `{"n":1}`).is(200, "succeeded").fresh()
	require.Equal(t, 1, vendor.Arrivals())
	one.signal(syscall.SIGCONT)
	eventually(t, 10*time.Second, "the stopped owner has learned that it is late", func() bool {
		return strings.Contains(one.logged(), "late answer changed nothing")
	})
	require.Equal(t, 1, vendor.Arrivals(), "the stopped owner sent nothing")
	b.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
}

// TestSIGTERMDrains: running calls finish, and the process ends with 0.
func TestSIGTERMDrains(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		finish := make(chan struct{})
		vendor := vendortest.New(t, gated(finish, vendortest.OK))
		p := spawn(t, cfg)
		a := newAgent(t, p.url())
		a.connect("c", "probe@1", vendor.URL())
		answered := make(chan reply, 1)
		go func() {
			if r, err := a.send(t.Context(), "POST", "/v1/do", doBody("c", "create", `{"n":1}`), nil); err == nil {
				answered <- r
			}
		}()
		vendor.AwaitArrivals(1)
		p.signal(syscall.SIGTERM)
		eventually(t, 5*time.Second, "it drains", func() bool { return strings.Contains(p.logged(), "draining") })
		close(finish)
		(<-answered).is(200, "succeeded").fresh()
		<-p.done
		require.NoError(t, p.cmd.Wait())
		a.at(spawn(t, cfg).url()).do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
		require.Equal(t, 1, vendor.Arrivals())
	})
}

// TestSecondProcessOnAFolder is refused at once.
func TestSecondProcessOnAFolder(t *testing.T) {
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(t.TempDir(), "data")
	boot(t, cfg)
	cmd := exec.Command(os.Args[0], "serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+cfg.Store)
	cmd.Env = append(os.Environ(), childEnv+"=1", "GATEWAY_ADMIN_KEY="+testAdminKey, "GATEWAY_SECRET_KEY="+testSecretKey)
	started := time.Now()
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Equal(t, exitFailed, cmd.ProcessState.ExitCode())
	require.Contains(t, string(out), "in use by another gateway process")
	require.Less(t, time.Since(started), 5*time.Second)
}

// TestNewRedisNeedsInit: an empty Redis is either new or lost, and only a person
// knows; until somebody says so nothing is claimed.
func TestNewRedisNeedsInit(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Durable()...)
	cfg := testConfig(t)
	cfg.Store = server.URL()
	p := spawn(t, cfg)
	admin := &agent{t: t, base: p.url(), key: testAdminKey}
	require.Equal(t, 503, admin.call("POST", "/v1/tenants", `{"id":"early"}`).status)
	run := func() (string, int) {
		cmd := exec.Command(os.Args[0], "store", "init", "--store="+cfg.Store)
		cmd.Env = append(os.Environ(), childEnv+"=1", "GATEWAY_ADMIN_KEY="+testAdminKey, "GATEWAY_SECRET_KEY="+testSecretKey)
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	out, code := run()
	require.Equal(t, 0, code, out)
	_, code = run()
	require.Equal(t, exitFailed, code, "twice is a mistake somebody should look at")
	eventually(t, 5*time.Second, "it serves without a restart", func() bool {
		return admin.call("POST", "/v1/tenants", fmt.Sprintf(`{"id":%q}`, newTenantName())).status == 201
	})
	require.Equal(t, []string{"store.initialized"}, admin.events("event=store.initialized"), "once")
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, p.url())
	eventually(t, 5*time.Second, "its connectors are kept", func() bool {
		return a.call("PUT", "/v1/connections/c", map[string]any{"connector": "probe@1", "base_url": vendor.URL(),
			"credentials": map[string]string{"token": sentinel}}).status < 300 &&
			a.do("c", "create", `{"n":1}`).status == 200
	})
}
