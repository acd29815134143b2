package connectors_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/connectors"
)

func TestVendorKeyFormats(t *testing.T) {
	hash := [32]byte{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0xf6, 0x77, 0xf8, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 0x10, 31: 0x7f}
	for _, row := range []struct {
		format connectors.KeyFormat
		max    int
		want   string
	}{
		{connectors.KeyHex, 255, "001122334455f677f899aabbccddeeff1000000000000000000000000000007f"},
		{connectors.KeyHex, 45, "001122334455f677f899aabbccddeeff1000000000000"},
		{connectors.KeyHex, 32, "001122334455f677f899aabbccddeeff"},
		{connectors.KeyUUID, 36, "00112233-4455-4677-b899-aabbccddeeff"},
		{connectors.KeyUUID, 255, "00112233-4455-4677-b899-aabbccddeeff"},
		{connectors.KeyBase32Hex, 26, "008i4cq4anr7fu4platspnfevs"},
		{connectors.KeyBase32Hex, 1024, "008i4cq4anr7fu4platspnfevs800000000000000000000001vg"},
	} {
		key, err := connectors.Idempotency{Format: row.format, MaxLen: row.max}.VendorKey(hash)
		require.NoError(t, err)
		require.LessOrEqual(t, len(key), row.max)
		require.Equal(t, row.want, key)
	}
	for _, i := range []connectors.Idempotency{
		{Format: connectors.KeyHex, MaxLen: 31}, {Format: connectors.KeyUUID, MaxLen: 35}, {Format: connectors.KeyBase32Hex, MaxLen: 25}, {Format: "rot13", MaxLen: 99},
	} {
		_, err := i.VendorKey(hash)
		require.ErrorIs(t, err, connectors.ErrVendorKey)
	}
}

func TestActionWithoutARuleHasNoKey(t *testing.T) {
	key, err := connectors.ActionSpec{}.VendorKey([32]byte{1})
	require.NoError(t, err)
	require.Empty(t, key)
	key, err = connectors.ActionSpec{Idempotency: &connectors.Idempotency{Format: connectors.KeyUUID, MaxLen: 36}}.VendorKey([32]byte{1})
	require.NoError(t, err)
	require.Equal(t, "01000000-0000-4000-8000-000000000000", key)
}
