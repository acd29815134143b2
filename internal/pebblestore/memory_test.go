package pebblestore_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

func TestNoncesAreForgottenWhenTheirLifeHasPassed(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem(), Clock: newFakeClock().Now})
	var uptime time.Duration
	s.SetUptime(func() time.Duration { return uptime })
	apply := func(step ledger.Step) ledger.Result {
		res, err := s.Apply(t.Context(), scope, step)
		require.NoError(t, err)
		return res
	}
	row := func() ledger.Step {
		return ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Rows: [][]byte{[]byte("row")}}
	}
	step, voided, twice := row(), row(), row()
	void := func(n ...ledger.Nonce) {
		require.True(t, apply(ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Void: n}).Applied)
	}
	require.True(t, apply(step).Applied)
	void(voided.Nonce, twice.Nonce)
	require.Len(t, allRows(t, s), 1)

	uptime = ledger.NonceLife
	require.True(t, apply(step).Applied)
	require.Len(t, allRows(t, s), 1, "remembered for all of its life")
	uptime++
	require.True(t, apply(step).Applied)
	require.Len(t, allRows(t, s), 2, "forgotten behind it")

	void(twice.Nonce)
	uptime = ledger.VoidLife
	require.True(t, apply(voided).Voided)
	uptime++
	require.True(t, apply(voided).Applied)
	require.True(t, apply(twice).Voided, "its later life counts")

	uptime += time.Hour
	require.True(t, apply(row()).Applied)
	known, endings := s.Nonces()
	require.Equal(t, 1, known)
	require.Equal(t, 1, endings)
}

func TestAScopeWhoseTailWasForgottenGoesOnBehindItsRows(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem(), Clock: newFakeClock().Now})
	neighbour := scope
	neighbour[15]++
	for i := range 3 {
		for _, sc := range []ledger.Scope{scope, neighbour} {
			_, err := s.Apply(t.Context(), sc, ledger.Step{
				Nonce: ledger.NewNonce(), At: s.Now(), Rows: [][]byte{{byte(i)}, {byte(i)}},
			})
			require.NoError(t, err)
		}
		s.ForgetTails()
	}
	rows := allRows(t, s)
	require.Len(t, rows, 6)
	for i, r := range rows {
		require.Equal(t, []byte{byte(i / 2)}, r.Data)
	}
}
