//go:build mcpclients

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// `make mcp-clients` runs these tests: MCP clients from npm speak to the real gateway.
// scripts/mcp-clients.sh installs them and names them here.

// npmTool is the path that the script has put into the environment.
func npmTool(t testing.TB, name string) string {
	t.Helper()
	path := os.Getenv(name)
	require.NotEmpty(t, path, "run `make mcp-clients`, which installs the clients and names them in %s", name)
	require.FileExists(t, filepath.Clean(path+map[bool]string{true: "/package.json"}[name == "MCP_SDK"]))
	return path
}

// node makes a command of Node.
func node(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, npmTool(t, "MCP_NODE"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, childEnv+"=1")
	return cmd
}

// The conformance suite, for each version of the protocol that it has requirements
// for. The suite sends no key, so a proxy adds one; it changes nothing else.
func TestMCPClientConformance(t *testing.T) {
	app, _ := boot(t, embedded(t))
	a := newAgent(t, app.URL())
	target, err := url.Parse(app.URL())
	require.NoError(t, err)
	wire := &http.Transport{}
	defer wire.CloseIdleConnections()
	proxy := httptest.NewServer(&httputil.ReverseProxy{Transport: wire, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host
		r.Out.Header.Set("Authorization", "Bearer "+a.key)
	}})
	defer proxy.Close()
	expected, err := filepath.Abs("../../.ci")
	require.NoError(t, err)
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			results := t.TempDir()
			cmd := node(t, npmTool(t, "MCP_CONFORMANCE"), "server", "--url", proxy.URL+"/mcp", "--requirements", version,
				"--expected-failures", filepath.Join(expected, "mcp-conformance-"+version+".yml"), "--output-dir", results)
			out, err := cmd.CombinedOutput()
			_, summary, _ := strings.Cut(string(out), "=== SUMMARY ===")
			t.Log(summary)
			require.NoError(t, err, "%s", out)
			checkConformance(t, results)
		})
	}
}

type conformanceCheck struct{ ID, Status, ErrorMessage string }

// A scenario that is expected to fail does so for what a gateway has not got, and
// every message in it was one by the protocol's schema.
func checkConformance(t *testing.T, results string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(results, "*", "checks.json"))
	require.NoError(t, err)
	require.Greater(t, len(files), 30)
	var stateless []string
	valid := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		var checks []conformanceCheck
		require.NoError(t, json.Unmarshal(raw, &checks))
		for _, c := range checks {
			if c.ID == "wire-schema-valid" {
				require.Equal(t, "SUCCESS", c.Status, file)
				valid++
			}
			if c.Status == "FAILURE" && strings.Contains(file, "server-stateless") {
				stateless = append(stateless, c.ID)
			}
		}
	}
	require.Greater(t, valid, 20)
	if stateless != nil {
		require.ElementsMatch(t, []string{
			"sep-2575-server-declares-prompts-in-discover",
			"sep-2575-server-rejects-undeclared-capability", "sep-2575-missing-capability-http-400",
			"sep-2575-http-server-no-independent-requests-on-stream", "sep-2575-server-no-log-without-loglevel",
		}, stateless)
	}
}

// The Inspector's command line, over HTTP and with the bridge as its child.
func TestMCPClientInspector(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	a.mcpTools("c", true)
	self, err := os.Executable()
	require.NoError(t, err)
	inspect := func(over string, args ...string) []byte {
		t.Helper()
		to := []string{npmTool(t, "MCP_INSPECTOR"), "--cli", a.base + "/mcp", "--transport", "http", "--header", "Authorization: Bearer " + a.key}
		if over == "stdio" {
			to = []string{npmTool(t, "MCP_INSPECTOR"), "--cli", self, "mcp", "-e", envURL + "=" + a.base, "-e", envKey + "=" + a.key, "-e", childEnv + "=1"}
		}
		cmd := node(t, append(to, args...)...)
		var out, problems bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &problems
		_ = cmd.Run() // its exit code tells of isError, which is looked at below
		require.True(t, json.Valid(out.Bytes()), "%s %s", out.Bytes(), problems.Bytes())
		return out.Bytes()
	}
	call := func(over, tool string, args ...string) toolAnswer {
		t.Helper()
		list := []string{"--method", "tools/call", "--tool-name", tool}
		for _, arg := range args {
			list = append(list, "--tool-arg", arg)
		}
		return readTool(t, unmarshalResult(t, string(inspect(over, list...))))
	}
	for i, over := range []string{"http", "stdio"} {
		var list mcpsdk.ListToolsResult
		require.NoError(t, json.Unmarshal(inspect(over, "--method", "tools/list", "--strict"), &list))
		require.Len(t, list.Tools, 8)
		first := call(over, "c__create", fmt.Sprintf("n=%d", i)).says("DONE at ").failed(false)
		other := []string{"http", "stdio"}[1-i]
		again := call(other, "do", "connection=c", "action=create", fmt.Sprintf(`body={"n":%d}`, i)).says("ALREADY DONE at ").failed(false)
		requireSameResult(t, first.reply, again.reply)
		a.do("c", "create", numbered(i)).is(200, "succeeded").replayed()
	}
	vendor.Use(vendortest.CloseAfterBody)
	call("http", "c__create", "n=7").says("UNKNOWN: may have been done; do not send again; check act_").failed(true)
	call("stdio", "c__create", "n=7").says("UNKNOWN: may have been done; do not send again; check act_").failed(true)
	require.Equal(t, 3, vendor.Arrivals())
}

