package main

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// What cannot be an address or a key is said at the start: later it would look
// like a gateway that gives no answer, and so like writes in doubt.
func TestDeploymentFlags(t *testing.T) {
	t.Setenv(envURL, "")
	t.Setenv(envKey, "")
	for _, c := range []struct{ url, key, base string }{
		{"http://gateway.example", "hf_a_b", "http://gateway.example"},
		{"https://gateway.example/prefix//", " hf_a_b\n", "https://gateway.example/prefix"},
		{"", "hf_a_b", ""},
		{"http://gateway.example", "", ""},
		{"http://gateway.example", "hf_a\nb", ""},
		{"http://gateway.example", "hf_a b", ""},
		{"http://gateway.example", "hf_a\u00e9", ""},
		{"http://gateway.example/?x=1", "hf_a_b", ""},
		{"http://gateway.example/?", "hf_a_b", ""},
		{"http://gateway.example/#x", "hf_a_b", ""},
		{"http://user:password@gateway.example", "hf_a_b", ""},
		{"gateway.example", "hf_a_b", ""},
		{"ftp://gateway.example", "hf_a_b", ""},
	} {
		cmd := &cobra.Command{Use: "test"}
		at := deploymentFlags(cmd)
		require.NoError(t, cmd.ParseFlags([]string{"--url", c.url, "--key", c.key}))
		d, err := at()
		if c.base == "" {
			require.ErrorAs(t, err, new(usageError), "%q %q", c.url, c.key)
			require.NotContains(t, err.Error(), "password")
			continue
		}
		require.NoError(t, err, c.url)
		require.Equal(t, c.base, d.base)
		require.Equal(t, "hf_a_b", d.key)
	}
}
