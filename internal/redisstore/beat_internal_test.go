package redisstore

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/loss"
	"holdfast.dev/gateway/internal/redistest"
)

// beating is a store whose server's clock and whose machine's clock the test
// moves.
type beating struct {
	*Store
	t           *testing.T
	shift, boot *atomic.Int64
}

func newBeating(t *testing.T, url, ack string) *beating {
	t.Helper()
	b := &beating{t: t, shift: &atomic.Int64{}, boot: &atomic.Int64{}}
	s, err := Open(t.Context(), Options{URL: url, Ack: ack, Timeout: 500 * time.Millisecond,
		TestClockShift: func() time.Duration { return time.Duration(b.shift.Load()) }})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	machine := s.clock.boot
	s.clock.boot = func() time.Duration { return machine() + time.Duration(b.boot.Load()) }
	b.Store = s
	return b
}

func (b *beating) beats(n int) *beating {
	b.t.Helper()
	for range n {
		require.Eventually(b.t, func() bool { return b.Beat(b.t.Context()) == nil }, 10*time.Second, time.Millisecond)
	}
	return b
}

func (b *beating) refuses(words ...string) {
	b.t.Helper()
	err := b.Ready(b.t.Context())
	require.ErrorIs(b.t, err, ledger.ErrNotReady)
	for _, w := range words {
		require.ErrorContains(b.t, err, w)
	}
}

func (b *beating) noticed() *loss.Noticed {
	b.t.Helper()
	snap, err := b.Read(b.t.Context(), ledger.Platform, loss.Fetch()...)
	require.NoError(b.t, err)
	return loss.NoticedIn(snap)
}

func (b *beating) accept(from time.Time) {
	b.t.Helper()
	snap, err := b.Read(b.t.Context(), ledger.Platform, loss.Fetch()...)
	require.NoError(b.t, err)
	step := ledger.Step{Nonce: ledger.NewNonce(), At: snap.Now}
	_, err = loss.Accept(snap, &step, from)
	require.NoError(b.t, err)
	res, err := b.Apply(b.t.Context(), ledger.Platform, step)
	require.NoError(b.t, err)
	require.True(b.t, res.Applied)
}

// saved runs a server that comes back with its last save when it is killed.
func saved(t *testing.T) (*redistest.Server, func()) {
	t.Helper()
	server := redistest.Start(t)
	require.NoError(t, Init(t.Context(), Options{URL: server.URL()}))
	return server, func() {
		_, err := server.Do(t.Context(), "SAVE")
		require.NoError(t, err)
	}
}

// A server that comes back with older data: its gateways notice, all of them
// and all that start later refuse, until somebody accepts it.
func TestRolledBackDataIsNoticed(t *testing.T) {
	t.Parallel()
	server, save := saved(t)
	one := newBeating(t, server.URL(), "none").beats(2)
	require.NoError(t, one.Ready(t.Context()))
	save()
	kept := one.Now()
	one.beats(1)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start())
	require.Eventually(t, func() bool { return one.Beat(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)

	one.refuses("lost what was written last", "gateway store accept-loss --from T")
	require.WithinDuration(t, kept, one.noticed().From, 2*time.Second, "the last beat that is still there")
	newBeating(t, server.URL(), "none").beats(2).refuses("lost what was written last")
	one.beats(3).refuses("lost what was written last")

	one.accept(one.noticed().From)
	require.NoError(t, one.Ready(t.Context()))
	one.beats(2)
	require.NoError(t, one.Ready(t.Context()), "it is not noticed twice")
	snap, err := one.Read(t.Context(), ledger.Platform, loss.Fetch()...)
	require.NoError(t, err)
	gap, err := loss.GapIn(snap)
	require.NoError(t, err)
	require.NotNil(t, gap)
}

// Data from before this process, or none at all.
func TestDataFromBeforeThisProcessIsNoticed(t *testing.T) {
	t.Parallel()
	server, save := saved(t)
	save()
	one := newBeating(t, server.URL(), "none").beats(1)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start())
	require.Eventually(t, func() bool { return one.Beat(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
	one.refuses("T is when the first write may be missing")

	one.accept(one.Now().Add(-time.Minute))
	require.NoError(t, one.Ready(t.Context()))
	require.NoError(t, server.Flush())
	one.beats(1).refuses("gateway store init")
	require.NoError(t, Init(t.Context(), Options{URL: server.URL()}))
	one.refuses("accept-loss")
}

func TestClockJumpsAreNoticed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		server, machine time.Duration
		says            string
	}{
		"forward":                   {server: 6 * time.Second, says: "went forward by 6s"},
		"back":                      {server: -6 * time.Second, says: "went back by 6s"},
		"a little":                  {server: 4 * time.Second},
		"a little back":             {server: -4 * time.Second},
		"both, as in a sleep":       {server: time.Hour, machine: time.Hour},
		"the server's, in a sleep":  {server: 2 * time.Hour, machine: time.Hour, says: "went forward by"},
		"a sleep that it missed":    {machine: time.Hour, says: "went back by"},
		"drift of an hour's outage": {server: time.Hour + 6*time.Second, machine: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := saved(t)
			b := newBeating(t, server.URL(), "none").beats(2)
			b.shift.Store(int64(c.server))
			b.boot.Store(int64(c.machine))
			b.beats(1)
			if c.says == "" {
				require.NoError(t, b.Ready(t.Context()))
				return
			}
			b.refuses(c.says)
			b.accept(b.Now().Add(-time.Minute))
			b.beats(2)
			require.NoError(t, b.Ready(t.Context()))
		})
	}
}

