package redisstore_test

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between the store and a server and can lose what the server says
// or hold back what it is told, as a network does.
type proxy struct {
	listener net.Listener
	running  sync.WaitGroup

	mu       sync.Mutex
	target   string // of new connections
	conns    []net.Conn
	closed   bool
	lose     bool
	held     chan struct{} // closed when requests may pass; nil: they may
	lost     chan struct{} // gets a value for each reply lost
	withheld chan struct{} // gets a value for each request held back
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, target: target, lost: make(chan struct{}, 1024), withheld: make(chan struct{}, 1024)}
	p.running.Go(p.serve)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) url() string { return "redis://" + p.listener.Addr().String() }

// loseReplies drops what the server says from now on, or stops doing so.
func (p *proxy) loseReplies(yes bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = yes
}

// to leads new connections to another server.
func (p *proxy) to(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// hold keeps requests from the server until the returned function is called.
// They arrive then even if their sender has gone.
func (p *proxy) hold() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	gate := make(chan struct{})
	p.held = gate
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held = nil
		close(gate)
	}
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		target := p.target
		p.mu.Unlock()
		server, err := net.Dial("tcp", target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		if p.closed {
			_ = client.Close()
			_ = server.Close()
		}
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.running.Go(func() { p.requests(server, client) })
		p.running.Go(func() { p.replies(client, server) })
	}
}

func (p *proxy) requests(server, client net.Conn) {
	p.copy(server, client, func() bool {
		p.mu.Lock()
		gate := p.held
		p.mu.Unlock()
		if gate != nil {
			p.withheld <- struct{}{}
			<-gate
		}
		return true
	})
	// The server answers what it got before it notices.
	if c, ok := server.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
}

func (p *proxy) replies(client, server net.Conn) {
	p.copy(client, server, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.lose {
			p.lost <- struct{}{}
		}
		return !p.lose
	})
	_ = client.Close()
}

// copy hands on what pass lets through. A receiver that has gone does not stop
// it, so that the other direction sees its end.
func (p *proxy) copy(to io.Writer, from io.Reader, pass func() bool) {
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if n > 0 && pass() {
			_, _ = to.Write(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed = true
	_ = p.listener.Close()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}