// typescript is the TypeScript SDK's client in a process of its own.
type typescript struct {
	t   testing.TB
	in  io.Writer
	seq int

	mu      sync.Mutex
	waiting map[string]chan json.RawMessage
}

func startTypeScript(t testing.TB, env ...string) *typescript {
	t.Helper()
	script, err := filepath.Abs("testdata/mcpclient.mjs")
	require.NoError(t, err)
	cmd := node(t, script)
	cmd.Env = append(cmd.Env, append(env, "MCP_SDK="+npmTool(t, "MCP_SDK"))...)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	ts := &typescript{t: t, in: in, waiting: map[string]chan json.RawMessage{}}
	connected := ts.expect("connected")
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go ts.read(out, ended)
	t.Cleanup(func() {
		_ = in.Close()
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the client said: %s", problems.Bytes())
		}
	})
	ts.wait(connected)
	return ts
}

func (ts *typescript) expect(ref string) chan json.RawMessage {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	answer := make(chan json.RawMessage, 1)
	ts.waiting[ref] = answer
	return answer
}

func (ts *typescript) read(out io.Reader, ended chan<- struct{}) {
	defer close(ended)
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var head struct{ Ref string }
		if json.Unmarshal(lines.Bytes(), &head) != nil {
			continue
		}
		ts.mu.Lock()
		answer := ts.waiting[head.Ref]
		ts.mu.Unlock()
		if answer != nil {
			answer <- bytes.Clone(lines.Bytes())
		}
	}
}

// tsAnswer is what came of a call: a result, or the SDK's error.
type tsAnswer struct {
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
	Heard int // notifications of progress
}

func (ts *typescript) wait(answer <-chan json.RawMessage) (out tsAnswer) {
	ts.t.Helper()
	select {
	case raw := <-answer:
		require.NoError(ts.t, json.Unmarshal(raw, &out))
	case <-time.After(2 * time.Minute):
		require.FailNow(ts.t, "the TypeScript client does not answer")
	}
	return out
}

// begin starts a call; options are members of the order, such as "timeout":500.
func (ts *typescript) begin(name, arguments string, options ...string) <-chan json.RawMessage {
	ts.t.Helper()
	ts.seq++
	ref := fmt.Sprint(ts.seq)
	answer := ts.expect(ref)
	order := fmt.Sprintf(`{"ref":%q,"name":%q,"arguments":%s`, ref, name, arguments)
	for _, option := range options {
		order += "," + option
	}
	_, err := fmt.Fprintln(ts.in, order+"}")
	require.NoError(ts.t, err)
	return answer
}

func (ts *typescript) call(name, arguments string, options ...string) toolAnswer {
	ts.t.Helper()
	return ts.tool(ts.begin(name, arguments, options...))
}

func (ts *typescript) tool(answer <-chan json.RawMessage) toolAnswer {
	ts.t.Helper()
	out := ts.wait(answer)
	require.Nil(ts.t, out.Error)
	return readTool(ts.t, unmarshalResult(ts.t, string(out.Result)))
}

func (a *agent) typescript() *typescript {
	a.t.Helper()
	return startTypeScript(a.t, "MCP_URL="+a.base+"/mcp", "MCP_KEY="+a.key)
}

