package seal_test

import (
	"crypto/ed25519"
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/seal"
)

// TestTheFirstKeySigns: the key a signature is checked with stays among the
// ring's when another key is put in front, and is the same after a restart.
func TestTheFirstKeySigns(t *testing.T) {
	first, second := seal.Generate(), seal.Generate()
	before, err := seal.Parse(first)
	require.NoError(t, err)
	after, err := seal.Parse(second + "," + first)
	require.NoError(t, err)

	message := []byte("checkpoint")
	old := before.Sign(message)
	require.Len(t, before.SigningKeys(), 1)
	require.True(t, ed25519.Verify(before.SigningKeys()[0], message, old))
	require.Equal(t, before.SigningKeys()[0], after.SigningKeys()[1])
	require.True(t, ed25519.Verify(after.SigningKeys()[0], message, after.Sign(message)))
	require.False(t, ed25519.Verify(after.SigningKeys()[1], message, after.Sign(message)))
}
