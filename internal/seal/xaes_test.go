package seal

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
)

// The two vectors of the specification, c2sp.org/XAES-256-GCM, section "Test
// vectors": one for each value of the top bit of L.
func TestXAESAgainstTheSpecificationsVectors(t *testing.T) {
	for name, v := range map[string]struct {
		key  byte
		aad  string
		want string
	}{
		"MSB of L is 0": {0x01, "", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"},
		"MSB of L is 1": {0x03, "c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := newXAES(bytes.Repeat([]byte{v.key}, keySize))
			require.NoError(t, err)
			nonce, plain := []byte("ABCDEFGHIJKLMNOPQRSTUVWX"), []byte("XAES-256-GCM")

			got := x.seal(nil, nonce, plain, []byte(v.aad))

			require.Equal(t, v.want, hex.EncodeToString(got))
			back, err := x.open(nonce, got, []byte(v.aad))
			require.NoError(t, err)
			require.Equal(t, plain, back)
		})
	}
}