// The TypeScript SDK's client and REST and the Go SDK's are one ledger.
func TestMCPClientTypeScript(t *testing.T) {
	onBothStores(t, func(t *testing.T, cfg Config) {
		app, _ := boot(t, cfg)
		vendor := vendortest.New(t, vendortest.OK)
		a := newAgent(t, app.URL())
		a.connect("c", "probe@1", vendor.URL())
		a.mcpTools("c", true)
		self, err := os.Executable()
		require.NoError(t, err)
		direct, bridged := a.typescript(), startTypeScript(t, "MCP_COMMAND="+self, envURL+"="+a.base, envKey+"="+a.key)
		for i, ts := range []*typescript{direct, bridged} {
			var list mcpsdk.ListToolsResult
			require.NoError(t, json.Unmarshal(ts.wait(ts.begin("tools/list", `{}`)).Result, &list))
			require.Len(t, list.Tools, 8)
			body := numbered(i)
			first := ts.call("c__create", body).says("DONE at ").failed(false)
			requireSameResult(t, first.reply, a.do("c", "create", body).is(200, "succeeded").replayed())
			callTool(t, a.mcp(), "do", doBody("c", "create", body)).says("ALREADY DONE at ")
			body = numbered(10 + i)
			a.do("c", "create", body).is(200, "succeeded").fresh()
			ts.call("do", doBody("c", "create", body)).says("ALREADY DONE at ").failed(false)
			ts.call("do", doBody("c", "create", `{"n":"x"}`)).says("NOT DONE by this call: ").failed(true)
		}
		vendor.Use(vendortest.CloseAfterBody)
		direct.call("c__create", `{"n":99}`).says("UNKNOWN: ").failed(true)
		bridged.call("c__create", `{"n":99}`).says("UNKNOWN: ").failed(true)
		require.Equal(t, 5, vendor.Arrivals())
	})
}

// The same call under two ids, three milliseconds apart.
func TestMCPClientTypeScriptDuplicates(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	ts := a.typescript()
	const rounds = 20
	for n := range rounds {
		one, two := ts.begin("c__create", numbered(n)), ts.begin("c__create", numbered(n), `"after":3`)
		for _, answer := range []toolAnswer{ts.tool(one), ts.tool(two)} {
			require.Regexp(t, `^(DONE at |ALREADY DONE at |IN FLIGHT: )`, answer.first)
		}
	}
	require.Equal(t, rounds, vendor.Arrivals())
}

// requestTimeout is the code of the SDK's own time-out.
const requestTimeout = -32001

// The SDK gives a call up after its time-out (60 s unless told otherwise; here it is
// told less, so that the test does not wait: the code that runs is the same), tells the
// gateway so, and the agent repeats it: over the same client, another, REST.
func TestMCPClientTypeScriptTimesOutAndRepeats(t *testing.T) {
	cfg := embedded(t)
	cfg.progress = 100 * time.Millisecond
	app, _ := boot(t, cfg)
	gate := make(chan struct{})
	vendor := vendortest.New(t, gated(gate, vendortest.OK))
	a := newAgent(t, app.URL())
	a.connect("c", "probe-slow@1", vendor.URL())
	ts := a.typescript()
	const impatient = `"timeout":1500`
	out := ts.wait(ts.begin("c__create", `{"n":1}`, impatient))
	require.NotNil(t, out.Error)
	require.Equal(t, requestTimeout, out.Error.Code)
	eventually(t, 20*time.Second, "the write arrives", func() bool { return vendor.Arrivals() == 1 })
	ts.call("c__create", `{"n":1}`).says("IN FLIGHT: ").failed(true)
	a.do("c", "create", `{"n":1}`).is(409, "in_flight")

	// With progress asked for, a call outlasts the time-out.
	patient := ts.begin("c__create", `{"n":2}`, impatient, `"progress":true`)
	eventually(t, 20*time.Second, "the second write arrives", func() bool { return vendor.Arrivals() == 2 })
	<-time.After(2 * time.Second) // longer than the client's patience, which progress renews
	close(gate)
	done := ts.wait(patient)
	require.Nil(t, done.Error)
	require.Greater(t, done.Heard, 3)
	readTool(t, unmarshalResult(t, string(done.Result))).says("DONE at ").failed(false)

	eventually(t, 20*time.Second, "it is done", func() bool { return a.do("c", "create", `{"n":1}`).status == 200 })
	ts.call("c__create", `{"n":1}`).says("ALREADY DONE at ").failed(false)
	a.typescript().call("do", doBody("c", "create", `{"n":1}`)).says("ALREADY DONE at ").failed(false)
	require.Equal(t, 2, vendor.Arrivals())
}

// A stream that breaks off, before the answer or in the middle of it: the SDK tries
// nothing again that would run the call, times out, and the repeat is answered.
func TestMCPClientTypeScriptCutStreams(t *testing.T) {
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	for n, early := range []bool{false, true} {
		proxy := newCutter(t, app.URL())
		proxy.early.Store(early)
		ts := startTypeScript(t, "MCP_URL="+proxy.url+"/mcp", "MCP_KEY="+a.key)
		proxy.cuts.Store(1)
		out := ts.wait(ts.begin("c__create", numbered(n), `"timeout":3000`))
		require.NotNil(t, out.Error, "a cut answer is none")
		require.EqualValues(t, 1, proxy.calls.Load(), "the client sent it once")
		require.Equal(t, n+1, vendor.Arrivals())
		ts.call("c__create", numbered(n)).says("ALREADY DONE at ").failed(false)
	}
	require.Equal(t, 2, vendor.Arrivals())
}
