package pebblestore

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// A look that could not take on all begins the next one behind what it deleted:
// to step over the remains each time would cost more with each look.
func TestExpirerGoesOnBehindWhatItDealtWith(t *testing.T) {
	note := func(at int64, n int) []byte {
		return expiryKey(at, valueKey(ledger.Platform, ledger.Key{Kind: ledger.Answer, ID: string(rune(n))}))
	}
	full := make([][]byte, expireMost)
	for i := range full {
		full[i] = note(int64(i/10), i)
	}
	x := &expirer{from: []byte{tagExpiry}}

	x.goOn(full[:10], 1)
	require.Equal(t, appendMillis([]byte{tagExpiry}, 1), x.from, "nothing is left up to where steps may still add")
	x.goOn(full, expireMost)
	require.Equal(t, after(full[expireMost-1]), x.from, "a full look may have left some of the same instant")
	x.goOn(full, 100)
	require.Equal(t, after(full[expireMost-1]), x.from, "never back")

	x = &expirer{from: []byte{tagExpiry}}
	x.goOn(full, 100)
	require.Equal(t, appendMillis([]byte{tagExpiry}, 100), x.from, "not past where steps may still add")
}
