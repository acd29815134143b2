package wire

import (
	"slices"
	"sync"
	"time"
)

// maxIdle is how many idle connections are kept for one scheme, host and port.
const maxIdle = 512

// pool keeps idle connections for a short time. Nobody reads from them
// meanwhile; whoever takes one looks whether it is still alive.
type pool struct {
	timeout time.Duration

	mu     sync.Mutex
	idle   map[string][]*conn
	closed bool
}

// take returns the connection to key that was used last, or nil. The caller owns
// it from then on.
func (p *pool) take(key string) *conn {
	for {
		c := p.pop(key)
		if c == nil || c.alive() {
			return c
		}
		c.abort()
	}
}

func (p *pool) pop(key string) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[key]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	p.set(key, list[:len(list)-1])
	// One that has fired already finds nothing to remove, or closes c in its next
	// rest, earlier than it has to be.
	c.expiry.Stop()
	return c
}

// put takes over c, or closes it if it cannot be kept.
func (p *pool) put(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle[c.key]) >= maxIdle {
		c.abort()
		return
	}
	if c.expiry == nil {
		c.expiry = time.AfterFunc(p.timeout, func() {
			if p.remove(c) {
				c.close()
			}
		})
	} else {
		c.expiry.Reset(p.timeout)
	}
	p.idle[c.key] = append(p.idle[c.key], c)
}

// remove reports whether c was still idle.
func (p *pool) remove(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[c.key]
	i := slices.Index(list, c)
	if i < 0 {
		return false
	}
	p.set(c.key, slices.Delete(list, i, i+1))
	return true
}

func (p *pool) set(key string, list []*conn) {
	if len(list) == 0 {
		delete(p.idle, key)
		return
	}
	p.idle[key] = list
}

// drain closes what is idle, and with final everything that is put from now on.
func (p *pool) drain(final bool) {
	p.mu.Lock()
	old := p.idle
	p.idle = make(map[string][]*conn)
	p.closed = p.closed || final
	p.mu.Unlock()
	for _, list := range old {
		for _, c := range list {
			c.expiry.Stop()
			c.close()
		}
	}
}
