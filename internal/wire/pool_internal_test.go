package wire

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// sockets is a connected pair.
func sockets(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	near, err = net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	far, err = l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

func becomesDead(t *testing.T, c net.Conn) {
	t.Helper()
	require.Eventually(t, func() bool { return dead(c) }, 5*time.Second, time.Millisecond)
}

// The kernel knows that the peer has closed, or has something to say, before
// anybody has read; looking takes nothing away.
func TestDead(t *testing.T) {
	near, far := sockets(t)
	require.False(t, dead(near))
	_, err := far.Write([]byte("x"))
	require.NoError(t, err)
	becomesDead(t, near)
	_, err = near.Read(make([]byte, 1))
	require.NoError(t, err)
	require.False(t, dead(near))
	require.NoError(t, far.Close())
	becomesDead(t, near)

	near, _ = sockets(t)
	require.NoError(t, near.Close())
	require.True(t, dead(near))

	near, _ = net.Pipe()
	require.True(t, dead(near), "what cannot be looked at is not used again")
}

// A kept connection that died, in each way, is replaced before anything is
// attempted. What arrived on it is the request before, and nothing else.
func TestDeadConnectionIsReplaced(t *testing.T) {
	for _, start := range []func(testing.TB, vendortest.Behaviour) *vendortest.Vendor{vendortest.New, vendortest.NewTLS} {
		v := start(t, nil)
		cfg := Config{EgressAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
		if v.URL()[:5] == "https" {
			cfg.RootCAs = v.CertPool()
		}
		c := New(cfg)
		t.Cleanup(c.Close)
		req := Request{Method: "DELETE", URL: v.URL()}
		for range 3 { // three connections at once, all of which will be dead
			var wg sync.WaitGroup
			for range 3 {
				wg.Go(func() { c.Send(t.Context(), req, nil) })
			}
			wg.Wait()
		}
		arrivals, conns := v.Arrivals(), v.Connections()
		v.CloseConnections()
		for _, list := range c.pool.idle {
			for _, con := range list {
				becomesDead(t, con.raw)
			}
		}
		asked := 0
		got := c.Send(t.Context(), req, func() error { asked++; return nil })
		require.Equal(t, Answered, got.Phase)
		require.False(t, got.Reused)
		require.Equal(t, 1, asked)
		require.Equal(t, arrivals+1, v.Arrivals())
		require.Equal(t, conns+1, v.Connections())
		all := v.Requests()
		require.Equal(t, v.Connections(), all[len(all)-1].Conn, "it arrived over the new connection")
		require.True(t, c.Send(t.Context(), req, nil).Reused)
	}
}

// A second answer that comes while the connection is idle answers nothing.
func TestLateSecondAnswer(t *testing.T) {
	release := make(chan struct{})
	v := vendortest.New(t, nil)
	v.Queue(func(c *vendortest.Call) {
		vendortest.OK(c)
		<-release
		c.Raw("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nstale")
	})
	c := New(Config{EgressAllow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	defer c.Close()
	req := Request{Method: "POST", URL: v.URL(), Body: []byte("{}")}
	require.Equal(t, Answered, c.Send(t.Context(), req, nil).Phase)
	close(release)
	for _, list := range c.pool.idle {
		becomesDead(t, list[0].raw)
	}
	got := c.Send(t.Context(), req, nil)
	require.Equal(t, `{"arrival":2}`, string(got.Body.Bytes))
	require.Equal(t, 2, v.Connections())
}

// idleConn is a connection nobody has used.
func idleConn(key string) (*conn, net.Conn) {
	near, far := net.Pipe()
	return newConn(key, near, near), far
}

func closedByPeer(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return err != nil
}

func TestPoolExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{timeout: 4 * time.Second, idle: make(map[string][]*conn)}
		c, far := idleConn("a")
		started := time.Now()
		p.put(c)
		require.True(t, closedByPeer(far))
		require.Equal(t, 4*time.Second, time.Since(started))
		require.Nil(t, p.pop("a"))
		require.Empty(t, p.idle)
	})
}

func TestPoolTakesTheLastOne(t *testing.T) {
	p := &pool{timeout: time.Hour, idle: make(map[string][]*conn)}
	a, _ := idleConn("a")
	b, _ := idleConn("a")
	other, _ := idleConn("b")
	for _, c := range []*conn{a, b, other} {
		p.put(c)
	}
	require.Same(t, b, p.pop("a"))
	require.Same(t, a, p.pop("a"))
	require.Nil(t, p.pop("a"))
	require.Same(t, other, p.pop("b"))
	require.False(t, p.remove(a))
}

func TestPoolIsBoundedAndDrains(t *testing.T) {
	p := &pool{timeout: time.Hour, idle: make(map[string][]*conn)}
	for range maxIdle {
		c, _ := idleConn("a")
		p.put(c)
	}
	c, far := idleConn("a")
	p.put(c)
	require.True(t, closedByPeer(far))
	p.drain(true)
	require.Empty(t, p.idle)
	c, far = idleConn("a")
	p.put(c)
	require.True(t, closedByPeer(far), "nothing is kept after the end")
}
