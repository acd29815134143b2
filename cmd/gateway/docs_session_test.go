package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/docstest"
)

// session is one page being followed: by bash, in a folder of its own, in which
// gateway is this very program. Ports that the page names may be taken, so each
// stands for a free one.
type session struct {
	t     *testing.T
	dir   string
	out   string            // folder of what each block printed
	ports map[string]string // of the page → of this run
}

// inClone are the pages that a reader follows in a clone of the repository.
func inClone() []string { return []string{"README.md", "CONTRIBUTING.md", "docs/quick-start.md"} }

// follow runs the blocks of a page that have no mark, or those of one mark.
func follow(t *testing.T, page docstest.Page, mark string) {
	run := func(b docstest.Block) bool {
		if b.Kind != "sh" {
			return b.SaveAs != ""
		}
		own := ""
		for m := range docMarks() {
			if b.Word(m) {
				own = m
			}
		}
		return own == mark && !b.Word("ci") && !b.Word("mcp-client")
	}
	shell := slices.ContainsFunc(page.Blocks, func(b docstest.Block) bool { return b.Kind == "sh" && run(b) })
	if !shell {
		return
	}
	s := &session{t: t, dir: t.TempDir(), out: t.TempDir(), ports: map[string]string{}}
	if mark != "" || slices.Contains(inClone(), page.Path) {
		copyTree(t, root, s.dir)
	}
	s.run(s.script(page, run))
	s.compare(page, run)
}

// script is the page as one script. A block of another terminal runs in the
// background, and what follows waits until it has said that it is up.
func (s *session) script(page docstest.Page, run func(docstest.Block) bool) string {
	var b strings.Builder
	b.WriteString(`set -euo pipefail
{ cat <&3 > /dev/null || :; kill -KILL 0; } & # when the test is gone
exec 3<&-
up() {
	for _ in $(seq 600); do
		if grep -qE '"msg":"listening"|Ctrl-C ends the demo|Ready to accept connections' "$1"; then return; fi
		sleep 0.1
	done
	echo "what was started in another terminal is not up"
	return 1
}
`)
	for _, block := range page.Blocks {
		if !run(block) {
			continue
		}
		text := s.here(block.Text)
		fmt.Fprintf(&b, "echo %s > '%s/at'\n", block.Place(), s.out)
		switch log := s.printed(block); {
		case block.Kind != "sh":
			fmt.Fprintf(&b, "mkdir -p \"$(dirname '%s')\"\ncat > '%s' <<'SAVED-BY-THE-READER'\n%sSAVED-BY-THE-READER\n", block.SaveAs, block.SaveAs, text)
		case block.Word("terminal"):
			fmt.Fprintf(&b, "(\n%s) > '%s' 2>&1 &\nup '%s'\n", text, log, log)
		default:
			fmt.Fprintf(&b, "exec > '%s' 2>&1\n%s", log, text)
		}
	}
	return b.String()
}

func (s *session) printed(b docstest.Block) string {
	return filepath.Join(s.out, fmt.Sprintf("%04d", b.Line))
}

var loopbackPort = regexp.MustCompile(`((?:localhost|127\.0\.0\.1):|--port |-p )(\d{2,5})\b`)

// here puts free ports into a text of the page.
func (s *session) here(text string) string {
	return loopbackPort.ReplaceAllStringFunc(text, func(found string) string {
		m := loopbackPort.FindStringSubmatch(found)
		return m[1] + s.port(m[2])
	})
}

func (s *session) port(of string) string {
	if s.ports[of] == "" {
		_, port, err := net.SplitHostPort(freeAddr(s.t))
		require.NoError(s.t, err)
		s.ports[of] = port
	}
	return s.ports[of]
}

// there takes them out of an output again.
func (s *session) there(text string) string {
	for of, port := range s.ports {
		text = strings.ReplaceAll(text, ":"+port, ":"+of)
	}
	return text
}

// patience is for the longest page on a loaded machine.
const patience = 4 * time.Minute

func (s *session) run(script string) {
	t := s.t
	t.Helper()
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = s.dir
	cmd.Env = s.environ()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// The other end of this pipe closes with this process, however it ends: a page's
	// gateways and servers must not outlive a test that was killed.
	alive, ends, err := os.Pipe()
	require.NoError(t, err)
	defer func() { require.NoError(t, ends.Close()) }()
	cmd.ExtraFiles = []*os.File{alive}
	require.NoError(t, cmd.Start())
	require.NoError(t, alive.Close())
	end := func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	timer := time.AfterFunc(patience, end)
	defer timer.Stop()
	err = cmd.Wait()
	end() // what the page left running
	if err == nil {
		return
	}
	at, _ := os.ReadFile(filepath.Join(s.out, "at"))
	logs := ""
	files, _ := filepath.Glob(filepath.Join(s.out, "0*"))
	for _, file := range files {
		text, _ := os.ReadFile(file)
		logs += filepath.Base(file) + ": " + string(text) + "\n"
	}
	require.NoError(t, err, "at %sWhat the blocks printed, by line:\n%s", at, logs)
}

// environ has nothing of the caller's gateway in it, and this program first.
func (s *session) environ() []string {
	self, err := filepath.Abs(os.Args[0])
	require.NoError(s.t, err)
	bin := s.t.TempDir()
	wrapper := "#!/bin/sh\n" + childEnv + "=1 exec '" + self + "' \"$@\"\n"
	require.NoError(s.t, os.WriteFile(filepath.Join(bin, "gateway"), []byte(wrapper), 0o755))
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		return strings.HasPrefix(pair, "GATEWAY_") || strings.HasPrefix(pair, "GOFLAGS=") || strings.HasPrefix(pair, "DOCS_MARK=")
	})
	return append(env, "PATH="+bin+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8",
		"GATEWAY_LISTEN=127.0.0.1:"+s.port("8080"), "GATEWAY_ADMIN_LISTEN=127.0.0.1:"+s.port("9090"),
		"GOFLAGS="+buildFlags())
}

// buildFlags are those this program was built with, so that what a page builds
// comes out of the build cache.
func buildFlags() string {
	flags := "-buildvcs=false"
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		flags += " -race"
	}
	return flags
}

// compare holds each output that the page shows against that of the nearest
// command before it.
func (s *session) compare(page docstest.Page, run func(docstest.Block) bool) {
	var command *docstest.Block
	for _, b := range page.Blocks {
		switch {
		case b.Kind == "sh":
			command = &b
		case b.Kind != "text" || b.Word("diagram") || b.SaveAs != "" || b.Value("file") != "" || command != nil && !run(*command):
		case command == nil:
			s.t.Errorf("%s: no command comes before this output", b.Place())
		default:
			printed, err := os.ReadFile(s.printed(*command))
			require.NoError(s.t, err)
			if err := docstest.Matches(b.Text, s.there(string(printed))); err != nil {
				s.t.Errorf("%s: this is not what %s prints: %v", b.Place(), command.Place(), err)
			}
		}
	}
}

// copyTree copies what is in a clone of the repository, without what was built.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case name == ".git" || name == ".bin":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		return errors.Join(err, os.WriteFile(filepath.Join(to, name), content, info.Mode().Perm()))
	}))
}

// freeAddr is an address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}
