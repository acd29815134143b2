package architecture_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every module that go.mod names for our own use has a row in the table of
// docs/design.md that says what it is for, and no row outlives its module.
func TestEveryDependencyIsAccountedFor(t *testing.T) {
	require.ElementsMatch(t, requiredModules(t), documentedModules(t),
		"go.mod (first) and the table under \"Dependencies\" in docs/design.md (second) differ")
}

func requiredModules(t *testing.T) []string {
	t.Helper()
	file := filepath.Join(root, "go.mod")
	_, err := os.ReadFile(file) // for the test cache, which does not see what go mod reads
	require.NoError(t, err)
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", file).Output()
	require.NoError(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	require.NoError(t, json.Unmarshal(out, &mod))
	var paths []string
	for _, r := range mod.Require {
		if !r.Indirect {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// documentedModules reads the first column of the table: a module in backquotes.
func documentedModules(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs", "design.md"))
	require.NoError(t, err)
	_, section, ok := strings.Cut(string(text), "\n## Dependencies\n")
	require.True(t, ok, "docs/design.md has no section Dependencies")
	var paths []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(section, -1) {
		paths = append(paths, row[1])
	}
	return paths
}
