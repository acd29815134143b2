package redisstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// asRelease opens a store as a release that knows the formats up to one.
func asRelease(t *testing.T, opts redisstore.Options, known uint32) *redisstore.Store {
	t.Helper()
	s, err := redisstore.OpenAs(t.Context(), opts, known)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func marker(t *testing.T, s ledger.Store) string {
	t.Helper()
	snap, err := s.Read(t.Context(), ledger.Platform, ledger.Fetch{Key: key("format")})
	require.NoError(t, err)
	v, _ := snap.Get(key("format"))
	return string(v.Data)
}

func isNewer(t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ledger.ErrFormat)
	require.ErrorIs(t, err, ledger.ErrNotReady)
	require.ErrorContains(t, err, "written by a newer release (format 2; this one reads up to 1)")
	require.ErrorContains(t, err, "run that release again, or go back to a copy")
}

// onEachRedis runs a test on Redis alone, behind Sentinel and as a Cluster.
func onEachRedis(t *testing.T, run func(t *testing.T, opts redisstore.Options)) {
	t.Helper()
	for name, start := range map[string]func(t *testing.T) string{
		"alone": func(t *testing.T) string { return redistest.Start(t, redistest.Durable()...).URL() },
		"sentinel": func(t *testing.T) string {
			sentinel := redistest.StartSentinel(t, redistest.Start(t, redistest.Durable()...))
			return sentinel.URL() + "?mode=sentinel&master=" + redistest.SentinelName
		},
		"cluster": func(t *testing.T) string {
			return redistest.StartCluster(t, 3, redistest.Durable()...)[0].URL() + "?mode=cluster"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, redisstore.Options{URL: start(t)})
		})
	}
}

// Two releases on one Redis: once the newer has marked it, the older is not
// ready, beats no more, and cannot be started again.
func TestAnOlderReleaseGivesWay(t *testing.T) {
	t.Parallel()
	onEachRedis(t, func(t *testing.T, opts redisstore.Options) {
		require.NoError(t, redisstore.Init(t.Context(), opts))
		older := open(t, opts)
		require.NoError(t, older.Ready(t.Context()))
		require.NoError(t, older.Beat(t.Context()))
		require.Equal(t, "1", marker(t, older), "by init")

		newer := asRelease(t, opts, 2)
		require.NoError(t, newer.Ready(t.Context()))
		require.Equal(t, "1", marker(t, older), "to look changes nothing: `serve --check` runs beside the others")
		require.NoError(t, older.Ready(t.Context()))
		require.NoError(t, newer.Beat(t.Context()))
		require.Equal(t, "2", marker(t, older))

		isNewer(t, older.Ready(t.Context()))
		isNewer(t, older.Beat(t.Context()))
		_, err := redisstore.Open(t.Context(), opts)
		isNewer(t, err)
		isNewer(t, redisstore.Init(t.Context(), opts))

		require.NoError(t, newer.Ready(t.Context()))
		require.NoError(t, newer.Beat(t.Context()))
		require.Equal(t, "2", marker(t, newer))
	})
}

// A store of before there was a marker goes on working, and gets one from the
// first gateway that serves.
func TestAStoreWithoutAMarker(t *testing.T) {
	t.Parallel()
	opts := redisstore.Options{URL: redistest.Start(t, redistest.Durable()...).URL()}
	first := open(t, opts)
	require.NoError(t, first.Beat(t.Context()))
	require.Empty(t, marker(t, first), "no store, no marker")
	require.True(t, apply(t, first, ledger.Platform, ledger.Step{
		Nonce: ledger.NewNonce(), At: first.Now(), Put: []ledger.Put{put("epoch", "of an earlier release")},
	}).Applied)

	second := open(t, opts)
	for _, s := range []*redisstore.Store{first, second} {
		require.NoError(t, s.Ready(t.Context()))
	}
	require.Empty(t, marker(t, first))
	for range 2 {
		for _, s := range []*redisstore.Store{first, second} {
			require.NoError(t, s.Beat(t.Context()))
			require.NoError(t, s.Ready(t.Context()))
			require.Equal(t, "1", marker(t, s))
		}
	}
}

// What is no number is not taken for an early one.
func TestAMarkerThatCannotBeRead(t *testing.T) {
	t.Parallel()
	opts := redisstore.Options{URL: redistest.Start(t, redistest.Durable()...).URL()}
	require.NoError(t, redisstore.Init(t.Context(), opts))
	s := open(t, opts)
	for _, data := range []string{"", "0", "-1", "two", "4294967296"} {
		require.True(t, apply(t, s, ledger.Platform, ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Now(), Put: []ledger.Put{put("format", data)},
		}).Applied)
		require.ErrorIs(t, s.Ready(t.Context()), ledger.ErrFormat, data)
		_, err := redisstore.Open(t.Context(), opts)
		require.ErrorIs(t, err, ledger.ErrFormat, data)
	}
}
