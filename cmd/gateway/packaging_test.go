package main

import (
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// What stands in the Dockerfile and in deploy/ for those who run a gateway is held
// against the program.

// graceBeyondDrain is how much longer than the drain whatever stops a gateway must wait:
// both listeners may take closePatience, at once or one after the other.
const graceBeyondDrain = 15 * time.Second

var settingName = regexp.MustCompile(`\bGATEWAY_[A-Z_]+\b`)

// TestPackagingNamesSettingsThatExist: in the chart and what it renders, the unit,
// the compose file and the Dockerfile. The program refuses others at its start.
func TestPackagingNamesSettingsThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, s := range settings() {
		known[s.env()] = true
	}
	files := []string{"../../Dockerfile", "../../deploy/compose.yaml", "../../deploy/systemd/holdfast.service"}
	for _, folder := range []string{"helm", "charttest/golden", "charttest/values"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(deployFolder, folder), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				files = append(files, path)
			}
			return err
		}))
	}
	named := map[string]bool{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range settingName.FindAllString(string(raw), -1) {
			named[name] = true
			require.True(t, known[name], "%s names %s, which is no setting", file, name)
		}
	}
	for _, name := range []string{"GATEWAY_STORE", "GATEWAY_SECRET_KEY", "GATEWAY_CONNECTORS_DIR", "GATEWAY_TLS_KEY", "GATEWAY_REDIS_ACK"} {
		require.True(t, named[name], name)
	}
}

// goldenPods are the pod templates that the chart renders, by set of values.
func goldenPods(t *testing.T) map[string]podTemplate {
	t.Helper()
	golden, err := filepath.Glob(filepath.Join(deployFolder, "charttest/golden/*.yaml"))
	require.NoError(t, err)
	pods := map[string]podTemplate{}
	for _, file := range golden {
		f, err := os.Open(file)
		require.NoError(t, err)
		for dec := yaml.NewDecoder(f); ; {
			var o struct {
				Kind string
				Spec struct{ Template podTemplate }
			}
			if dec.Decode(&o) != nil {
				break
			}
			if o.Kind == "Deployment" || o.Kind == "StatefulSet" {
				pods[filepath.Base(file)] = o.Spec.Template
			}
		}
		require.NoError(t, f.Close())
	}
	require.Len(t, pods, 4)
	return pods
}

type podTemplate struct {
	Spec struct {
		Grace      int `yaml:"terminationGracePeriodSeconds"`
		Containers []struct {
			Args []string
			Env  []struct {
				Name, Value string
				From        *struct {
					Secret *struct{ Name, Key string } `yaml:"secretKeyRef"`
				} `yaml:"valueFrom"`
			}
			Lifecycle struct {
				PreStop struct{ Sleep struct{ Seconds int } } `yaml:"preStop"`
			}
		}
	}
}

// TestTheChartsPodsStartAGateway: with the settings that they are given, secrets and
// files in their places, the configuration has nothing wrong with it; secrets come by
// reference only; and the time to end holds preStop and drain.
func TestTheChartsPodsStartAGateway(t *testing.T) {
	cert, key, _ := writeCertificate(t, t.TempDir())
	secrets := map[string]string{"otlp-headers": "authorization=secret", "GATEWAY_SECRET_KEY": testSecretKey, "GATEWAY_ADMIN_KEY": testAdminKey, "GATEWAY_STORE": "rediss://user:password@sentinel-0:26379/0?mode=sentinel&master=m"}
	files := map[string]string{"/etc/holdfast/tls/tls.crt": cert, "/etc/holdfast/tls/tls.key": key, "/etc/holdfast/connectors": t.TempDir()}
	for name, pod := range goldenPods(t) {
		c := pod.Spec.Containers[0]
		require.Equal(t, []string{"serve"}, c.Args, name)
		var env []string
		for _, e := range c.Env {
			value := e.Value
			if e.From != nil {
				require.Empty(t, value)
				require.Equal(t, "holdfast", e.From.Secret.Name)
				value = secrets[e.From.Secret.Key]
				require.NotEmpty(t, value, "%s: %s", name, e.Name)
			} else {
				require.NotContains(t, []string{"GATEWAY_SECRET_KEY", "GATEWAY_ADMIN_KEY", "OTEL_EXPORTER_OTLP_HEADERS"}, e.Name, name)
			}
			if file, ok := files[value]; ok {
				value = file
			}
			env = append(env, e.Name+"="+value)
		}
		cfg, err := loadConfig(nil, env, "")
		require.NoError(t, err, name)
		require.Equal(t, strings.HasPrefix(name, "redis") || name == "everything.yaml", cfg.isRedis())
		if cfg.isRedis() {
			cfg.StoreTimeout = 10 * time.Millisecond
			s, err := openStore(t.Context(), cfg, slog.New(slog.DiscardHandler))
			require.NoError(t, err, "%s: its URL is understood; whether anybody answers is another matter", name)
			require.NoError(t, s.Close())
		}
		grace := time.Duration(pod.Spec.Grace) * time.Second
		require.Equal(t, cfg.DrainTimeout+graceBeyondDrain+time.Duration(c.Lifecycle.PreStop.Sleep.Seconds)*time.Second, grace, name)
	}
}

