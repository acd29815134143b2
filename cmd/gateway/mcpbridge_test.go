package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// bridgeTo starts `gateway mcp` as a client would, in a process of its own.
func bridgeTo(t testing.TB, env ...string) *mcpsdk.ClientSession {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "mcp")
	cmd.Env = append(append(os.Environ(), childEnv+"=1"), env...)
	return connectMCP(t, &mcpsdk.CommandTransport{Command: cmd})
}

// A client without the gateway's address starts the bridge, and is one with the
// others.
func TestMCPBridge(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	a.mcpTools("c", true)
	session := bridgeTo(t, envURL+"="+a.base, envKey+"="+a.key)

	require.Equal(t, []string{"c__create", "c__remove"}, actionTools(t, session))
	callTool(t, session, "do", doBody("c", "create", `{"n":1}`)).says("DONE").failed(false)
	callTool(t, session, "c__create", `{"n":1}`).says("ALREADY DONE").failed(false)
	a.do("c", "create", `{"n":1}`).is(200, "succeeded").replayed()
	callTool(t, a.mcp(), "do", doBody("c", "create", `{"n":1}`)).says("ALREADY DONE")
	callTool(t, session, "do", doBody("c", "create", `{"n":9007199254740993}`)).says("NOT DONE by this call").failed(true)
	vendor.Use(vendortest.CloseAfterBody)
	callTool(t, session, "do", doBody("c", "create", `{"n":2}`)).says("UNKNOWN").failed(true)
	require.Equal(t, 2, vendor.Arrivals())
	require.NoError(t, session.Close(), "it ends when its client hangs up")
}

// The gateway goes away under a bridge and comes back: a call in between leaves a
// doubt and the advice to repeat it, and the repeat is the one write.
func TestMCPBridgeOutlivesItsGateway(t *testing.T) {
	t.Parallel()
	cfg := embedded(t)
	app, _ := boot(t, cfg)
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	a.mcpTools("c", true)
	session := bridgeTo(t, envURL+"="+a.base, envKey+"="+a.key)
	callTool(t, session, "c__create", `{"n":1}`).says("DONE").failed(false)

	require.NoError(t, app.Close())
	const unknown = "UNKNOWN: may have been done; do not send again; check by repeating this call unchanged"
	callTool(t, session, "do", doBody("c", "create", `{"n":2}`)).says(unknown).failed(true)
	callTool(t, session, "c__create", `{"n":1}`).says(unknown).failed(true)
	callTool(t, session, "get_action", `{"id":"act_x"}`).says("FAILED: the gateway gave no answer").failed(true)
	list, err := session.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, list.Tools, 6, "the fixed tools are there, for when it is back")
	require.Contains(t, list.Meta["dev.holdfast/incomplete"], "list the tools again")
	require.Equal(t, 1, vendor.Arrivals())

	cfg.Listen = strings.TrimPrefix(a.base, "http://")
	boot(t, cfg)
	callTool(t, session, "do", doBody("c", "create", `{"n":2}`)).says("DONE").failed(false)
	callTool(t, session, "c__create", `{"n":2}`).says("ALREADY DONE").failed(false)
	callTool(t, session, "c__create", `{"n":1}`).says("ALREADY DONE").failed(false)
	require.Equal(t, []string{"c__create", "c__remove"}, actionTools(t, session))
	require.Equal(t, 2, vendor.Arrivals())
}

// Whatever becomes of the answer on its way, the bridge has sent its request once,
// and what is no gateway's word is no word on the write.
func TestMCPBridgeSendsOnce(t *testing.T) {
	t.Parallel()
	gateway := vendortest.New(t, vendortest.OK) // counts what arrives at its socket
	session := bridgeTo(t, envURL+"="+gateway.URL(), envKey+"=hf_key")
	sent := 0
	for _, fault := range vendortest.Faults() {
		// A connection that is kept from the call before, and breaks in this one, is
		// what tempts clients into sending again.
		gateway.Use(vendortest.OK)
		callTool(t, session, "do", doBody("c", "create", `{"n":0}`))
		sent++
		require.Equal(t, sent, gateway.Arrivals())
		gateway.Use(fault.Behaviour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if fault.Hangs {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		}
		r, err := session.CallTool(ctx, &mcpsdk.CallToolParams{Name: "do", Arguments: json.RawMessage(doBody("c", "create", `{"n":1}`))})
		cancel()
		sent++
		eventually(t, 10*time.Second, "the request arrives", func() bool { return gateway.Arrivals() == sent })
		if fault.Hangs {
			require.ErrorIs(t, err, context.DeadlineExceeded, fault.Name)
			continue
		}
		require.NoError(t, err, fault.Name)
		readTool(t, r).says("UNKNOWN: may have been done; do not send again").failed(true)
	}
	require.Equal(t, sent, gateway.Arrivals())
}

// Each configuration in the README, with a real address, key and program in it,
// gets a client to the gateway.
func TestMCPConfigurationsInREADME(t *testing.T) {
	t.Parallel()
	app, _ := boot(t, embedded(t))
	vendor := vendortest.New(t, vendortest.OK)
	a := newAgent(t, app.URL())
	a.connect("c", "probe@1", vendor.URL())
	self, err := os.Executable()
	require.NoError(t, err)
	real := strings.NewReplacer("http://localhost:8080", a.base, "hf_…", a.key, "/path/to/gateway", self)
	overHTTP, bridged := 0, 0
	for _, page := range docPages(t) {
		for _, b := range page.Blocks {
			if page.Path != "README.md" || b.Kind != "json" || !b.Word("mcp-client") {
				continue
			}
			var config map[string]map[string]mcpServer
			require.NoError(t, json.Unmarshal([]byte(real.Replace(b.Text)), &config), b.Place())
			for _, servers := range config {
				for _, s := range servers {
					var session *mcpsdk.ClientSession
					if s.Command == "" {
						overHTTP++
						b := *a
						b.key = strings.TrimPrefix(s.Headers["Authorization"], "Bearer ")
						session = connectMCP(t, &mcpsdk.StreamableClientTransport{Endpoint: s.URL, HTTPClient: b.client(), DisableStandaloneSSE: true})
					} else {
						bridged++
						cmd := exec.Command(s.Command, s.Args...)
						cmd.Env = []string{childEnv + "=1"} // clients pass on little else
						for name, value := range s.Env {
							cmd.Env = append(cmd.Env, name+"="+value)
						}
						session = connectMCP(t, &mcpsdk.CommandTransport{Command: cmd})
					}
					require.False(t, callTool(t, session, "do", doBody("c", "create", `{"n":1}`)).bad)
				}
			}
		}
	}
	require.Equal(t, 3, overHTTP)
	require.Equal(t, 2, bridged)
	require.Equal(t, 1, vendor.Arrivals(), "all are one")
}
