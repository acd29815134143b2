package torturetest

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// trouble is what a proxy does to what passes through it.
type trouble string

const (
	none      trouble = "none"
	delay     trouble = "delay"      // each piece waits
	cutAll    trouble = "cut"        // connections end, new ones are refused
	halfReply trouble = "half reply" // a piece of an answer, then the end
	blackHole trouble = "black hole" // nothing arrives, nobody is told
	deaf      trouble = "deaf"       // requests arrive, answers do not
)

// proxy is a network between one gateway and its store.
type proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu     sync.Mutex
	state  trouble
	change chan struct{} // closed when state changes
	conns  map[net.Conn]struct{}
	closed bool
}

func newProxy(target string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start proxy: %w", err)
	}
	p := &proxy{listener: l, target: target, state: none, change: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.running.Go(p.accept)
	return p, nil
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

// set begins a trouble, or ends it with none.
func (p *proxy) set(s trouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
	close(p.change)
	p.change = make(chan struct{})
	if s == cutAll {
		p.dropAll()
	}
}

// dropAll ends every connection; the caller holds mu.
func (p *proxy) dropAll() {
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) now() (trouble, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state, p.change
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.running.Go(func() { p.pump(server, client, false) })
		p.running.Go(func() { p.pump(client, server, true) })
	}
}

func (p *proxy) keep(both ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.state == cutAll {
		return false
	}
	for _, c := range both {
		p.conns[c] = struct{}{}
	}
	return true
}

// pump carries pieces from one side to the other until either ends.
func (p *proxy) pump(to, from net.Conn, answers bool) {
	defer func() {
		p.mu.Lock()
		delete(p.conns, to)
		delete(p.conns, from)
		p.mu.Unlock()
		_ = to.Close()
		_ = from.Close()
	}()
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.carry(to, buffer[:n], answers) {
			return
		}
		if err != nil {
			return
		}
	}
}

// carry passes one piece on; false ends the connection.
func (p *proxy) carry(to io.Writer, piece []byte, answer bool) bool {
	for {
		state, changed := p.now()
		switch {
		case state == blackHole:
			<-changed // nothing gets through meanwhile; then it does, late
			continue
		case state == deaf && answer:
			return true // it was said, and nobody heard
		case state == delay:
			wait(changed, 30*time.Millisecond)
		case state == halfReply && answer:
			_, _ = to.Write(piece[:len(piece)/2])
			return false
		case state == cutAll:
			return false
		}
		_, err := to.Write(piece)
		return err == nil
	}
}

func (p *proxy) close() {
	p.mu.Lock()
	p.closed, p.state = true, cutAll
	close(p.change)
	p.change = make(chan struct{})
	p.dropAll()
	p.mu.Unlock()
	_ = p.listener.Close()
	p.running.Wait()
}

// wait returns after a time, or earlier when done is closed.
func wait(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-done:
	}
}
