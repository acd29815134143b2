//go:build controls

package torturetest_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/torturetest"
)

// control takes one protection out of the gateway and names what must notice. A
// test that cannot fail proves nothing; here each one is seen to fail.
type control struct {
	name     string
	file     string // of the module
	old, new string // old stands in the file exactly once
	// The package and test that must fail, or "" for the rig alone.
	pkg, run string
	tags     string // that the test is built with
	// Where the rig must find violations too: on which store, and how many calls
	// it takes.
	rig   string
	calls int
}

func controls() []control {
	const decide, wire = "internal/dedupe/decide.go", "internal/wire/send.go"
	return []control{
		{
			name: "owner token: anybody may settle", file: "internal/dedupe/settle.go",
			old: "	if cur.Owner != owner {\n", new: "	if false && cur.Owner != owner {\n",
			pkg: "internal/pebblestore", run: "TestRules",
		},
		{
			name: "nonce: a step that is repeated is applied again, embedded", file: "internal/pebblestore/apply.go",
			old: "st.nonces.find(name, s.uptime()); ok {", new: "st.nonces.find(name, s.uptime()); ok && false {",
			pkg: "internal/pebblestore", run: "TestConformance",
		},
		{
			name: "nonce: a step that is repeated is applied again, Redis", file: "internal/redisstore/scripts/apply.lua",
			old: "if mark == 'A' and #seen >= 9 then return", new: "if mark == 'A' and #seen >= 9 then local _ =",
			pkg: "internal/redisstore", run: "TestConformance",
		},
		{
			name: "fsync: told before it is on the disk", file: "internal/pebblestore/apply.go",
			old: "		if err := b.SyncWait(); err != nil {", new: untold,
			pkg: "internal/pebblestore", run: "TestNothingIsToldBeforeItIsDurable|TestAnAppliedStepSurvivesACrash",
		},
		{
			name: "fsync: told before it is on the disk, as the system sees it", file: "internal/pebblestore/apply.go",
			old: "		if err := b.SyncWait(); err != nil {", new: untold,
			pkg: "cmd/gateway", run: "TestNothingLeavesBeforeItIsSynced", tags: "syscalls",
		},
		{
			name: "fsync: none", file: "internal/pebblestore/apply.go",
			old: "s.db.ApplyNoSyncWait(b, pebble.Sync)", new: "s.db.Apply(b, pebble.NoSync)",
			pkg: "cmd/gateway", run: "TestNothingLeavesBeforeItIsSynced", tags: "syscalls",
		},
		{
			name: "the one send: again on a new connection, as http.Transport does", file: wire,
			old: "	out := c.exchange(ctx, con, p, permit)\n", new: resendOnCut,
			pkg: "internal/wire", run: "TestWarmConnection", rig: "embedded", calls: 1500,
		},
		{
			name: "no redirect: follow one", file: wire,
			old: "	out := c.exchange(ctx, con, p, permit)\n", new: followRedirect,
			rig: "embedded", calls: 2500,
		},
		{
			name: "fingerprint first: in flight is told before the payload is compared", file: decide,
			old: "	case b.Fingerprint != cl.Fingerprint:", new: "	case !b.State.Unsettled() && b.Fingerprint != cl.Fingerprint:",
			pkg: "internal/pebblestore", run: "TestRules",
		},
		{
			name: "dial-time check: any address", file: "internal/wire/egress.go",
			old: "		return e.check(ap.Addr(), plain)\n", new: "		_ = ap\n		return nil\n",
			pkg: "internal/wire", run: "TestRebindingName|TestMixedAddresses|TestEgressControl",
		},
		{
			name: "paused owner: send however late", file: "internal/actions/owner.go",
			old: "	if !within(lease, o.issued, now) || !within(lease*2/3, o.confirmed, now) {\n", new: "	if lease < 0 || now < 0 {\n",
			pkg: "internal/actions", run: "TestASenderThatWasHeldUpDoesNotSend",
		},
		{
			name: "twin guard: a new key is a new write", file: decide,
			old: "twin != nil && !cl.AllowDuplicate {", new: "twin != nil && false {",
			pkg: "internal/pebblestore", run: "TestRules",
		},
		{
			name: "a lease that lapses frees the write", file: decide,
			old: "	case b == nil || b.over(v.now): // rule 1\n", new: "	case b == nil || b.over(v.now) || b.State == Held:\n",
			pkg: "internal/pebblestore", run: "TestRules", rig: "redis", calls: 1500,
		},
	}
}

const untold = `		if st != nil {
			go func() { _ = b.SyncWait(); close(c.done); _ = b.Close() }()
			return nil
		}
		if err := b.SyncWait(); err != nil {`

const resendOnCut = `	out := c.exchange(ctx, con, p, permit)
	if out.Phase == SentNoAnswer {
		if con, reason := c.dialer.dial(ctx, p); reason == "" {
			out = c.exchange(ctx, con, p, permit)
		}
	}
`

const followRedirect = `	out := c.exchange(ctx, con, p, permit)
	if to := out.Header.Get("Location"); out.Status == 307 && to != "" {
		req.URL = to
		return c.send(ctx, req, permit)
	}
`

// TestControls needs minutes: each control compiles its own gateway.
func TestControls(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, c := range controls() {
		t.Run(c.name, func(t *testing.T) {
			overlay := c.overlay(t, root)
			if c.pkg != "" {
				cmd := exec.Command("go", "test", "-overlay", overlay, "-tags="+c.tags, "-count=1", "-run", "^("+c.run+")$", "./"+c.pkg)
				cmd.Dir = root
				out, err := cmd.CombinedOutput()
				require.Error(t, err, "%s passes without it", c.run)
				require.Contains(t, string(out), "--- FAIL", "it must fail, not break:\n%s", out)
				require.NotContains(t, string(out), "build failed")
			}
			if c.rig != "" {
				report, err := torturetest.Run(t.Context(), torturetest.Plan{
					Program: build(t, overlay), Dir: t.TempDir(), Redis: c.rig == "redis", Seed: 1, Calls: c.calls, Agents: *agents,
				})
				require.NoError(t, err)
				require.NotEmpty(t, report.Violations, "the rig finds nothing wrong without it")
				t.Logf("the rig: %d violations in %d calls, such as %s", len(report.Violations), report.Calls, report.Violations[0])
			}
		})
	}
}

// overlay writes the weakened file and what tells the go command to use it.
func (c control) overlay(t *testing.T, root string) string {
	t.Helper()
	file := filepath.Join(root, filepath.FromSlash(c.file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(text), c.old), "%s has changed: mend the control", c.file)
	dir := t.TempDir()
	weak := filepath.Join(dir, filepath.Base(file))
	require.NoError(t, os.WriteFile(weak, []byte(strings.Replace(string(text), c.old, c.new, 1)), 0o644))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: weak}})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, replace, 0o644))
	return overlay
}
