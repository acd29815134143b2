//go:build controls

package torturetest_test

import (
	"os/exec"
	"path/filepath"
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
	const decide, wire, group = "internal/dedupe/decide.go", "internal/wire/send.go", "internal/pebblestore/group.go"
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
			name: "fsync: told before it is on the disk", file: group,
			old: "	if err := w.batch.SyncWait(); err != nil {", new: untold,
			pkg: "internal/pebblestore", run: "TestNothingIsToldBeforeItIsDurable|TestAnAppliedStepSurvivesACrash",
		},
		{
			name: "fsync: told before it is on the disk, as the system sees it", file: group,
			old: "	if err := w.batch.SyncWait(); err != nil {", new: untold,
			pkg: "cmd/gateway", run: "TestNothingLeavesBeforeItIsSynced", tags: "syscalls",
		},
		{
			name: "fsync: none", file: group,
			old: "g.store.db.ApplyNoSyncWait(b, pebble.Sync)", new: "g.store.db.Apply(b, pebble.NoSync)",
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
		{
			name: "clock guard, embedded: follow the machine's clock wherever it goes", file: "internal/pebblestore/clock.go",
			old: "wall.Sub(due) > maxJump:", new: "wall.Sub(due) > maxJump && false:",
			pkg: "internal/pebblestore", run: "TestClockSetForward", rig: "embedded", calls: 2500,
		},
		{
			name: "clock guard, Redis: beats do not compare clocks", file: "internal/redisstore/beat.go",
			old: "	if b.server.IsZero() {\n", new: "	if b != nil {\n",
			pkg: "internal/redisstore", run: "TestClockJumpsAreNoticed", rig: "redis", calls: 2500,
		},
		{
			name: "not ready: claim all the same", file: "internal/actions/prepare.go",
			old: "	if err := s.ready(); err != nil {\n", new: "	if err := s.ready(); err != nil && false {\n",
			rig: "embedded", calls: 1500,
		},
		{
			name: "one clock: a window is judged on the gateway's own", file: decide,
			old: "	case b == nil || b.over(v.now): // rule 1\n", new: "	case b == nil || b.over(time.Now()):\n",
			pkg: "internal/pebblestore", run: "TestRules", rig: "redis", calls: 600,
		},
		{
			name: "memory: what a call needed is kept", file: "internal/actions/do.go",
			old: "	started := time.Now()\n", new: leak,
			rig: "embedded", calls: 600,
		},
	}
}

const untold = `	if s != nil {
		go func() { _ = w.batch.SyncWait(); _ = w.batch.Close() }()
		return nil
	}
	if err := w.batch.SyncWait(); err != nil {`

const leak = `	started := time.Now()
	request := make([]byte, 1<<20)
	context.AfterFunc(s.base, func() { clear(request) })
`

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
			edit := torturetest.Edit{File: c.file, Old: c.old, New: c.new}
			if c.pkg != "" {
				overlay, err := torturetest.Overlay(root, t.TempDir(), edit)
				require.NoError(t, err)
				cmd := exec.Command("go", "test", "-overlay", overlay, "-tags="+c.tags, "-count=1", "-run", "^("+c.run+")$", "./"+c.pkg)
				cmd.Dir = root
				out, err := cmd.CombinedOutput()
				require.Error(t, err, "%s passes without it", c.run)
				require.Contains(t, string(out), "--- FAIL", "it must fail, not break:\n%s", out)
				require.NotContains(t, string(out), "build failed")
			}
			if c.rig != "" {
				report, err := torturetest.Run(t.Context(), torturetest.Plan{
					Program: build(t, edit), Dir: t.TempDir(), Redis: c.rig == "redis", Seed: 1, Calls: c.calls, Agents: *agents,
				})
				require.NoError(t, err)
				require.NotEmpty(t, report.Violations, "the rig finds nothing wrong without it")
				t.Logf("the rig: %d violations in %d calls, such as %s", len(report.Violations), report.Calls, report.Violations[0])
			}
		})
	}
}
