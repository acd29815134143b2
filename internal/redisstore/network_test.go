package redisstore_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/ledger/ledgertest"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// impatient is a time-out short enough to run into on purpose.
const impatient = 250 * time.Millisecond

func TestReplyLostAfterTheScriptRan(t *testing.T) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		p := newProxy(t, shared.Addr())
		direct := open(t, opts)
		opts.URL, opts.Timeout = p.url(), impatient
		s := open(t, opts)
		scope := ledger.ScopeOf(rand.Text())
		apply(t, s, scope, claim(s, "warm")) // the server knows the script

		p.loseReplies(true)
		step := claim(s, "0123456789abcdef")
		step.Add = []ledger.Add{{Key: key("n"), Delta: 7}}
		_, err := s.Apply(t.Context(), scope, step)
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		<-p.lost
		require.True(t, holds(t, direct, scope, step.Put[0].Key), "it ran")
		p.loseReplies(false)

		first := apply(t, s, scope, step)
		require.True(t, first.Applied, "the repeat has the first result")
		require.Equal(t, []int64{7}, first.Counters)
		rows, err := direct.Rows(t.Context(), scope, ledger.RowRange{Limit: 10})
		require.NoError(t, err)
		require.Len(t, rows, 2)
		require.True(t, first.Now.Equal(rows[1].At), "the time of the first run")
	})
}

// Replies are lost again and again, to one client and then the other; what both
// see has an order all the same.
func TestLinearizableThoughRepliesAreLost(t *testing.T) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		opts.Timeout = impatient
		var clients []ledger.Store
		var proxies []*proxy
		for range 2 {
			p := newProxy(t, shared.Addr())
			opts.URL = p.url()
			clients, proxies = append(clients, open(t, opts)), append(proxies, p)
		}
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for i := 0; ; i++ {
				p := proxies[i%2]
				p.loseReplies(true)
				select {
				case <-p.lost:
				case <-stop:
					p.loseReplies(false)
					return
				}
				p.loseReplies(false)
				<-tick.C
			}
		}()
		ledgertest.Linearizable(t, clients, 6, 40)
		close(stop)
		<-stopped
	})
}

func TestStepHeldUpByTheNetwork(t *testing.T) {
	cases := map[string]bool{
		"that was voided changes nothing when it arrives":     true,
		"that was not voided is applied though it had failed": false,
	}
	for name, void := range cases {
		t.Run(name, func(t *testing.T) {
			modes(t, func(t *testing.T, opts redisstore.Options) {
				p := newProxy(t, shared.Addr())
				direct := open(t, opts)
				opts.URL, opts.Timeout = p.url(), impatient
				s := open(t, opts)
				scope := ledger.ScopeOf(rand.Text())
				apply(t, s, scope, claim(s, "warm"))

				release := p.hold()
				p.loseReplies(true)
				step := claim(s, "0123456789abcdef")
				_, err := s.Apply(t.Context(), scope, step)
				require.ErrorIs(t, err, ledger.ErrUnavailable)
				<-p.withheld
				if void {
					res := apply(t, direct, scope, ledger.Step{
						Nonce: ledger.NewNonce(), At: direct.Now(), Void: []ledger.Nonce{step.Nonce},
					})
					require.True(t, res.Applied)
				}
				release()
				<-p.lost // the server has answered the late step

				require.Equal(t, !void, holds(t, direct, scope, step.Put[0].Key))
				require.Len(t, rowsOf(t, direct, scope), map[bool]int{true: 1, false: 2}[void])
				again := apply(t, direct, scope, step)
				require.Equal(t, void, again.Voided)
				require.Equal(t, !void, again.Applied)
			})
		})
	}
}

func TestServerStoppedAndStarted(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		server := redistest.Start(t, redistest.Durable()...)
		opts.URL = server.URL()
		s := open(t, opts)
		scope := ledger.ScopeOf("tenant")
		before := claim(s, "before, and kept ")
		require.True(t, apply(t, s, scope, before).Applied)

		require.NoError(t, server.Stop())
		// More failures than the library's pool has places, after which it stops
		// trying for each call.
		for range 100 {
			started := time.Now()
			_, err := s.Apply(t.Context(), scope, claim(s, "nowhere"))
			require.ErrorIs(t, err, ledger.ErrUnavailable)
			require.Less(t, time.Since(started), 3*time.Second)
			_, err = s.Read(t.Context(), scope, ledger.Fetch{Key: key("a")})
			require.ErrorIs(t, err, ledger.ErrUnavailable)
		}
		require.ErrorIs(t, s.Ready(t.Context()), ledger.ErrUnavailable)

		require.NoError(t, server.Start())
		worksWithin(t, s, scope, 2*time.Second)
		require.True(t, holds(t, s, scope, before.Put[0].Key))
		require.False(t, holds(t, s, scope, ledger.Key{Kind: ledger.Binding, ID: "nowhere"}))
	})
}

