package redisstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// counter is a client whose round trips take until they are let go.
type counter struct {
	redis.UniversalClient
	mu    sync.Mutex
	trips [][]string // what each of them carried
	ends  chan struct{}
}

func (c *counter) trip(cmds ...redis.Cmder) {
	var names []string
	for _, cmd := range cmds {
		names = append(names, cmd.Args()[1].(string))
	}
	c.mu.Lock()
	c.trips = append(c.trips, names)
	c.mu.Unlock()
	<-c.ends
	for _, cmd := range cmds {
		cmd.(once).SetVal("reply to " + cmd.Args()[1].(string))
	}
}

func (c *counter) Process(_ context.Context, cmd redis.Cmder) error {
	c.trip(cmd)
	return nil
}

func (c *counter) Pipeline() redis.Pipeliner { return &batch{client: c} }

type batch struct {
	redis.Pipeliner
	client *counter
	cmds   []redis.Cmder
}

func (b *batch) Process(_ context.Context, cmd redis.Cmder) error {
	b.cmds = append(b.cmds, cmd)
	return nil
}

func (b *batch) Exec(context.Context) ([]redis.Cmder, error) {
	b.client.trip(b.cmds...)
	return b.cmds, nil
}

func TestPipelined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{ends: make(chan struct{})}
		p := newSender(c, true)
		var callers sync.WaitGroup
		send := func(ctx context.Context, name string) {
			callers.Go(func() {
				got, err := p.send(ctx, newOnce(ctx, name, []any{"get", name}))
				if ctx.Err() != nil {
					require.ErrorIs(t, err, context.Canceled)
					return
				}
				require.NoError(t, err)
				require.Equal(t, "reply to "+name, got)
			})
			synctest.Wait()
		}
		for i := range lanes {
			send(t.Context(), strconv.Itoa(i))
		}
		require.Len(t, c.trips, lanes, "each by itself while a lane is free")

		gone, leave := context.WithCancel(t.Context())
		send(gone, "gone")
		const fit = 2
		large := strings.Repeat("x", batchBytes/(fit+1))
		var waiting []string
		for i := range fit + 3 {
			waiting = append(waiting, strconv.Itoa(i)+large)
			if i == fit+1 {
				waiting[i] += large + large // too large for any batch
			}
			send(t.Context(), waiting[i])
		}
		require.Len(t, c.trips, lanes, "nothing more is sent")
		leave()
		synctest.Wait()

		c.ends <- struct{}{}
		synctest.Wait()
		require.Len(t, c.trips, lanes+1)
		require.Equal(t, waiting[:fit], c.trips[lanes], "the first in the queue, but for who does not wait any more")
		for i, rest := range [][]string{waiting[fit : fit+1], waiting[fit+1 : fit+2], waiting[fit+2:]} {
			c.ends <- struct{}{}
			synctest.Wait()
			require.Equal(t, rest, c.trips[lanes+1+i])
		}

		close(c.ends)
		callers.Wait()
		p.close()
		require.Len(t, slices.Concat(c.trips...), lanes+fit+3)
		send(t.Context(), "later")
		require.Equal(t, []string{"later"}, c.trips[len(c.trips)-1], "the lanes are free again")
	})
}

// A lane is free again though the library panics on it.
func TestALaneIsNotLostToAPanic(t *testing.T) {
	p := newSender(broken{}, true).(*pipelined)
	for range lanes {
		require.Panics(t, func() { _, _ = p.send(t.Context(), newOnce(t.Context(), "k", []any{"get", "k"})) })
	}
	require.Zero(t, p.byMaster[""].taken)
}

type broken struct{ redis.UniversalClient }

func (broken) Process(context.Context, redis.Cmder) error { panic("broken") }

// A caller whose context ends in the moment of its turn may find both: what was
// not sent has an error, and no reply that is empty.
func TestWhatIsLeftOutHasAnError(t *testing.T) {
	c := &counter{ends: make(chan struct{})}
	close(c.ends)
	p := newSender(c, true).(*pipelined)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q := &queued{ctx: ctx, cmd: newOnce(ctx, "k", []any{"get", "k"}), done: make(chan struct{})}
	p.run(&road{taken: 1}, []*queued{q})
	<-q.done
	_, err := q.cmd.Result()
	require.ErrorIs(t, err, context.Canceled)
}

func TestQueueIsBounded(t *testing.T) {
	r := &road{taken: lanes, waiting: make([]*queued, maxQueued)}
	_, err := r.enter(t.Context(), once{})
	require.ErrorIs(t, err, errQueueFull)
	require.ErrorContains(t, meaning(err), "too many calls")
}

func TestNothingIsSentTwiceByTheLibrary(t *testing.T) {
	var cmd redis.Cmder = newOnce(t.Context(), "k", []any{"get", "k"})
	require.True(t, cmd.NoRetry())
	for _, pipeline := range []bool{false, true} {
		require.Equal(t, -1, Options{Pipeline: pipeline}.common().MaxRetries)
	}
}