// Beats that fail are no losses, whether they were made or not, and however
// long ago.
func TestBeatsThatFailAreNoLoss(t *testing.T) {
	t.Parallel()
	t.Run("the server was away", func(t *testing.T) {
		t.Parallel()
		server, _ := saved(t)
		b := newBeating(t, server.URL(), "none").beats(1)
		require.NoError(t, server.Pause())
		require.ErrorIs(t, b.Beat(t.Context()), ledger.ErrUnavailable)
		require.ErrorIs(t, b.Beat(t.Context()), ledger.ErrUnavailable)
		require.NoError(t, server.Resume())
		require.Eventually(t, func() bool { return b.Beat(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
		b.beats(2)
		require.NoError(t, b.Ready(t.Context()))
	})
	for name, forgotten := range map[string]bool{"made, not acknowledged": false, "made, not acknowledged, forgotten": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, _ := saved(t)
			replica := redistest.StartReplica(t, server)
			b := newBeating(t, server.URL(), "replicas:1").beats(1)
			require.NoError(t, replica.Pause())
			require.ErrorIs(t, b.Beat(t.Context()), ledger.ErrUnavailable)
			if forgotten {
				ks := keysOf(ledger.ScopeOf("/beat/0"))
				gone, err := server.Do(t.Context(), "DEL", ks.nonce(b.Store.beats.known[ledger.ScopeOf("/beat/0")].pending))
				require.NoError(t, err)
				require.Equal(t, "1", gone)
			}
			require.NoError(t, replica.Resume())
			// Time has passed, and a repeat is answered with that of its first run.
			b.shift.Add(int64(8 * time.Second))
			b.boot.Add(int64(8 * time.Second))
			require.Eventually(t, func() bool { return b.Beat(t.Context()) == nil }, 10*time.Second, 10*time.Millisecond)
			b.beats(2)
			require.NoError(t, b.Ready(t.Context()))
		})
	}
}

// A loss that could not be noted in the store yet keeps this process from
// claiming, and is noted as soon as it can be.
func TestALossIsKeptUntilItIsNoted(t *testing.T) {
	t.Parallel()
	server, _ := saved(t)
	b := newBeating(t, server.URL(), "none").beats(1)
	b.Store.beats.keep(loss.Noticed{At: b.Now(), From: b.Now(), Why: "first"})
	b.Store.beats.keep(loss.Noticed{At: b.Now(), From: b.Now().Add(-time.Hour), Why: "second"})
	b.refuses("first")
	require.Nil(t, b.noticed())
	b.beats(1).refuses("first")
	require.WithinDuration(t, b.Now().Add(-time.Hour), b.noticed().From, time.Minute)
	require.Nil(t, b.Store.beats.kept())

	b.Store.beats.keep(loss.Noticed{At: b.Now(), Why: "third"})
	b.beats(1)
	require.Equal(t, "first", b.noticed().Why)
	require.Zero(t, b.noticed().From, "the wider of the two")
}

func TestEveryMasterBeats(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	url := nodes[0].URL() + "?mode=cluster"
	require.NoError(t, Init(t.Context(), Options{URL: url}))
	b := newBeating(t, url, "none").beats(1)
	for _, n := range nodes {
		size, err := n.Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		require.NotEqual(t, "0", size)
		_, err = n.Do(t.Context(), "SAVE")
		require.NoError(t, err)
	}
	b.beats(1)
	require.NoError(t, b.Ready(t.Context()))
	require.NoError(t, nodes[1].Kill())
	require.NoError(t, nodes[1].Start())
	require.Eventually(t, func() bool { return b.Beat(t.Context()) == nil }, 20*time.Second, 50*time.Millisecond)
	b.refuses("lost what was written last")
}