func TestServerStalledAndResumed(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		server := redistest.Start(t)
		opts.URL, opts.Timeout = server.URL(), impatient
		s := open(t, opts)
		scope := ledger.ScopeOf("tenant")
		apply(t, s, scope, claim(s, "before"))

		require.NoError(t, server.Pause())
		step := claim(s, "stalled")
		started := time.Now()
		_, err := s.Apply(t.Context(), scope, step)
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.Less(t, time.Since(started), impatient+time.Second)

		// The step sits in the buffers of the server. It runs when the server
		// does, but by then its time has passed.
		<-time.After(time.Until(started.Add(ledger.Drift + 100*time.Millisecond)))
		require.NoError(t, server.Resume())
		worksWithin(t, s, scope, 2*time.Second)
		require.False(t, holds(t, s, scope, step.Put[0].Key))

		// Whatever it did before, after the void it is settled.
		res := apply(t, s, scope, ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Void: []ledger.Nonce{step.Nonce}})
		require.True(t, res.Applied)
		require.True(t, apply(t, s, scope, step).Voided)
	})
}

func TestManyCallersOfAStalledServer(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		server := redistest.Start(t)
		opts.URL, opts.Timeout = server.URL(), impatient
		s := open(t, opts)
		require.NoError(t, server.Pause())
		const callers = 200
		errs := make(chan error, callers)
		started := time.Now()
		for range callers {
			go func() {
				_, err := s.Apply(t.Context(), ledger.Platform, claim(s, "x"))
				errs <- err
			}()
		}
		for range callers {
			require.ErrorIs(t, <-errs, ledger.ErrUnavailable)
		}
		require.Less(t, time.Since(started), impatient+2*time.Second)
		require.NoError(t, server.Resume())
		worksWithin(t, s, ledger.Platform, 2*time.Second)
	})
}

// worksWithin repeats a fresh step until it is applied.
func worksWithin(t *testing.T, s ledger.Store, scope ledger.Scope, limit time.Duration) {
	t.Helper()
	started := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		res, err := s.Apply(t.Context(), scope, ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Now(), Put: []ledger.Put{put("works", "again")},
		})
		if err == nil && res.Applied {
			t.Logf("works again after %s", time.Since(started))
			require.Less(t, time.Since(started), limit)
			return
		}
		require.Less(t, time.Since(started), limit, "%v", err)
		<-tick.C
	}
}

func TestCallerWithLessTimeThanTheStore(t *testing.T) {
	t.Parallel()
	modes(t, func(t *testing.T, opts redisstore.Options) {
		t.Parallel()
		server := redistest.Start(t)
		opts.URL, opts.Timeout = server.URL(), 3*time.Second
		s := open(t, opts)
		require.NoError(t, server.Pause())
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		started := time.Now()
		_, err := s.Apply(ctx, ledger.Platform, claim(s, "x"))
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.Less(t, time.Since(started), 2*time.Second)
		require.NoError(t, server.Resume())
	})
}

func TestCloseWaitsForRunningCalls(t *testing.T) {
	modes(t, func(t *testing.T, opts redisstore.Options) {
		p := newProxy(t, shared.Addr())
		opts.URL = p.url()
		s := open(t, opts)
		scope := ledger.ScopeOf(rand.Text())
		apply(t, s, scope, claim(s, "warm"))

		release := p.hold()
		step := claim(s, "running")
		type outcome struct {
			res ledger.Result
			err error
		}
		running, closed := make(chan outcome, 1), make(chan error, 1)
		go func() {
			res, err := s.Apply(t.Context(), scope, step)
			running <- outcome{res, err}
		}()
		<-p.withheld
		go func() { closed <- s.Close() }()
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			_, err := s.Read(ctx, scope)
			return err != nil && strings.Contains(err.Error(), "closed")
		}, waitLimit, tick)
		release()
		got := <-running
		require.NoError(t, got.err)
		require.True(t, got.res.Applied)
		require.NoError(t, <-closed)
		require.NoError(t, s.Close(), "closing twice")
	})
}
