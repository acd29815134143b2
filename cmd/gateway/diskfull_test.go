package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// smallDisk is a file system of its own in memory, which a process beside the
// test keeps mounted, out of sight of everybody else.
type smallDisk struct {
	dir   string   // where gateways see it
	seen  string   // where the test does
	enter []string // runs a command where it is mounted
}

func mountSmallDisk(t *testing.T, size string) smallDisk {
	t.Helper()
	dir := t.TempDir()
	unshare, enter := []string{"-m"}, []string{"-m"}
	if os.Getuid() != 0 {
		unshare, enter = []string{"-U", "-r", "-m"}, []string{"-U", "--preserve-credentials", "-m"}
	}
	cmd := exec.Command("unshare", append(unshare, "sh", "-c",
		`mount -t tmpfs -o size="$2" none "$1" && echo mounted && exec cat`, "sh", dir, size)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe() // it ends with this
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err, "this test needs to mount a file system: root, or user namespaces")
	require.Equal(t, "mounted\n", said)
	pid := strconv.Itoa(cmd.Process.Pid)
	return smallDisk{
		dir: dir, seen: filepath.Join("/proc", pid, "root", dir),
		enter: append(append([]string{"nsenter", "-t", pid}, enter...), "--"),
	}
}

// fill takes all the room that is left.
func (d smallDisk) fill(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.NoError(t, f.Close())
}

func (d smallDisk) filler() string { return filepath.Join(d.seen, "filler") }

func (p *process) adminURL() string {
	p.t.Helper()
	m := regexp.MustCompile(`"listener":"admin","addr":"([^"]+)"`).FindStringSubmatch(p.logged())
	require.Len(p.t, m, 2)
	return "http://" + m[1]
}

// TestDiskFull: the disk under the embedded store fills up while a write is at
// the vendor. What is not claimed is not sent, the answer that cannot be saved is
// told as one, and the gateway ends; it starts again once there is room, and
// everything that was answered is answered in the same bytes.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk := mountSmallDisk(t, "16m")
	answer := make(chan struct{})
	slow := vendortest.New(t, gated(answer, vendortest.OK))
	vendor := vendortest.New(t, vendortest.OK)
	cfg := testConfig(t)
	cfg.Store = embeddedPrefix + filepath.Join(disk.dir, "data")
	p := spawnUnder(t, disk.enter, cfg, "--lease="+shortLease.String())
	a := newAgent(t, p.url())
	a.connect("c", "probe@1", vendor.URL())
	a.connect("slow", "probe-slow@1", slow.URL())
	told := map[int]reply{0: a.do("c", "create", `{"n":0}`).is(200, "succeeded").fresh()}
	inDoubt := make(chan reply, 1)
	go func() {
		if r, err := a.send(t.Context(), "POST", "/v1/do", doBody("slow", "create", `{"n":1}`), nil); err == nil {
			inDoubt <- r
		}
	}()
	slow.AwaitArrivals(1)

	disk.fill(t)
	refused := 0
	for n := 1; refused == 0; n++ {
		r := a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n))
		if r.status == 200 {
			told[n] = r.is(200, "succeeded").fresh()
			require.Less(t, n, 1000, "the disk is full")
			continue
		}
		refused = n
		if r.status == 423 { // claimed in the last room there was
			r.is(423, "answer_not_saved")
			break
		}
		require.Contains(t, []string{"store_unavailable", "draining"}, r.text("code"), "%s", r.raw)
		require.Equal(t, "wait_and_repeat", r.text("next"))
		r.retryAfter()
	}
	arrived := vendor.Arrivals()
	require.Contains(t, []int{len(told), len(told) + 1}, arrived, "one for each that was told, and the one that was claimed")
	// The one at the vendor keeps the gateway up.
	for _, n := range []int{0, refused, refused + 1} {
		r := a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n))
		require.Equal(t, 503, r.status, "%s", r.raw)
		require.Contains(t, []string{"store_unavailable", "draining"}, r.text("code"))
	}
	ready := (&agent{t: t, base: p.adminURL()}).call("GET", "/readyz", nil)
	require.Equal(t, 503, ready.status, "%s", ready.raw)
	require.Equal(t, arrived, vendor.Arrivals(), "nothing of what was refused was sent")

	close(answer)
	doubt := (<-inDoubt).is(423, "answer_not_saved").fresh()
	require.Equal(t, `{"arrival":1}`, rawMember(t, doubt.raw, "unsaved_result"))
	select {
	case <-p.done:
	case <-time.After(30 * time.Second):
		require.FailNow(t, "the gateway does not end", p.logged())
	}
	var exit *exec.ExitError
	require.ErrorAs(t, p.cmd.Wait(), &exit)
	require.Equal(t, exitFailed, exit.ExitCode())
	require.Contains(t, p.logged(), "no space left on device")

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	again := exec.CommandContext(ctx, disk.enter[0], append(disk.enter[1:], os.Args[0], "serve",
		"--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--store="+cfg.Store)...)
	again.Env = append(os.Environ(), childEnv+"=1", "GATEWAY_ADMIN_KEY="+testAdminKey, "GATEWAY_SECRET_KEY="+testSecretKey)
	out, err := again.CombinedOutput()
	require.True(t, errors.As(err, &exit), "it does not start on a full disk: %s", out)
	require.Contains(t, string(out), "no space left on device")

	require.NoError(t, os.Remove(disk.filler()))
	p = spawnUnder(t, disk.enter, cfg, "--lease="+shortLease.String())
	a = a.at(p.url())
	for n, first := range told {
		r := a.do("c", "create", fmt.Sprintf(`{"n":%d}`, n)).is(200, "succeeded").replayed()
		requireSameResult(t, first, r)
	}
	var held reply
	eventually(t, shortLease+10*time.Second, "the write in doubt is held or saved", func() bool {
		held = a.do("slow", "create", `{"n":1}`)
		return held.status != 409
	})
	held.is(423, "outcome_unknown")
	require.Equal(t, doubt.text("action_id"), held.text("action_id"))
	require.Equal(t, 1, slow.Arrivals(), "it is not sent again")
	a.do("c", "create", `{"n":999999}`).is(200, "succeeded").fresh()
	if arrived == len(told) {
		a.do("c", "create", fmt.Sprintf(`{"n":%d}`, refused)).is(200, "succeeded").fresh()
	}
	sent := map[string]int{}
	for _, r := range vendor.Requests() {
		sent[string(r.Body)]++
		require.Equal(t, 1, sent[string(r.Body)], "%s", r.Body)
	}
	require.False(t, strings.Contains(p.logged(), "damaged"))
}
