package redistest_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStopAndStartKeepPortAndData(t *testing.T) {
	s := redistest.Start(t, redistest.Durable()...)
	addr := s.Addr()
	do(t, s, "SET", "k", "v")

	require.NoError(t, s.Stop())
	_, err := s.Do(t.Context(), "PING")
	require.Error(t, err, "a stopped server must not answer")
	require.NoError(t, s.Stop(), "stopping twice is no error")

	require.NoError(t, s.Start())
	require.Equal(t, addr, s.Addr())
	require.Equal(t, "v", do(t, s, "GET", "k"))
	require.Error(t, s.Start(), "a running server cannot be started")
}

func TestKillLosesWhatWasNotPersisted(t *testing.T) {
	s := redistest.Start(t)
	do(t, s, "SET", "k", "v")
	require.NoError(t, s.Kill())
	require.NoError(t, s.Start())
	require.Equal(t, "", do(t, s, "GET", "k"))
}

func TestPausedServerAnswersAfterResume(t *testing.T) {
	s := redistest.Start(t)
	require.NoError(t, s.Pause())

	answered := make(chan error, 1)
	go func() {
		_, err := s.Do(context.Background(), "PING")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, s.Resume())
	require.NoError(t, <-answered)
}

func TestStopWakesAPausedServer(t *testing.T) {
	s := redistest.Start(t)
	require.NoError(t, s.Pause())
	require.NoError(t, s.Stop())
}

func TestFlush(t *testing.T) {
	s := redistest.Start(t)
	do(t, s, "SET", "k", "v")
	require.NoError(t, s.Flush())
	require.Equal(t, "0", do(t, s, "DBSIZE"))
}

func TestBadConfigurationIsReported(t *testing.T) {
	_, err := redistest.Launch(t.TempDir(), "no-such-directive 1")
	require.ErrorContains(t, err, "it ended")
}

func TestMissingServerIsReported(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := redistest.Launch(t.TempDir())
	require.ErrorContains(t, err, "redis-server is not installed")
}

// What a script takes for the time, and what the server expires keys by.
func TestShift(t *testing.T) {
	s, err := redistest.LaunchShifted(t.TempDir(), redistest.Durable()...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Kill()) })
	off := func() time.Duration {
		seconds, err := strconv.ParseInt(do(t, s, "EVAL", "return redis.call('TIME')[1]", "0"), 10, 64)
		require.NoError(t, err)
		return time.Until(time.Unix(seconds, 0)).Round(10 * time.Second)
	}
	require.Zero(t, off())
	do(t, s, "SET", "k", "v", "PX", "60000")
	require.NoError(t, s.Shift(-time.Hour))
	require.Equal(t, -time.Hour, off())
	require.Equal(t, "v", do(t, s, "GET", "k"))
	require.NoError(t, s.Shift(2*time.Hour))
	require.Equal(t, 2*time.Hour, off())
	require.Equal(t, "", do(t, s, "GET", "k"))
	require.NoError(t, s.Kill())
	require.NoError(t, s.Start())
	require.Equal(t, 2*time.Hour, off(), "it holds over a restart")
}

func TestOnlyAServerLaunchedForItIsShifted(t *testing.T) {
	require.Error(t, redistest.Start(t).Shift(time.Hour))
}

func do(t *testing.T, s *redistest.Server, args ...string) string {
	t.Helper()
	reply, err := s.Do(t.Context(), args...)
	require.NoError(t, err)
	return reply
}

func TestCluster(t *testing.T) {
	nodes := redistest.StartCluster(t, 3)
	served := 0
	for _, s := range nodes {
		if _, err := s.Do(t.Context(), "SET", "k", "v"); err == nil {
			served++
		}
	}
	require.Equal(t, 1, served, "a key belongs to one master")
}
