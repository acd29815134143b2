package wire

import (
	"crypto/x509"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Config holds the settings of a Client. The zero value is usable: public
// addresses over TLS only.
type Config struct {
	// EgressAllow lists networks that vendors may live in although they are
	// private or loopback, and in which http:// is permitted.
	EgressAllow []netip.Prefix
	// RootCAs verifies vendors; nil means the system's.
	RootCAs *x509.CertPool
	// Resolver looks names up; nil means net.DefaultResolver.
	Resolver *net.Resolver
	// MaxHead caps an answer's head in bytes, 1xx heads included. 64 KiB.
	MaxHead int64
	// MaxBody caps an answer's body in bytes, before and after
	// decompression. 8 MiB.
	MaxBody int64
	// Timeout is used for requests that carry none. 30 s.
	Timeout time.Duration
	// DialTimeout bounds look-up, connect and handshake inside the total
	// timeout. 10 s.
	DialTimeout time.Duration
	// IdleTimeout closes kept connections. Short, since a vendor that closes
	// first turns a write into an unknown. 4 s.
	IdleTimeout time.Duration
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	set(&c.Timeout, 30*time.Second)
	set(&c.DialTimeout, 10*time.Second)
	set(&c.IdleTimeout, 4*time.Second)
	if c.MaxHead <= 0 {
		c.MaxHead = 64 << 10
	}
	if c.MaxBody <= 0 {
		c.MaxBody = 8 << 20
	}
	return c
}

// Client sends requests. It is safe for use by many goroutines; close it when
// it is no longer needed.
type Client struct {
	cfg    Config
	dialer *dialer
	pool   *pool
	closed atomic.Bool
}

// New returns a Client. It dials nothing.
func New(cfg Config) *Client {
	cfg = cfg.withDefaults()
	return &Client{
		cfg:    cfg,
		dialer: newDialer(cfg),
		pool:   &pool{timeout: cfg.IdleTimeout, idle: make(map[string][]*conn)},
	}
}

// CloseIdle closes the connections that carry no request.
func (c *Client) CloseIdle() { c.pool.drain(false) }

// Close makes further Sends answer NotSent and closes idle connections. A Send
// that runs is left to its own context; its connection is closed after it.
func (c *Client) Close() {
	c.closed.Store(true)
	c.pool.drain(true)
}
