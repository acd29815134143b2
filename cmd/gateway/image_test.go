//go:build image

package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/sandbox"
)

// `make image-test` runs these tests on the image that `make image` built. It is
// run as a cluster runs it: a root file system that cannot be written, no root, no
// capabilities, no new privileges.

const mostBytes = 80 << 20

func imageName() string {
	if name := os.Getenv("IMAGE"); name != "" {
		return name
	}
	return "holdfast:dev"
}

func podman(t *testing.T, args ...string) (string, error) {
	t.Helper()
	// Containers inside a container have no cgroup manager but the file system's,
	// and crun refuses a machine that has both kinds of cgroups.
	cmd := exec.CommandContext(t.Context(), "podman", append([]string{"--cgroup-manager=cgroupfs", "--runtime=runc"}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("podman %v: %w: %s%s", args, err, out.String(), errs.String())
	}
	return out.String(), nil
}

func mustPodman(t *testing.T, args ...string) string {
	t.Helper()
	out, err := podman(t, args...)
	require.NoError(t, err)
	return out
}

// confined are the flags that take everything away that can be.
var confined = []string{
	"--network=host", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges",
	"--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", "--log-driver=k8s-file",
}

func confine(args ...string) []string { return append(append([]string{}, confined...), args...) }

func TestImageIsSmallAndWhole(t *testing.T) {
	var image struct {
		Size   int64
		Config struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
		HealthCheck struct{ Test []string } `json:"Healthcheck"`
	}
	var list []json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(mustPodman(t, "image", "inspect", imageName())), &list))
	require.NoError(t, json.Unmarshal(list[0], &image))
	t.Logf("%d bytes", image.Size)
	require.Less(t, image.Size, int64(mostBytes))
	require.Equal(t, "65532:65532", image.Config.User, "a number, so that runAsNonRoot can be checked")
	require.Equal(t, []string{"CMD", "/gateway", "healthcheck"}, image.HealthCheck.Test)
	require.Equal(t, "Apache-2.0", image.Config.Labels["org.opencontainers.image.licenses"])

	// The files that are in it.
	dir := t.TempDir()
	id := strings.TrimSpace(mustPodman(t, "create", imageName()))
	defer func() { _, err := podman(t, "rm", "--force", "--volumes", id); require.NoError(t, err) }()
	for _, file := range []string{"gateway", "sbom.cdx.json", "etc/ssl/certs/ca-certificates.crt"} {
		mustPodman(t, "cp", id+":/"+file, filepath.Join(dir, filepath.Base(file)))
	}
	authorities, err := os.ReadFile(filepath.Join(dir, "ca-certificates.crt"))
	require.NoError(t, err)
	block, _ := pem.Decode(authorities)
	require.NotNil(t, block)
	require.Greater(t, strings.Count(string(authorities), "BEGIN CERTIFICATE"), 50)

	said, err := exec.CommandContext(t.Context(), filepath.Join(dir, "gateway"), "version").Output()
	require.NoError(t, err)
	require.Equal(t, "holdfast "+image.Config.Labels["org.opencontainers.image.version"]+"\n", string(said))

	// The list names what is linked, with its version.
	raw, err := os.ReadFile(filepath.Join(dir, "sbom.cdx.json"))
	require.NoError(t, err)
	var bom struct {
		BOMFormat  string `json:"bomFormat"`
		Components []struct{ Name, Version, Purl string }
	}
	require.NoError(t, json.Unmarshal(raw, &bom))
	require.Equal(t, "CycloneDX", bom.BOMFormat)
	linked, err := exec.CommandContext(t.Context(), "go", "version", "-m", filepath.Join(dir, "gateway")).Output()
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, c := range bom.Components {
		listed[c.Name+"@"+c.Version] = true
	}
	modules := 0
	for line := range strings.Lines(string(linked)) {
		if f := strings.Fields(line); len(f) >= 3 && f[0] == "dep" {
			modules++
			require.True(t, listed[f[1]+"@"+f[2]], "%s@%s is linked and not listed", f[1], f[2])
		}
	}
	require.Greater(t, modules, 20)
}

// freePort is a port nobody listens on right now; the health check must know it.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

func TestImageServesConfined(t *testing.T) {
	vendor, err := sandbox.Start("127.0.0.1:0", sandbox.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, vendor.Close()) }()
	admin := "127.0.0.1:" + freePort(t)
	id := strings.TrimSpace(mustPodman(t, append([]string{"run", "--detach"}, confine(
		"--env=GATEWAY_LISTEN=127.0.0.1:0", "--env=GATEWAY_ADMIN_LISTEN="+admin, "--env=GATEWAY_EGRESS_ALLOW=127.0.0.0/8",
		"--env=GATEWAY_ADMIN_KEY="+testAdminKey, "--env=GATEWAY_SECRET_KEY="+testSecretKey, "--env=TZ=Asia/Tokyo",
		imageName())...)...))
	defer func() { _, err := podman(t, "rm", "--force", "--volumes", id); require.NoError(t, err) }()
	logsOf := func() string { // standard error, where the log is
		cmd := exec.CommandContext(t.Context(), "podman", "logs", id)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	api := ""
	eventually(t, 20*time.Second, "it listens", func() bool {
		for line := range strings.Lines(logsOf()) {
			var m struct{ Msg, Listener, Addr, Time string }
			if json.Unmarshal([]byte(line), &m) == nil && m.Msg == "listening" && m.Listener == "api" {
				api = "http://" + m.Addr
				require.Contains(t, m.Time, "+09:00", "the time zones are there")
			}
		}
		return api != ""
	})
	eventually(t, 20*time.Second, "its health check is answered", func() bool {
		_, err := podman(t, "healthcheck", "run", id)
		return err == nil
	})

	a := newAgent(t, api)
	a.connect("billing", "sandbox@1", vendor.URL)
	const invoice = `{"customer":"acme","amount":12000,"currency":"EUR"}`
	first := a.do("billing", "create_invoice", invoice).is(200, "succeeded").fresh()
	again := a.do("billing", "create_invoice", invoice).is(200, "succeeded").replayed()
	require.Equal(t, first.text("id"), again.text("id"))
	require.EqualValues(t, 1, vendor.Count().Committed)

	// It is what it is said to be confined to.
	status, err := os.ReadFile("/proc/" + strings.TrimSpace(mustPodman(t, "inspect", "--format={{.State.Pid}}", id)) + "/status")
	require.NoError(t, err)
	for _, line := range []string{"Uid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		require.Contains(t, string(status), line)
	}

	mustPodman(t, "stop", "--time=60", id)
	require.Equal(t, "0", strings.TrimSpace(mustPodman(t, "inspect", "--format={{.State.ExitCode}}", id)), "SIGTERM drains: %s", logsOf())
	_, err = podman(t, "healthcheck", "run", id)
	require.Error(t, err)
}

// TestImageRootCannotBeWritten: a store anywhere but on the volume fails.
func TestImageRootCannotBeWritten(t *testing.T) {
	out, err := podman(t, append([]string{"run", "--rm"}, confine(imageName(), "serve", "--check", "--store=embedded:/elsewhere")...)...)
	require.Error(t, err, out)
	require.ErrorContains(t, err, "read-only file system")
	out, err = podman(t, append([]string{"run", "--rm"}, confine(imageName(), "serve", "--check", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0")...)...)
	require.NoError(t, err, out)
}
