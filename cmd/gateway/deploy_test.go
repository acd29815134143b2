package main

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// What stands in deploy/ is held against what the real program says.

const deployFolder = "../../deploy"

// promtool runs Prometheus' own checker; `make test` installs it.
func promtool(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir, cmd.Stdin = deployFolder, strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "promtool %v (scripts/need.sh promtool prometheus installs it):\n%s", args, out)
	return string(out)
}

func TestPromtoolAcceptsAScrape(t *testing.T) {
	app, _ := boot(t, embeddedConfig(t))
	scrape := metricsOf(t, app)
	require.Contains(t, scrape, "holdfast_claims_total")
	require.Empty(t, promtool(t, scrape, "check", "metrics"))
}

func TestAlertRulesAreSoundAndRaiseWhatTheySay(t *testing.T) {
	promtool(t, "", "check", "rules", "alerts.yaml")
	promtool(t, "", "test", "rules", "alerts_test.yaml")
}

var metricName = regexp.MustCompile(`\bholdfast_[a-z_]+`)

// expressions are the queries of the dashboard or of the alert rules.
func expressions(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(deployFolder, file))
	require.NoError(t, err)
	var out []string
	if filepath.Ext(file) == ".yaml" {
		var rules struct {
			Groups []struct {
				Rules []struct{ Alert, Expr string }
			}
		}
		require.NoError(t, yaml.Unmarshal(raw, &rules))
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				out = append(out, r.Expr)
			}
		}
		return out
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &board))
	for _, p := range board.Panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			out = append(out, target.Expr)
		}
	}
	return out
}

// TestDashboardAndAlertsNameMetricsThatExist: each with series from zero, so
// that an empty panel means that nothing happened. The same for their queries'
// grammar, and for the alerts' labels.
func TestDashboardAndAlertsNameMetricsThatExist(t *testing.T) {
	app, _ := boot(t, embeddedConfig(t))
	there := map[string]bool{}
	for name := range series(t, metricsOf(t, app)) {
		bare, _, _ := strings.Cut(name, "{")
		there[bare] = true
	}
	for _, file := range []string{"grafana.json", "alerts.yaml"} {
		named := map[string]bool{}
		for _, expr := range expressions(t, file) {
			names := metricName.FindAllString(expr, -1)
			require.NotEmpty(t, names, expr)
			for _, name := range names {
				named[name] = true
				require.True(t, there[name], "%s names %s, which no scrape has: %s", file, name, expr)
			}
		}
		require.Greater(t, len(named), 5, "%s: %v", file, slices.Sorted(maps.Keys(named)))
	}
	var rules strings.Builder
	rules.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for n, expr := range expressions(t, "grafana.json") {
		expr = strings.ReplaceAll(expr, "$__rate_interval", "1m")
		quoted, err := json.Marshal(expr)
		require.NoError(t, err)
		rules.WriteString("  - record: panel_" + strings.Repeat("x", n+1) + "\n    expr: " + string(quoted) + "\n")
	}
	file := filepath.Join(t.TempDir(), "panels.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rules.String()), 0o600))
	promtool(t, "", "check", "rules", file)
}

// TestTheOperationsGuideNamesWhatExists: its metrics, alerts, settings and
// commands.
func TestTheOperationsGuideNamesWhatExists(t *testing.T) {
	raw, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	guide := string(raw)
	app, _ := boot(t, embeddedConfig(t))
	scrape := metricsOf(t, app)
	for _, name := range metricName.FindAllString(guide, -1) {
		require.Contains(t, scrape, "\n# TYPE "+name+" ")
	}
	known := map[string]bool{}
	for _, s := range settings() {
		known[s.env()] = true
	}
	for _, name := range clientSettings() {
		known[name] = true
	}
	for _, name := range regexp.MustCompile(`GATEWAY_[A-Z_]+`).FindAllString(guide, -1) {
		require.True(t, known[name], name)
	}
	alerts, err := os.ReadFile(filepath.Join(deployFolder, "alerts.yaml"))
	require.NoError(t, err)
	said := regexp.MustCompile(`Holdfast[A-Z]\w+`).FindAllString(guide, -1)
	there := regexp.MustCompile(`Holdfast[A-Z]\w+`).FindAllString(string(alerts), -1)
	require.ElementsMatch(t, there, said, "alerts of alerts.yaml (first) and of the guide (second)")
	for _, m := range regexp.MustCompile("`gateway ([a-z ]+)").FindAllStringSubmatch(guide, -1) {
		found, _, err := command().Find(strings.Fields(m[1]))
		require.NoError(t, err, m[1])
		require.NotEqual(t, "gateway", found.Name(), m[1])
	}
}
