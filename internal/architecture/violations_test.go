package architecture_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The rules must be able to fail: each case is a graph that breaks one.

func TestSidewaysImportIsFound(t *testing.T) {
	rows := []layer{{pkg: "low"}, {pkg: "left", may: "low"}, {pkg: "right", may: "low"}}
	g := graph{
		module + "/internal/low":      {"context", module + "/internal/left"},
		module + "/internal/left":     {module + "/internal/low", module + "/internal/right"},
		module + "/internal/right":    {module + "/internal/low"},
		module + "/internal/lefttest": {module + "/internal/right"},
		module + "/internal/new":      nil,
	}
	require.Equal(t, []string{
		"left must not import right",
		"low must not import left",
		"new has no row in layers(): decide which of ours it may import",
	}, sidewaysImports(rows, g))
}

func TestStrayedModuleIsFound(t *testing.T) {
	rows := []home{{module: "example.org/heavy", only: "owner"}}
	g := graph{
		module + "/internal/owner":     {"example.org/heavy/part"},
		module + "/internal/other":     {"example.org/heavy", "example.org/heavyweight"},
		module + "/internal/ownertest": {"example.org/heavy"},
	}
	require.Equal(t, []string{
		"other must not import example.org/heavy: only owner may",
	}, strayedModules(rows, g))
}

func TestTestCodeInBinaryIsFound(t *testing.T) {
	g := graph{
		binary:                         {module + "/internal/deep"},
		module + "/internal/deep":      {module + "/internal/deeptest", "go.uber.org/goleak"},
		module + "/internal/othertest": {"pgregory.net/rapid"},
	}
	require.Equal(t, []string{
		"go.uber.org/goleak is for tests and is linked into the binary",
		module + "/internal/deeptest is for tests and is linked into the binary",
	}, testCodeIn(binary, g))
}

func TestVagueNameIsFound(t *testing.T) {
	g := graph{module + "/internal/util": nil, module + "/internal/ledger": nil, "example.org/util": nil}
	require.Equal(t, []string{module + "/internal/util is named after nothing it owns"}, vagueNames(g))
}
