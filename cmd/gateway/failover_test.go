package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/vendortest"
)

// TestFailoverUnderLoad: two gateways behind Sentinel, each claim acknowledged by
// the replica, and agents that repeat. The master is killed, or demoted behind
// its address. Nobody is told anything but 200, 409, 423 or 503; each write
// arrives once; and every answer is replayed in the same bytes by the new master.
func TestFailoverUnderLoad(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(t *testing.T, sentinel, master *redistest.Server){
		"killed": func(t *testing.T, _, master *redistest.Server) { require.NoError(t, master.Kill()) },
		"demoted": func(t *testing.T, sentinel, _ *redistest.Server) {
			_, err := sentinel.Do(t.Context(), "SENTINEL", "FAILOVER", redistest.SentinelName)
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			master := redistest.Start(t, redistest.Durable()...)
			replica := redistest.StartReplica(t, master, redistest.Durable()...)
			sentinel := redistest.StartSentinel(t, master)
			eventually(t, 20*time.Second, "sentinel knows the replica", func() bool {
				info, err := sentinel.Do(t.Context(), "INFO", "sentinel")
				return err == nil && strings.Contains(info, "slaves=1")
			})
			cfg := testConfig(t)
			cfg.Store = sentinel.URL() + "?mode=sentinel&master=" + redistest.SentinelName
			cfg.StoreTimeout = time.Second
			cfg.RedisAck = "replicas:1"
			require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: cfg.Store, Ack: cfg.RedisAck}))
			flags := []string{"--redis-ack=replicas:1", "--store-timeout=1s"}
			one, two := spawn(t, cfg, flags...), spawn(t, cfg, flags...)
			a := newAgent(t, one.url())
			vendor := vendortest.New(t, someSlow())
			a.connect("c", "probe@1", vendor.URL())
			load := beginLoad(t, a, a.at(two.url()))
			load.until(40, "writes before")
			leave(t, sentinel, master)
			eventually(t, 30*time.Second, "the replica is the master", func() bool {
				role, err := replica.Do(t.Context(), "INFO", "replication")
				return err == nil && strings.Contains(role, "role:master")
			})
			if name == "killed" {
				require.NoError(t, master.Start()) // it is made a replica of the other
			}
			load.until(load.answered()+40, "writes after")
			load.end()

			for body, result := range load.results {
				for _, at := range []*agent{a, a.at(two.url())} {
					var r reply
					eventually(t, 10*time.Second, "it is replayed", func() bool {
						r = at.do("c", "create", body)
						return r.status != 503
					})
					require.Equal(t, result, resultOf(r.is(200, "succeeded").replayed()), body)
				}
			}
			sent := map[string]int{}
			for _, r := range vendor.Requests() {
				sent[string(r.Body)]++
				require.Equal(t, 1, sent[string(r.Body)], "%s", r.Body)
			}
			t.Logf("%d writes answered, calls by status: %v", len(load.results), load.statuses)
		})
	}
}

// load is agents that write and repeat at several gateways.
type load struct {
	t      *testing.T
	stop   context.CancelFunc
	agents sync.WaitGroup

	mu       sync.Mutex
	results  map[string]string // of each write, as it was first told
	statuses map[int]int
	writes   int
}

func beginLoad(t *testing.T, at ...*agent) *load {
	ctx, stop := context.WithCancel(t.Context())
	l := &load{t: t, stop: stop, results: map[string]string{}, statuses: map[int]int{}}
	t.Cleanup(l.end)
	for range 6 {
		l.agents.Go(func() {
			for ctx.Err() == nil {
				body := l.next()
				r, err := at[rand.IntN(len(at))].send(t.Context(), "POST", "/v1/do", doBody("c", "create", body), nil)
				if err != nil {
					t.Errorf("a caller got no answer: %v", err)
					return
				}
				l.see(body, r)
			}
		})
	}
	return l
}

// next is a new write, or one that was asked for before.
func (l *load) next() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.writes
	if n == 0 || rand.IntN(2) == 0 {
		l.writes++
	} else {
		n = rand.IntN(l.writes)
	}
	return fmt.Sprintf(`{"n":%d}`, n)
}

func (l *load) see(body string, r reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.statuses[r.status]++
	switch first, known := l.results[body]; {
	case r.status == 200 && !known:
		l.results[body] = resultOf(r)
	case r.status == 200 && first != resultOf(r):
		l.t.Errorf("two answers to %s", body)
	case r.status == 200, r.status == 409, r.status == 423, r.status == 503:
	default:
		l.t.Errorf("a caller was told %s", r.raw)
	}
}

func (l *load) answered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.results)
}

func (l *load) until(n int, what string) {
	l.t.Helper()
	eventually(l.t, time.Minute, what, func() bool { return l.answered() >= n })
}

func (l *load) end() {
	l.stop()
	l.agents.Wait()
}
