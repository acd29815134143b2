//go:build examples

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExampleInTypeScript plays examples/typescript, compiled; make examples does
// both.
func TestExampleInTypeScript(t *testing.T) {
	node, program := os.Getenv("EXAMPLES_NODE"), os.Getenv("EXAMPLES_TYPESCRIPT")
	require.NotEmpty(t, node, "run make examples")
	require.FileExists(t, program)
	playExample(t, []string{node, program})
}
