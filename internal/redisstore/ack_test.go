package redisstore_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// withReplicas runs a master that persists nothing, with replicas, and a store
// of its own for each way to the server.
func withReplicas(t *testing.T, replicas int, ack string, run func(t *testing.T, s *redisstore.Store, master *redistest.Server, replicas []*redistest.Server)) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		master := redistest.Start(t)
		var all []*redistest.Server
		for range replicas {
			all = append(all, redistest.StartReplica(t, master))
		}
		opts.URL, opts.Ack, opts.Timeout = master.URL(), ack, time.Second
		require.NoError(t, redisstore.Init(t.Context(), opts))
		run(t, open(t, opts), master, all)
	})
}

// What was acknowledged is on the replica when the master dies for good.
func TestAcknowledgedStepsOutliveTheMaster(t *testing.T) {
	t.Parallel()
	for _, ack := range []string{"auto", "replicas:1"} {
		t.Run(ack, func(t *testing.T) {
			withReplicas(t, 1, ack, func(t *testing.T, s *redisstore.Store, master *redistest.Server, replicas []*redistest.Server) {
				require.NoError(t, s.Ready(t.Context()))
				scope := ledger.ScopeOf(rand.Text())
				var steps []ledger.Step
				for i := range 20 {
					step := claim(s, fmt.Sprintf("%016d", i))
					require.True(t, apply(t, s, scope, step).Applied)
					steps = append(steps, step)
				}
				require.NoError(t, master.Kill())
				require.NoError(t, replicas[0].Promote(t.Context()))
				after := open(t, redisstore.Options{URL: replicas[0].URL(), Ack: "none"})
				for _, step := range steps {
					require.True(t, holds(t, after, scope, step.Put[0].Key))
				}
				require.Len(t, rowsOf(t, after, scope), len(steps))
			})
		})
	}
}

// With too few replicas a step is in doubt, whatever the master has done, and
// the same step repeated counts once they are back.
func TestTooFewReplicas(t *testing.T) {
	t.Parallel()
	withReplicas(t, 2, "replicas:2", func(t *testing.T, s *redisstore.Store, _ *redistest.Server, replicas []*redistest.Server) {
		scope := ledger.ScopeOf(rand.Text())
		require.True(t, apply(t, s, scope, claim(s, "before")).Applied)
		require.NoError(t, replicas[1].Pause())
		step := claim(s, "0123456789abcdef")
		for range 2 { // the repeat finds it applied, which does not make it safe
			res, err := s.Apply(t.Context(), scope, step)
			require.Zero(t, res)
			require.ErrorIs(t, err, ledger.ErrUnavailable)
		}
		require.True(t, holds(t, s, scope, step.Put[0].Key), "the master has it")
		require.NoError(t, replicas[1].Resume())
		require.True(t, apply(t, s, scope, step).Applied)
		require.Len(t, rowsOf(t, s, scope), 2)
	})
}

func TestReadyByReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: master.URL()}))
	stores := map[string]*redisstore.Store{}
	for _, ack := range []string{"auto", "aof", "none", "replicas:1", "replicas:2"} {
		stores[ack] = open(t, redisstore.Options{URL: master.URL(), Ack: ack})
	}
	ready := func(want ...string) {
		t.Helper()
		for ack, s := range stores {
			err := s.Ready(t.Context())
			if strings.Contains(strings.Join(want, " ")+" ", ack+" ") {
				require.NoError(t, err, ack)
			} else {
				require.ErrorIs(t, err, ledger.ErrNotReady, ack)
			}
		}
	}
	ready("none")
	require.ErrorContains(t, stores["auto"].Ready(t.Context()), "GATEWAY_REDIS_ACK=none")
	require.ErrorContains(t, stores["replicas:1"].Ready(t.Context()), "asks for 1 replicas, and 0")

	first := redistest.StartReplica(t, master)
	ready("none", "auto", "replicas:1")
	redistest.StartReplica(t, master)
	ready("none", "auto", "replicas:1", "replicas:2")
	require.True(t, apply(t, stores["replicas:2"], ledger.Platform, claim(stores["replicas:2"], "x")).Applied)

	require.NoError(t, first.Kill())
	require.Eventually(t, func() bool { return stores["replicas:2"].Ready(t.Context()) != nil }, waitLimit, tick)
	ready("none", "auto", "replicas:1")
}

// Under auto a server that syncs each write is waited for until its replica
// comes, and then the replica.
func TestAutoFollowsTheReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t, redistest.Durable()...)
	opts := redisstore.Options{URL: master.URL(), Ack: "auto", Timeout: 3 * time.Second}
	require.NoError(t, redisstore.Init(t.Context(), opts))
	s := open(t, opts)
	require.NoError(t, s.Ready(t.Context()))
	require.True(t, apply(t, s, ledger.Platform, claim(s, "alone")).Applied)
	require.Zero(t, waits(t, master))

	replica := redistest.StartReplica(t, master)
	require.NoError(t, s.Ready(t.Context()))
	require.True(t, apply(t, s, ledger.Platform, claim(s, "with a replica")).Applied)
	require.Positive(t, waits(t, master))

	require.NoError(t, replica.Pause())
	_, err := s.Apply(t.Context(), ledger.Platform, claim(s, "replica away"))
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.NoError(t, replica.Kill())
	require.Eventually(t, func() bool {
		require.NoError(t, s.Ready(t.Context()))
		res, err := s.Apply(t.Context(), ledger.Platform, claim(s, "alone again"))
		return err == nil && res.Applied
	}, waitLimit, tick)
}

