package pebblestore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// A look that could not take on all begins the next one behind what it deleted:
// to step over the remains each time would cost more with each look.
func TestExpirerGoesOnBehindWhatItDealtWith(t *testing.T) {
	at := func(ms int64) []byte { return noteKey(ms, ledger.Platform, ledger.Version{1}) }
	x := &expirer{from: []byte{tagExpiry}}
	x.goOn(nil, 1)
	require.Equal(t, appendMillis([]byte{tagExpiry}, 1), x.from, "nothing is left up to where steps may still add")
	x.goOn(at(50), 1000)
	require.Equal(t, at(50), x.from, "there is more, perhaps of the same instant")
	x.goOn(at(40), 1000)
	require.Equal(t, at(50), x.from, "never back")
	x.goOn(at(1000), 100)
	require.Equal(t, appendMillis([]byte{tagExpiry}, 100), x.from, "not past where steps may still add")
}

func TestExpirerHurriesOnlyWhenItIsLate(t *testing.T) {
	now, late := tempoAt(0), tempoAt(expireLate+1)
	require.LessOrEqual(t, now.turn, time.Millisecond)
	require.GreaterOrEqual(t, now.rest, 3)
	require.Equal(t, now, tempoAt(expireLate))
	require.Greater(t, late.turn, now.turn)
	require.Less(t, late.rest, now.rest)
	require.Positive(t, late.rest)
}
