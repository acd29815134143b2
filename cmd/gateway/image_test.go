//go:build image

package main

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/sandbox"
	"holdfast.dev/gateway/internal/vendortest"
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

// container is one that serves.
type container struct {
	id, api string
	line    map[string]string // of its log, that says so
}

// logs are what it wrote to standard error.
func (c container) logs(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "podman", "logs", c.id).CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func serveImage(t *testing.T, flags ...string) container {
	t.Helper()
	flags = append(confine("--env=GATEWAY_LISTEN=127.0.0.1:0", "--env=GATEWAY_ADMIN_LISTEN=127.0.0.1:"+freePort(t),
		"--env=GATEWAY_EGRESS_ALLOW=127.0.0.0/8", "--env=GATEWAY_ADMIN_KEY="+testAdminKey, "--env=GATEWAY_SECRET_KEY="+testSecretKey), flags...)
	c := container{id: strings.TrimSpace(mustPodman(t, append(append([]string{"run", "--detach"}, flags...), imageName())...))}
	t.Cleanup(func() {
		// The test's context is over by now.
		out, err := exec.Command("podman", "--cgroup-manager=cgroupfs", "--runtime=runc", "rm", "--force", "--volumes", c.id).CombinedOutput()
		require.NoError(t, err, string(out))
	})
	eventually(t, 20*time.Second, "it listens", func() bool {
		for line := range strings.Lines(c.logs(t)) {
			if json.Unmarshal([]byte(line), &c.line) == nil && c.line["msg"] == "listening" && c.line["listener"] == "api" {
				c.api = "http://" + c.line["addr"]
				return true
			}
		}
		return false
	})
	return c
}

func TestImageServesConfined(t *testing.T) {
	vendor, err := sandbox.Start("127.0.0.1:0", sandbox.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, vendor.Close()) }()
	g := serveImage(t, "--env=TZ=Asia/Tokyo")
	id, api := g.id, g.api
	require.Contains(t, g.line["time"], "+09:00", "the time zones are there")
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
	require.Equal(t, "0", strings.TrimSpace(mustPodman(t, "inspect", "--format={{.State.ExitCode}}", id)), "SIGTERM drains: %s", g.logs(t))
	_, err = podman(t, "healthcheck", "run", id)
	require.Error(t, err)
}

// mounted lays a folder out as the kubelet lays out a ConfigMap: what is seen are links
// into a folder of the day, which is replaced as a whole.
func mounted(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755)) // the container has another user
	const day = "..2026_11_29_21_00_00.1"
	for name, data := range files {
		file := filepath.Join(dir, day, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, data, 0o644))
		top, _, _ := strings.Cut(name, "/")
		if err := os.Symlink("..data/"+top, filepath.Join(dir, top)); err != nil {
			require.ErrorIs(t, err, fs.ErrExist)
		}
	}
	require.NoError(t, os.Symlink(day, filepath.Join(dir, "..data")))
	return dir
}

// TestImageTakesConnectorsAndAuthoritiesFromConfigMaps: as the chart mounts them. A
// vendor whose certificate is of a private authority is reached with a connector that
// is not built in, and without the authority it is not.
func TestImageTakesConnectorsAndAuthoritiesFromConfigMaps(t *testing.T) {
	vendor := vendortest.NewTLS(t, vendortest.OK)
	authority, err := os.ReadFile(vendor.CAFile())
	require.NoError(t, err)
	connectors := mounted(t, map[string][]byte{"probe/1.0.0/connector.yaml": []byte(testManifests()["probe"])})
	flags := []string{
		"--volume=" + connectors + ":/etc/holdfast/connectors:ro", "--env=GATEWAY_CONNECTORS_DIR=/etc/holdfast/connectors",
		"--volume=" + mounted(t, map[string][]byte{"company.crt": authority}) + ":/etc/holdfast/authorities:ro",
	}
	stranger := newAgent(t, serveImage(t, flags...).api)
	stranger.connect("c", "probe@1", vendor.URL())
	stranger.do("c", "create", `{"n":1}`).is(503, "not_sent")
	a := newAgent(t, serveImage(t, append(flags, "--env=SSL_CERT_DIR=/etc/holdfast/authorities")...).api)
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":1}`).is(200, "succeeded")
	require.Equal(t, 1, vendor.Arrivals())
}

// TestImageMakesARedisAStoreOnce: as the chart's Job does before the first install. A
// second time it fails, and a gateway on it is ready.
func TestImageMakesARedisAStoreOnce(t *testing.T) {
	redis, err := redistest.Launch(t.TempDir(), redistest.Durable()...)
	require.NoError(t, err)
	defer func() { require.NoError(t, redis.Kill()) }()
	store := []string{"--env=GATEWAY_STORE=" + redis.URL(), "--env=GATEWAY_ADMIN_KEY=" + testAdminKey, "--env=GATEWAY_SECRET_KEY=" + testSecretKey}
	initialise := func() error {
		_, err := podman(t, append(append([]string{"run", "--rm"}, confine(store...)...), imageName(), "store", "init")...)
		return err
	}
	require.NoError(t, initialise())
	require.ErrorContains(t, initialise(), "this redis is a store already")
	newAgent(t, serveImage(t, store...).api) // makes a tenant, which a store that is not ready refuses
}

// TestImageRootCannotBeWritten: a store anywhere but on the volume fails.
func TestImageRootCannotBeWritten(t *testing.T) {
	out, err := podman(t, append([]string{"run", "--rm"}, confine(imageName(), "serve", "--check", "--store=embedded:/elsewhere")...)...)
	require.Error(t, err, out)
	require.ErrorContains(t, err, "read-only file system")
	out, err = podman(t, append([]string{"run", "--rm"}, confine(imageName(), "serve", "--check", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0")...)...)
	require.NoError(t, err, out)
}
