package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// gatewayCommand runs a command line in this process.
func gatewayCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// Findings end with 1, a command line that cannot be followed with 2.
func TestConnectorsCommands(t *testing.T) {
	dir := t.TempDir()
	_, err := gatewayCommand(t, "connectors", "new", "acme", "--dir", dir)
	require.NoError(t, err)
	for _, sub := range []string{"lint", "test"} {
		out, err := gatewayCommand(t, "connectors", sub, dir)
		require.NoError(t, err, out)
		require.Contains(t, out, "connector.yaml: ok")
	}

	file := filepath.Join(dir, "acme", "1.0.0", "connector.yaml")
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, bytes.Replace(raw, []byte("timeout: 15s"), []byte("timeout: soon"), 1), 0o600))
	var usage usageError
	for _, sub := range []string{"lint", "test"} {
		out, err := gatewayCommand(t, "connectors", sub, dir)
		require.EqualError(t, err, "1 found")
		require.NotErrorAs(t, err, &usage)
		require.Contains(t, out, file+":45 (/actions/create_thing/timeout): ")
	}
	_, err = gatewayCommand(t, "connectors", "lint", filepath.Join(dir, "absent"))
	require.ErrorIs(t, err, os.ErrNotExist)
	for _, args := range [][]string{{"lint"}, {"test"}, {"new"}, {"new", "Bad Name"}, {"new", "a", "b"}} {
		_, err := gatewayCommand(t, append([]string{"connectors"}, args...)...)
		require.ErrorAs(t, err, &usage, args)
	}
}
