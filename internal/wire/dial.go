package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"syscall"
	"time"
)

// dialer makes connections. Every address is checked at the connect; a proxy is
// never used.
type dialer struct {
	plain, secure net.Dialer
	tls           *tls.Config
	timeout       time.Duration
}

func newDialer(cfg Config) *dialer {
	guard := newEgress(cfg.EgressAllow)
	return &dialer{
		plain:  net.Dialer{Resolver: cfg.Resolver, Control: guard.control(true)},
		secure: net.Dialer{Resolver: cfg.Resolver, Control: guard.control(false)},
		tls: &tls.Config{
			RootCAs:    cfg.RootCAs,
			MinVersion: tls.VersionTLS12,
			// Only HTTP/1.1 is offered: an HTTP/2 client may send a write again
			// after GOAWAY and REFUSED_STREAM (RFC 9113 section 8.7).
			NextProtos: []string{"http/1.1"},
		},
		timeout: cfg.DialTimeout,
	}
}

// dial returns a connection on which no application byte has been written. If
// it fails, the reason says why.
func (d *dialer) dial(ctx context.Context, p prepared) (*conn, string) {
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	via := &d.plain
	if p.tls {
		via = &d.secure
	}
	raw, err := via.DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return nil, dialReason(err)
	}
	discardOnClose(raw)
	if !p.tls {
		return newConn(p.key(), raw, raw), ""
	}
	cfg := d.tls.Clone()
	cfg.ServerName = p.url.Hostname()
	secured := tls.Client(raw, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, ReasonTLS
	}
	return newConn(p.key(), secured, raw), ""
}

func dialReason(err error) string {
	var name *net.DNSError
	switch {
	case errors.Is(err, errEgressDenied):
		return ReasonEgressDenied
	case errors.As(err, &name):
		return ReasonDNS
	case errors.Is(err, syscall.ECONNREFUSED):
		return ReasonRefused
	}
	return ReasonDial
}
