package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConnectorFromNothing follows docs/connectors.md to the letter: every
// command is run, every file saved, every line of output expected. Only the
// addresses are others, since a fixed port may be taken.
func TestConnectorFromNothing(t *testing.T) {
	doc, err := os.ReadFile("../../docs/connectors.md")
	require.NoError(t, err)
	_, tutorial, ok := strings.Cut(string(doc), "## From nothing in ten minutes\n")
	require.True(t, ok)
	tutorial, _, ok = strings.Cut(tutorial, "\n## The manifest\n")
	require.True(t, ok)
	script, expected := scriptOf(t, tutorial)
	api := freeAddr(t)
	script = strings.ReplaceAll(script, "localhost:8080", api)
	out := runScript(t, script, api)

	rest := out
	for _, line := range expected {
		at := strings.Index(rest, line)
		require.GreaterOrEqual(t, at, 0, "%q is missing after %q in:\n%s", line, out[:len(out)-len(rest)], out)
		rest = rest[at+len(line):]
	}
}

// scriptOf makes the blocks of a tutorial one shell script, and lists the lines
// it says will be seen.
func scriptOf(t *testing.T, tutorial string) (script string, expected []string) {
	t.Helper()
	block := regexp.MustCompile("(?s)(?:Save as `([^`]+)`:\n\n)?```(sh|yaml|text)\n(.*?)```\n")
	var b strings.Builder
	b.WriteString("set -eu\n")
	for _, found := range block.FindAllStringSubmatch(tutorial, -1) {
		file, kind, text := found[1], found[2], found[3]
		switch kind {
		case "sh":
			b.WriteString(text)
		case "yaml":
			require.NotEmpty(t, file, "a file must be saved somewhere")
			b.WriteString("cat > " + file + " <<'SAVED'\n" + text + "SAVED\n")
		case "text":
			expected = append(expected, strings.Split(strings.TrimSpace(text), "\n")...)
		}
	}
	require.NotEmpty(t, expected)
	return b.String(), expected
}

// runScript runs it in an empty folder, in which gateway is this very program.
func runScript(t *testing.T, script, api string) string {
	t.Helper()
	self, err := filepath.Abs(os.Args[0])
	require.NoError(t, err)
	bin, dir := t.TempDir(), t.TempDir()
	wrapper := "#!/bin/sh\n" + childEnv + "=1 exec '" + self + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(bin, "gateway"), []byte(wrapper), 0o755))
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "GATEWAY_LISTEN="+api, "GATEWAY_ADMIN_LISTEN=127.0.0.1:0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// A file and not a pipe: what stays in the background would hold a pipe open.
	out, err := os.Create(filepath.Join(dir, "output"))
	require.NoError(t, err)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	patience := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer patience.Stop()
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the vendor and the gateway in the background
	require.NoError(t, out.Close())
	text, readErr := os.ReadFile(out.Name())
	require.NoError(t, readErr)
	if err != nil {
		served, _ := os.ReadFile(filepath.Join(dir, "serve.log"))
		require.NoError(t, err, "%s\n%s", text, served)
	}
	return string(text)
}

// freeAddr is an address that was free a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	return l.Addr().String()
}
