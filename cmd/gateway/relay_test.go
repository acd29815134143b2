package main

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// relay stands before a vendor and can hold connections up: it accepts, and
// passes nothing on until it is told to. A sender over TLS is then stuck in its
// handshake, after its claim and before its first byte.
type relay struct {
	listener net.Listener
	target   atomic.Pointer[string]
	accepted chan struct{}
	open     chan struct{}
	openOnce sync.Once

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func newRelay(t *testing.T, target string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: l, accepted: make(chan struct{}, 64), open: make(chan struct{})}
	r.target.Store(&target)
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		r.release()
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

func (r *relay) addr() string { return r.listener.Addr().String() }

func (r *relay) release() { r.openOnce.Do(func() { close(r.open) }) }

func (r *relay) keep(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
}

func (r *relay) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.keep(c)
		r.accepted <- struct{}{}
		r.wg.Go(func() {
			<-r.open
			d, err := net.Dial("tcp", *r.target.Load())
			if err != nil {
				_ = c.Close()
				return
			}
			r.keep(d)
			var pipes sync.WaitGroup
			for _, p := range [][2]net.Conn{{c, d}, {d, c}} {
				pipes.Go(func() {
					_, _ = io.Copy(p[0], p[1])
					_ = p[0].Close()
				})
			}
			pipes.Wait()
		})
	}
}
