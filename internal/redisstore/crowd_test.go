package redisstore_test

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// Two thousand callers, whose contexts end anywhere between at once and never, make
// steps on a server that stalls, goes on, is killed and comes back. Whoever was told
// that a step is applied finds it, and every other step is either applied once or,
// once it is voided, never.
func TestACrowdOnAServerThatStallsAndDies(t *testing.T) {
	t.Parallel()
	const callers, each = 2000, 2
	server := redistest.Start(t, redistest.Durable()...)
	s := open(t, redisstore.Options{URL: server.URL(), Pipeline: true, Timeout: 2 * impatient, Ack: "none"})
	scope := ledger.ScopeOf("tenant")
	apply(t, s, scope, claim(s, "the server knows the script"))

	made, told := make([]ledger.Step, callers*each), make([]bool, callers*each)
	var crowd sync.WaitGroup
	for i := range callers {
		crowd.Go(func() {
			for n := i * each; n < (i+1)*each; n++ {
				ctx, end := context.WithTimeout(t.Context(), time.Duration(mathrand.Int64N(int64(3*impatient))))
				if n%2 == 0 {
					end() // or leaves without a time
					ctx, end = context.WithCancel(t.Context())
					time.AfterFunc(time.Duration(mathrand.Int64N(int64(3*impatient))), end)
				}
				made[n] = claim(s, strconv.Itoa(n))
				made[n].Add = []ledger.Add{{Key: key("count"), Delta: 1}}
				res, err := s.Apply(ctx, scope, made[n])
				told[n] = err == nil && res.Applied
				if err != nil {
					doubt(t, err)
				}
				end()
			}
		})
	}
	require.NoError(t, server.Pause())
	<-time.After(impatient)
	require.NoError(t, server.Resume())
	<-time.After(impatient)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start())
	crowd.Wait()
	worksWithin(t, s, scope, waitLimit)

	balanced(t, s, scope, made, told)
}

// The slot of a scope moves to another master while many make steps in it: some are
// redirected in the middle of a batch, some asked to try again, some sent elsewhere.
func TestASlotMovesUnderACrowd(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 2, redistest.Durable()...)
	s := open(t, redisstore.Options{URL: nodes[0].URL() + "?mode=cluster", Pipeline: true, Ack: "none"})
	scope := ledger.ScopeOf("tenant")
	apply(t, s, scope, claim(s, "the server knows the script"))

	const callers = 50
	var mu sync.Mutex
	var made []ledger.Step
	var told []bool
	moved := make(chan struct{})
	var crowd sync.WaitGroup
	for i := range callers {
		crowd.Go(func() {
			for n, last := i, false; !last; n += callers {
				select {
				case <-moved:
					last = true
				default:
				}
				step := claim(s, strconv.Itoa(n))
				step.Add = []ledger.Add{{Key: key("count"), Delta: 1}}
				res, err := s.Apply(t.Context(), scope, step)
				if err != nil {
					doubt(t, err)
				}
				mu.Lock()
				made, told = append(made, step), append(told, err == nil && res.Applied)
				mu.Unlock()
			}
		})
	}
	moveSlot(t, nodes)
	close(moved)
	crowd.Wait()
	worksWithin(t, s, scope, waitLimit)
	balanced(t, s, scope, made, told)
}

