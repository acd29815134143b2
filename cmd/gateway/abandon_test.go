package main

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// redisRelay stands before Redis. Once armed, it lets the next claim through and
// swallows every reply from then on: what was asked runs, and nobody hears of it.
type redisRelay struct {
	listener net.Listener
	target   string
	armed    atomic.Bool
	deaf     atomic.Bool

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newRedisRelay(t *testing.T, target string) *redisRelay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &redisRelay{listener: l, target: target}
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		_ = l.Close()
		r.mu.Lock()
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.mu.Unlock()
		r.wg.Wait()
	})
	return r
}

func (r *redisRelay) url() string { return "redis://" + r.listener.Addr().String() }

func (r *redisRelay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		d, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, c, d)
		r.mu.Unlock()
		r.wg.Go(func() { r.requests(d, c) })
		r.wg.Go(func() { r.replies(c, d) })
	}
}

func (r *redisRelay) requests(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if r.armed.Load() && bytes.Contains(buf[:n], []byte(`"event":"claimed"`)) {
			r.armed.Store(false)
			r.deaf.Store(true)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (r *redisRelay) replies(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if r.deaf.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestClaimWhoseReplyIsLost: the claim's script runs, its reply is dropped, and
// Redis stays out of reach for longer than the store's time-out. Nothing was
// sent, so the first repeat after its return runs: it is never told that the
// write is in flight or held.
func TestClaimWhoseReplyIsLost(t *testing.T) {
	server := ownRedis(t)
	relay := newRedisRelay(t, server.Addr())
	cfg := testConfig(t)
	cfg.Store, cfg.StoreTimeout = relay.url(), 500*time.Millisecond
	app, _ := boot(t, cfg)
	a := newAgent(t, app.URL())
	vendor := vendortest.New(t, vendortest.OK)
	a.connect("c", "probe@1", vendor.URL())
	a.do("c", "create", `{"n":0}`).is(200, "succeeded")

	relay.armed.Store(true)
	a.do("c", "create", `{"n":1}`).is(503, "store_unavailable")
	require.True(t, relay.deaf.Load(), "the claim went through")
	<-time.After(away) // the abandon is tried in vain all the while
	relay.deaf.Store(false)
	var first reply
	eventually(t, 2*time.Second, "the store answers again", func() bool {
		first = a.do("c", "create", `{"n":1}`)
		return first.status != 503
	})
	first.is(200, "succeeded").fresh()
	require.Equal(t, 2, vendor.Arrivals())
	require.Equal(t, []string{"claimed", "succeeded", "claimed", "not_sent", "claimed", "succeeded"}, a.writeEvents())
}

// away is how long Redis is out of reach in the story of the design.
const away = 5 * time.Second
