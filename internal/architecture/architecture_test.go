// Package architecture holds no code, only tests: they read the import graph
// as the go command sees it and compare it with the table in rules_test.go,
// so that the direction of dependencies is kept by a machine and not by memory.
// What a package is for, and how it does it, is left to that package.
package architecture_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

const (
	root   = "../.."
	module = "holdfast.dev/gateway"
	binary = module + "/cmd/gateway"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestImportsPointOneWay(t *testing.T) {
	require.Empty(t, sidewaysImports(layers(), load(t)))
}

func TestForeignModulesStayBehindOnePackage(t *testing.T) {
	require.Empty(t, strayedModules(homes(), load(t)))
}

func TestBinaryHoldsNoTestCode(t *testing.T) {
	require.Empty(t, testCodeIn(binary, load(t)))
}

func TestPackagesAreNamedAfterWhatTheyOwn(t *testing.T) {
	require.Empty(t, vagueNames(load(t)))
}

// load returns every package of the module and all they import, tests aside.
// Code that does not build is listed all the same (-e): saying so is the
// compiler's part.
func load(t *testing.T) graph {
	t.Helper()
	noticeChanges(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go list: %s", stderr.String())

	g := graph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		g[p.ImportPath] = p.Imports
	}
	require.NotEmpty(t, g.ours())
	return g
}

// noticeChanges reads the folders go list will read. The go command repeats a
// test's stored result while the files that the test itself opened are the same,
// and it cannot see what a child process opened.
func noticeChanges(t *testing.T) {
	t.Helper()
	for _, dir := range []string{"cmd", "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(string, fs.DirEntry, error) error { return nil })
		require.NoError(t, err)
	}
}

// graph maps an import path to the paths it imports.
type graph map[string][]string

// ours lists the module's own packages.
func (g graph) ours() []string {
	var paths []string
	for path := range g {
		if _, ok := ourName(path); ok {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// reach returns everything that from imports, directly or not, and from itself.
func (g graph) reach(from string) map[string]bool {
	seen := map[string]bool{}
	for todo := []string{from}; len(todo) > 0; {
		path := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[path] {
			continue
		}
		seen[path] = true
		todo = append(todo, g[path]...)
	}
	return seen
}
