package workbench

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// vendor is a server on a loopback port that takes every request whole and then
// does the same thing to each.
type vendor struct {
	listener net.Listener
	behave   func(net.Conn)
	arrivals atomic.Int64 // request heads that came
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]struct{}
	ended bool
}

func startVendor(behave func(net.Conn)) (*vendor, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &vendor{listener: l, behave: behave, conns: make(map[net.Conn]struct{})}
	v.serving.Go(v.accept)
	return v, nil
}

func (v *vendor) addr() string { return v.listener.Addr().String() }

func (v *vendor) accept() {
	for {
		c, err := v.listener.Accept()
		if err != nil {
			return
		}
		if !v.enter(c) {
			_ = c.Close()
			return
		}
		v.serving.Go(func() { v.serve(c) })
	}
}

func (v *vendor) enter(c net.Conn) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ended {
		v.conns[c] = struct{}{}
	}
	return !v.ended
}

func (v *vendor) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	r, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	v.arrivals.Add(1)
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		return
	}
	v.behave(c)
}

// close ends everything and waits for it.
func (v *vendor) close() {
	_ = v.listener.Close()
	v.mu.Lock()
	v.ended = true
	for c := range v.conns {
		_ = c.Close()
	}
	v.mu.Unlock()
	v.serving.Wait()
}

// say writes bytes as they are, and the connection ends.
func say(raw string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, raw) }
}

// hang says nothing until the client leaves.
func hang(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