// TestTheComposeFileIsStrict: it has only members that are meant, takes everything
// away that can be, and its time to end holds the drain.
func TestTheComposeFileIsStrict(t *testing.T) {
	f, err := os.Open(filepath.Join(deployFolder, "compose.yaml"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	var file struct {
		Name     string
		Services map[string]struct {
			Image       string
			Environment map[string]string
			Grace       time.Duration `yaml:"stop_grace_period"`
			Restart     string
			Ports       []string
			Volumes     []string
			User        string
			ReadOnly    bool     `yaml:"read_only"`
			CapDrop     []string `yaml:"cap_drop"`
			Security    []string `yaml:"security_opt"`
			Pids        int      `yaml:"pids_limit"`
			Memory      string   `yaml:"mem_limit"`
			Ulimits     map[string]int
			Logging     struct {
				Driver  string
				Options map[string]string
			}
		}
		Volumes map[string]struct{}
	}
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	require.NoError(t, dec.Decode(&file))
	require.Len(t, file.Services, 1)
	s := file.Services["gateway"]
	require.True(t, s.ReadOnly)
	require.Equal(t, []string{"ALL"}, s.CapDrop)
	require.Equal(t, []string{"no-new-privileges:true"}, s.Security)
	require.Equal(t, "65532:65532", s.User)
	require.Contains(t, file.Volumes, strings.SplitN(s.Volumes[0], ":", 2)[0])
	for _, port := range s.Ports {
		require.NotContains(t, port, "9090")
	}
	given := map[string]string{"GATEWAY_ADMIN_KEY": testAdminKey, "GATEWAY_SECRET_KEY": testSecretKey}
	var env []string
	for name, value := range s.Environment {
		if strings.HasPrefix(value, "${"+name+":?") {
			value = given[name]
		}
		env = append(env, name+"="+value)
	}
	cfg, err := loadConfig(nil, env, "")
	require.NoError(t, err)
	require.Equal(t, cfg.DrainTimeout+graceBeyondDrain, s.Grace)
}

// unitLines are the lines of the unit's settings.
func unitLines(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(deployFolder, "systemd/holdfast.service"))
	require.NoError(t, err)
	return strings.Split(string(raw), "\n")
}

func TestTheUnitStartsAndEndsAGateway(t *testing.T) {
	lines := unitLines(t)
	var env []string
	for _, line := range lines {
		if pair, ok := strings.CutPrefix(line, "Environment="); ok {
			env = append(env, pair)
		}
		if line, ok := strings.CutPrefix(line, "ExecStart="); ok {
			found, _, err := command().Find(strings.Fields(line)[1:])
			require.NoError(t, err)
			require.Equal(t, "serve", found.Name())
		}
	}
	cfg, err := loadConfig(nil, env, "")
	require.NoError(t, err)
	require.Equal(t, "/var/lib/holdfast", cfg.folder(), "the state directory")
	require.Contains(t, lines, "StateDirectory=holdfast")
	require.Contains(t, lines, "TimeoutStopSec="+strconv.Itoa(int((cfg.DrainTimeout+graceBeyondDrain).Seconds())))
	require.Contains(t, lines, "StandardOutput=null", "a new admin key is not for the journal")
}

// mostExposed is what systemd-analyze may find at most, of 10.
const mostExposed = 1.5

func TestSystemdTakesTheUnitAndFindsItHardened(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("systemd-analyze is not on this machine")
	}
	// A program that is there, in a unit that otherwise is the same.
	lines := slices.Clone(unitLines(t))
	for n, line := range lines {
		lines[n] = strings.Replace(line, "/usr/local/bin/gateway", "/bin/true", 1)
	}
	file := filepath.Join(t.TempDir(), "holdfast.service")
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600))
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--man=no", file).CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "holdfast.service", "it has something to say about it")
	out, err = exec.CommandContext(t.Context(), "systemd-analyze", "security", "--no-pager", "--offline=true",
		"--threshold="+strconv.Itoa(int(mostExposed*10)), file).CombinedOutput()
	require.NoError(t, err, string(out))
}