// Steps that come at the same time share rounds.
func TestRoundsAreShared(t *testing.T) {
	t.Parallel()
	withReplicas(t, 1, "replicas:1", func(t *testing.T, s *redisstore.Store, master *redistest.Server, _ []*redistest.Server) {
		before := waits(t, master)
		const callers = 200
		errs := make(chan error, callers)
		for range callers {
			go func() {
				_, err := s.Apply(t.Context(), ledger.ScopeOf(rand.Text()), claim(s, "0123456789abcdef"))
				errs <- err
			}()
		}
		for range callers {
			require.NoError(t, <-errs)
		}
		require.Less(t, waits(t, master)-before, callers/2)
	})
}

// waits is how often a server was asked to wait for its replicas.
func waits(t *testing.T, s *redistest.Server) int {
	t.Helper()
	info, err := s.Do(t.Context(), "INFO", "commandstats")
	require.NoError(t, err)
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_wait:calls="); ok {
			count, _, _ := strings.Cut(rest, ",")
			n, err := strconv.Atoi(count)
			require.NoError(t, err)
			return n
		}
	}
	return 0
}

// A server that took over behind the same address, with a replica of its own,
// would acknowledge anything: it has to say that it holds the step.
func TestAnotherServerDoesNotAcknowledge(t *testing.T) {
	t.Parallel()
	old, other := redistest.Start(t), redistest.Start(t)
	redistest.StartReplica(t, old)
	redistest.StartReplica(t, other)
	p := newProxy(t, old.Addr())
	opts := redisstore.Options{URL: p.url(), Ack: "replicas:1", Timeout: time.Second}
	s := open(t, opts) // has a connection to the old one

	p.to(other.Addr()) // the round connects to the other one
	_, err := s.Apply(t.Context(), ledger.Platform, claim(s, "0123456789abcdef"))
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.ErrorContains(t, err, "another server")
	require.Positive(t, waits(t, other), "it would have acknowledged")
	p.to(old.Addr()) // the doubt ended that connection
	require.True(t, apply(t, s, ledger.Platform, claim(s, "fedcba9876543210")).Applied)
}

// A demoted master still answers, and its connections stay open.
func TestDemotedWhileItIsWaitedFor(t *testing.T) {
	t.Parallel()
	withReplicas(t, 1, "replicas:1", func(t *testing.T, s *redisstore.Store, master *redistest.Server, replicas []*redistest.Server) {
		require.NoError(t, replicas[0].Pause())
		waiting := make(chan error, 1)
		before := waits(t, master)
		go func() {
			_, err := s.Apply(context.Background(), ledger.Platform, claim(s, "0123456789abcdef"))
			waiting <- err
		}()
		require.Eventually(t, func() bool { return blocked(t, master) && before >= 0 }, waitLimit, time.Millisecond)
		_, err := master.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1")
		require.NoError(t, err)
		require.ErrorIs(t, <-waiting, ledger.ErrUnavailable)
		_, err = s.Apply(t.Context(), ledger.Platform, claim(s, "fedcba9876543210"))
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.ErrorContains(t, err, "READONLY")
	})
}

func blocked(t *testing.T, s *redistest.Server) bool {
	t.Helper()
	info, err := s.Do(t.Context(), "INFO", "clients")
	require.NoError(t, err)
	return strings.Contains(info, "blocked_clients:1")
}

// A store that was never asked whether it is ready finds out by itself.
func TestAutoLooksBeforeTheFirstStep(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	s := open(t, redisstore.Options{URL: master.URL(), Ack: "auto", Timeout: time.Second})
	require.NoError(t, replica.Pause())
	_, err := s.Apply(t.Context(), ledger.Platform, claim(s, "0123456789abcdef"))
	require.ErrorIs(t, err, ledger.ErrUnavailable)
	require.NoError(t, replica.Resume())
	// A replica that was stopped may have to connect anew, and is not waited for
	// without end: a step in the meantime is one in doubt.
	require.Eventually(t, func() bool {
		res, err := s.Apply(t.Context(), ledger.Platform, claim(s, rand.Text()[:16]))
		return err == nil && res.Applied
	}, waitLimit, time.Millisecond)
	left, err := master.Do(t.Context(), "PTTL", tag(ledger.Platform)+"#ack")
	require.NoError(t, err)
	require.NotContains(t, left, "-", "WAIT counts what is written, so the round writes, and leaves nothing for good")
}
