package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
	"holdfast.dev/gateway/internal/strictjson"
	"holdfast.dev/gateway/internal/vendortest"
)

// rotation is a load balancer: the replicas that new requests go to.
type rotation struct {
	mu   sync.Mutex
	urls map[int]string
}

func (r *rotation) set(i int, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if url == "" {
		delete(r.urls, i)
		return
	}
	r.urls[i] = url
}

func (r *rotation) any() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, url := range r.urls { // a map's order is random enough
		return url
	}
	return ""
}

// TestRollingRestart: two replicas are replaced one after the other, each taken
// out of the rotation first as its preStop hook does, while agents write and
// repeat. No caller fails other than honestly, each write is done once, and what
// one process wrote its successor replays.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, redistest.Durable()...)
	require.NoError(t, redisstore.Init(t.Context(), redisstore.Options{URL: redis.URL()}))
	cfg := testConfig(t)
	cfg.Store = redis.URL()
	vendor := vendortest.New(t, someSlow())
	lb := &rotation{urls: map[int]string{}}
	replicas := []*process{spawn(t, cfg), spawn(t, cfg)}
	for i, p := range replicas {
		lb.set(i, p.url())
	}
	a := newAgent(t, replicas[0].url())
	a.connect("c", "probe@1", vendor.URL())

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	results := map[string]string{} // of each write
	var calls, writes int
	var agents sync.WaitGroup
	for range 6 {
		agents.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				n := writes
				if rand.IntN(2) == 0 || n == 0 {
					writes++
				} else {
					n = rand.IntN(writes)
				}
				mu.Unlock()
				body := fmt.Sprintf(`{"n":%d}`, n)
				r, err := a.at(lb.any()).send(t.Context(), "POST", "/v1/do", doBody("c", "create", body), nil)
				if err != nil {
					t.Errorf("a caller got no answer: %v", err)
					return
				}
				mu.Lock()
				calls++
				switch {
				case r.status == http.StatusOK && results[body] == "":
					results[body] = resultOf(r)
				case r.status == http.StatusOK && results[body] != resultOf(r):
					t.Errorf("two answers to %s", body)
				case r.status == http.StatusOK, r.status == 409, r.status == 423, r.status == 503:
				default:
					t.Errorf("a caller was told %s", r.raw)
				}
				mu.Unlock()
			}
		})
	}
	progress := func(more int) {
		mu.Lock()
		until := calls + more
		mu.Unlock()
		eventually(t, time.Minute, "the agents go on", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return calls >= until
		})
	}
	for round := range 2 {
		for i, p := range replicas {
			progress(30)
			lb.set(i, "")
			progress(12) // who had picked it has sent; some of the slow ones still run
			p.signal(syscall.SIGTERM)
			<-p.done
			require.NoError(t, p.cmd.Wait(), "round %d: %s", round, p.logged())
			replicas[i] = spawn(t, cfg)
			lb.set(i, replicas[i].url())
		}
	}
	progress(30)
	stop()
	agents.Wait()
	last := a.at(replicas[0].url())
	for body, result := range results {
		r := last.do("c", "create", body).is(200, "succeeded").replayed()
		require.Equal(t, result, resultOf(r))
	}
	arrived := map[string]int{}
	for _, arrival := range vendor.Requests() {
		arrived[string(arrival.Body)]++
	}
	for body, n := range arrived {
		require.Equal(t, 1, n, body)
	}
	t.Logf("%d calls, %d writes, 4 replicas replaced", calls, writes)
}

// resultOf is the result as it stands in the answer, byte for byte.
func resultOf(r reply) string {
	raw, _ := strictjson.Get(r.raw, "result")
	return string(raw)
}

// someSlow takes a third of a second over each tenth write.
func someSlow() vendortest.Behaviour {
	var arrivals atomic.Int64
	return func(c *vendortest.Call) {
		if arrivals.Add(1)%10 == 0 {
			<-time.After(300 * time.Millisecond)
		}
		vendortest.OK(c)
	}
}
