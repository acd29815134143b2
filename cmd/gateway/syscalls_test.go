//go:build syscalls

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// syscall is a call of the traced process that has ended, in the order of ends.
type tracedCall struct {
	name, text string
	began      int // line of the trace; calls that end at once begin where they end
	ended      int
}

var (
	callBegins  = regexp.MustCompile(`^(\d+) +([a-z0-9_]+)\((.*)$`)
	callResumes = regexp.MustCompile(`^(\d+) +<\.\.\. ([a-z0-9_]+) resumed>(.*)$`)
)

const unfinished = " <unfinished ...>"

func readTrace(t *testing.T, file string) []tracedCall {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	open := map[string]tracedCall{} // by thread
	var calls []tracedCall
	n := 0
	for line := range strings.Lines(string(raw)) {
		n++
		line = strings.TrimRight(line, "\n")
		if m := callResumes.FindStringSubmatch(line); m != nil {
			c := open[m[1]]
			delete(open, m[1])
			c.text, c.ended = c.text+m[3], n
			calls = append(calls, c)
		} else if m := callBegins.FindStringSubmatch(line); m != nil {
			c := tracedCall{name: m[2], text: m[3], began: n, ended: n}
			if text, cut := strings.CutSuffix(c.text, unfinished); cut {
				c.text = text
				open[m[1]] = c
				continue
			}
			calls = append(calls, c)
		}
	}
	return calls
}

// firstCall is the first call after a line that is as asked.
func firstCall(t *testing.T, calls []tracedCall, after int, what string, is func(c tracedCall) bool) tracedCall {
	t.Helper()
	for _, c := range calls {
		if c.began > after && is(c) {
			return c
		}
	}
	require.FailNow(t, "not in the trace", what)
	return tracedCall{}
}

// TestNothingLeavesBeforeItIsSynced: the system's own account of the order. The
// log that has a claim is synced before the vendor's port is dialled or written
// to, and the log that has its answer before the agent gets it.
func TestNothingLeavesBeforeItIsSynced(t *testing.T) {
	vendor := vendortest.New(t, vendortest.OK)
	cfg := embeddedConfig(t)
	trace := filepath.Join(t.TempDir(), "trace")
	p := spawnUnder(t, []string{
		"strace", "-D", "-f", "-qq", "-y", "-s", "200000", "-o", trace,
		"-e", "trace=connect,write,writev,pwrite64,sendto,fsync,fdatasync,sync_file_range",
	}, cfg)
	a := newAgent(t, p.url())
	a.connect("c", "probe@1", vendor.URL())
	const writes = 10
	var ids []string
	for n := range writes {
		ids = append(ids, a.do("c", "create", fmt.Sprintf(`{"n":%d,"pad":"mark-%d-"}`, n, n)).is(200, "succeeded").text("id"))
	}
	p.kill()

	calls := readTrace(t, trace)
	_, port, _ := strings.Cut(strings.TrimPrefix(vendor.URL(), "http://"), ":")
	toLog := func(c tracedCall) bool {
		return (c.name == "write" || c.name == "writev" || c.name == "pwrite64") && strings.Contains(c.text, ".log>")
	}
	synced := func(c tracedCall) bool {
		return (c.name == "fdatasync" || c.name == "fsync") && strings.Contains(c.text, ".log>") && strings.HasSuffix(c.text, "= 0")
	}
	dialled := firstCall(t, calls, 0, "the vendor is dialled", func(c tracedCall) bool {
		return c.name == "connect" && strings.Contains(c.text, "htons("+port+")")
	})
	for n, id := range ids {
		claimed := firstCall(t, calls, 0, "the claim goes to the log", func(c tracedCall) bool { return toLog(c) && strings.Contains(c.text, id) })
		durable := firstCall(t, calls, claimed.ended, "the log is synced", synced)
		left := firstCall(t, calls, 0, "it goes to the vendor", func(c tracedCall) bool {
			return !strings.Contains(c.text, ".log>") && strings.Contains(c.text, "POST /things") && strings.Contains(c.text, fmt.Sprintf("mark-%d-", n))
		})
		require.Less(t, durable.ended, left.began, "write %d", n)
		if n == 0 {
			require.Less(t, durable.ended, dialled.began)
		}
		settled := firstCall(t, calls, left.ended, "the answer goes to the log", func(c tracedCall) bool { return toLog(c) && strings.Contains(c.text, id) })
		kept := firstCall(t, calls, settled.ended, "the log is synced again", synced)
		told := firstCall(t, calls, left.ended, "the agent is told", func(c tracedCall) bool {
			return !strings.Contains(c.text, ".log>") && strings.Contains(c.text, "HTTP/1.1 200") && strings.Contains(c.text, id)
		})
		require.Less(t, kept.ended, told.began, "write %d", n)
	}
	require.Equal(t, writes, vendor.Arrivals())
}
