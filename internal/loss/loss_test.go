package loss_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/loss"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func with(t *testing.T, values map[ledger.Key][]byte) ledger.Snapshot {
	t.Helper()
	snap := ledger.Snapshot{Now: noon, Values: map[ledger.Key]ledger.Value{}}
	for k, data := range values {
		snap.Values[k] = ledger.Value{Version: ledger.Version{1}, Data: data}
	}
	return snap
}

func TestAcceptEndsTheNoticeAndTellsOfTheGap(t *testing.T) {
	notice, err := loss.Noticed{At: noon, Why: "gone"}.Encode()
	require.NoError(t, err)
	seen := with(t, map[ledger.Key][]byte{loss.NoticedKey(): notice})
	require.Equal(t, "gone", loss.NoticedIn(seen).Why)

	step := ledger.Step{At: noon}
	gap, err := loss.Accept(seen, &step, noon.Add(-time.Hour))
	require.NoError(t, err)
	require.Equal(t, loss.Gap{From: noon.Add(-time.Hour), To: noon}, gap)
	require.Equal(t, []ledger.Key{loss.NoticedKey()}, step.Delete)
	require.Len(t, step.Put, 1)
	require.Equal(t, noon.Add(24*time.Hour), step.Put[0].Expires)
	require.Equal(t, []ledger.Expect{
		{Key: loss.NoticedKey(), Version: ledger.Version{1}}, {Key: loss.GapKey()},
	}, step.Expect)
	stored, err := loss.GapIn(with(t, map[ledger.Key][]byte{loss.GapKey(): step.Put[0].Data}))
	require.NoError(t, err)
	require.Equal(t, gap, *stored)
}

func TestAGapStillToldOfBecomesPartOfTheNextOne(t *testing.T) {
	for before, want := range map[time.Duration]time.Duration{3 * time.Hour: 3 * time.Hour, time.Minute: time.Hour} {
		told, err := json.Marshal(loss.Gap{From: noon.Add(-before), To: noon.Add(-time.Second)})
		require.NoError(t, err)
		step := ledger.Step{At: noon}
		gap, err := loss.Accept(with(t, map[ledger.Key][]byte{loss.GapKey(): told}), &step, noon.Add(-time.Hour))
		require.NoError(t, err)
		require.Equal(t, loss.Gap{From: noon.Add(-want), To: noon}, gap)
	}
}

func TestALossBeginsBeforeNow(t *testing.T) {
	for _, from := range []time.Time{noon, noon.Add(time.Second)} {
		step := ledger.Step{At: noon}
		_, err := loss.Accept(with(t, nil), &step, from)
		require.ErrorIs(t, err, loss.ErrFrom)
		require.Empty(t, step.Put)
	}
}

func TestNotesThatCannotBeRead(t *testing.T) {
	snap := with(t, map[ledger.Key][]byte{loss.NoticedKey(): []byte("torn"), loss.GapKey(): []byte("torn")})
	require.NotNil(t, loss.NoticedIn(snap), "doubt stays")
	_, err := loss.GapIn(snap)
	require.ErrorIs(t, err, ledger.ErrCorrupt)
	require.Nil(t, loss.NoticedIn(with(t, nil)))
}

func TestTheErrorSaysWhatToDo(t *testing.T) {
	n := loss.Noticed{At: noon, From: noon.Add(-time.Minute), Why: "the clock went forward by 3h"}
	require.ErrorIs(t, n.Error(), ledger.ErrNotReady)
	for _, part := range []string{"the clock went forward by 3h", "gateway store accept-loss --from T", "T is 2026-03-01T11:59:00Z"} {
		require.ErrorContains(t, n.Error(), part)
	}
	n.From = time.Time{}
	require.ErrorContains(t, n.Error(), "T is when the first write may be missing")
}

func TestTheWiderOfTwo(t *testing.T) {
	early, late, unknown := loss.Noticed{From: noon.Add(-time.Hour)}, loss.Noticed{From: noon}, loss.Noticed{}
	require.Equal(t, early.From, early.Join(late).From)
	require.Equal(t, early.From, late.Join(early).From)
	require.Zero(t, early.Join(unknown).From)
	require.Zero(t, unknown.Join(early).From)
}