// moveSlot moves the one slot that has keys from the node that has it to the other.
func moveSlot(t *testing.T, nodes []*redistest.Server) {
	t.Helper()
	ctx := t.Context()
	var from, to *redis.Client
	var name string
	for _, n := range nodes {
		c := redis.NewClient(&redis.Options{Addr: n.Addr()})
		defer func() { require.NoError(t, c.Close()) }()
		if k, err := c.RandomKey(ctx).Result(); err == nil {
			from, name = c, k
		} else {
			to = c
		}
	}
	slot := from.ClusterKeySlot(ctx, name).Val()
	idOf := func(c *redis.Client) string { return c.Do(ctx, "cluster", "myid").Val().(string) }
	host, port, err := net.SplitHostPort(to.Options().Addr)
	require.NoError(t, err)
	require.NoError(t, to.Do(ctx, "cluster", "setslot", slot, "importing", idOf(from)).Err())
	require.NoError(t, from.Do(ctx, "cluster", "setslot", slot, "migrating", idOf(to)).Err())
	for {
		keys := from.ClusterGetKeysInSlot(ctx, int(slot), 200).Val()
		if len(keys) == 0 {
			break
		}
		args := []any{"migrate", host, port, "", 0, 5000, "keys"}
		for _, k := range keys {
			args = append(args, k)
		}
		require.NoError(t, from.Do(ctx, args...).Err())
	}
	require.NoError(t, to.Do(ctx, "cluster", "setslot", slot, "node", idOf(to)).Err())
	require.NoError(t, from.Do(ctx, "cluster", "setslot", slot, "node", idOf(to)).Err())
}

// balanced sees to it that each step was applied once or, now that it is voided,
// never, and that who was told that it is applied finds it.
func balanced(t *testing.T, s ledger.Store, scope ledger.Scope, made []ledger.Step, told []bool) {
	t.Helper()
	// What is in doubt may still be on its way.
	void := ledger.Step{Nonce: ledger.NewNonce(), At: s.Now()}
	for n, step := range made {
		if !told[n] {
			void.Void = append(void.Void, step.Nonce)
		}
	}
	require.True(t, apply(t, s, scope, void).Applied)
	applied := 0
	for n, there := range found(t, s, scope, made) {
		if there {
			applied++
		}
		require.True(t, there || !told[n], "who was told so finds it")
	}
	t.Logf("of %d steps %d were applied, %d were in doubt", len(made), applied, len(void.Void))
	require.Positive(t, applied)
	res := apply(t, s, scope, ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Add: []ledger.Add{{Key: key("count")}}})
	require.Equal(t, []int64{int64(applied)}, res.Counters, "each applied step has counted once")
	rows, err := s.Rows(t.Context(), scope, ledger.RowRange{Limit: 2 * len(made)})
	require.NoError(t, err)
	require.Len(t, rows, applied+1, "and left one row")
}

// found says of each step whether what it puts first is there.
func found(t *testing.T, s ledger.Store, scope ledger.Scope, made []ledger.Step) []bool {
	t.Helper()
	var fetch []ledger.Fetch
	for _, step := range made {
		fetch = append(fetch, ledger.Fetch{Key: step.Put[0].Key})
	}
	snap, err := s.Read(t.Context(), scope, fetch...)
	require.NoError(t, err)
	all := make([]bool, len(made))
	for n, f := range fetch {
		_, all[n] = snap.Get(f.Key)
	}
	return all
}

// A master that has stalled holds up nobody whose scope is with another one.
func TestACrowdBeforeAStalledMasterIsInNobodysWay(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 2)
	s := open(t, redisstore.Options{URL: nodes[0].URL() + "?mode=cluster", Pipeline: true, Timeout: 2 * impatient, Ack: "none"})
	var with [2]ledger.Scope // each node
	for with[0] == (ledger.Scope{}) || with[1] == (ledger.Scope{}) {
		scope := ledger.ScopeOf(rand.Text())
		before, err := nodes[0].Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		apply(t, s, scope, claim(s, "the server knows the script"))
		after, err := nodes[0].Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		if before != after {
			with[0] = scope
		} else {
			with[1] = scope
		}
	}
	require.NoError(t, nodes[0].Pause())
	var crowd sync.WaitGroup
	for range 500 {
		crowd.Go(func() {
			_, err := s.Apply(t.Context(), with[0], claim(s, "stalled"))
			doubt(t, err)
		})
	}
	for i := range 100 {
		require.True(t, apply(t, s, with[1], claim(s, strconv.Itoa(i))).Applied)
	}
	crowd.Wait()
	require.NoError(t, nodes[0].Resume())
	worksWithin(t, s, with[0], waitLimit)
}
