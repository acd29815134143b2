package vendortest

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// patience bounds the waiting of a test for something that must happen.
const patience = 10 * time.Second

// Arrival is one complete request head, with the body as far as it was read.
type Arrival struct {
	// Seq counts arrivals and Conn counts connections, both from 1.
	Seq, Conn int
	// Proto is "HTTP/1.1" or "HTTP/2.0".
	Proto string
	// Method and Target as they stood in the request line.
	Method, Target string
	Host           string
	Header         http.Header
	// Body is what was read of the body; BodyRead says whether all of it was.
	Body     []byte
	BodyRead bool
}

// Behaviour is what the vendor does with one arrival.
type Behaviour func(*Call)

// Config says how a Vendor listens.
type Config struct {
	// Addr is where it listens, host:port; empty means a free loopback port.
	Addr string
	// Behaviour answers arrivals; nil means OK.
	Behaviour Behaviour
	// AtAccept makes the vendor close each connection at once, before reading.
	AtAccept bool
	// TLS serves with a certificate of the vendor's own test authority.
	TLS bool
	// CertName is the name in the certificate besides the loopback addresses;
	// if it is set, the loopback addresses are left out.
	CertName string
	// Expired makes the certificate one that has ended.
	Expired bool
	// HTTP2 offers h2 beside http/1.1 and does this to clients that speak it.
	// It implies TLS.
	HTTP2 HTTP2Fault
	// HTTP2Faulty is how many h2 arrivals meet the fault before one is
	// answered; 0 means 1.
	HTTP2Faulty int
}

// Vendor is a fake vendor on a loopback port. Its methods are safe for use by
// many goroutines. It stops at the end of the test.
type Vendor struct {
	t        testing.TB
	cfg      Config
	listener net.Listener
	tls      *tls.Config
	ca       *authority

	done chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each arrival
	serve    Behaviour
	queue    []Behaviour
	arrivals []*Arrival
	conns    map[net.Conn]struct{}
	accepted int
	received int64
}

// New starts a vendor that speaks plain HTTP.
func New(t testing.TB, b Behaviour) *Vendor {
	t.Helper()
	return Start(t, Config{Behaviour: b})
}

// NewTLS starts a vendor that speaks HTTP/1.1 over TLS.
func NewTLS(t testing.TB, b Behaviour) *Vendor {
	t.Helper()
	return Start(t, Config{Behaviour: b, TLS: true})
}

// Start starts a vendor.
func Start(t testing.TB, cfg Config) *Vendor {
	t.Helper()
	v := &Vendor{
		t: t, cfg: cfg, serve: cfg.Behaviour,
		done: make(chan struct{}), changed: make(chan struct{}),
		conns: make(map[net.Conn]struct{}),
	}
	if v.serve == nil {
		v.serve = OK
	}
	if cfg.TLS || cfg.HTTP2 != "" {
		v.ca = newAuthority(t)
		v.tls = v.ca.serverConfig(t, cfg)
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", cfg.Addr)
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	v.listener = l
	v.wg.Go(v.accept)
	t.Cleanup(v.Close)
	return v
}

// Close stops the vendor, ends its connections and waits for its goroutines.
// It may be called more than once.
func (v *Vendor) Close() {
	v.mu.Lock()
	select {
	case <-v.done:
	default:
		close(v.done)
	}
	_ = v.listener.Close()
	for c := range v.conns {
		_ = c.Close()
	}
	v.mu.Unlock()
	v.wg.Wait()
}

// Use makes b answer arrivals from now on, once the queue is empty.
func (v *Vendor) Use(b Behaviour) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.serve = b
}

// Queue answers the next arrivals with bs, one each.
func (v *Vendor) Queue(bs ...Behaviour) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue = append(v.queue, bs...)
}

// Addr is host and port of the vendor.
func (v *Vendor) Addr() string { return v.listener.Addr().String() }

// Port is the port of the vendor.
func (v *Vendor) Port() string {
	_, port, _ := net.SplitHostPort(v.Addr())
	return port
}

// URL is the base URL of the vendor, without a trailing slash.
func (v *Vendor) URL() string {
	if v.tls != nil {
		return "https://" + v.Addr()
	}
	return "http://" + v.Addr()
}

// Arrivals is the number of complete request heads that arrived.
func (v *Vendor) Arrivals() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.arrivals)
}

// Requests returns copies of the arrivals, in order.
func (v *Vendor) Requests() []Arrival {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := make([]Arrival, 0, len(v.arrivals))
	for _, a := range v.arrivals {
		c := *a
		c.Header, c.Body = a.Header.Clone(), slices.Clone(a.Body)
		out = append(out, c)
	}
	return out
}

// Connections is the number of connections accepted.
func (v *Vendor) Connections() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.accepted
}

// Received is the number of application bytes read (above TLS), whether or not
// they made a complete head.
func (v *Vendor) Received() int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.received
}

// AwaitArrivals waits until at least n requests have arrived and fails the test
// if they do not come. Call it on the goroutine of the test.
func (v *Vendor) AwaitArrivals(n int) {
	v.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for {
		v.mu.Lock()
		got, changed := len(v.arrivals), v.changed
		v.mu.Unlock()
		if got >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout.C:
			v.t.Fatalf("vendor: %d arrivals, waited for %d", got, n)
		}
	}
}

// CloseConnections ends every open connection, as a vendor does that restarts.
func (v *Vendor) CloseConnections() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for c := range v.conns {
		_ = c.Close()
	}
}

// CertPool holds the authority of a TLS vendor.
func (v *Vendor) CertPool() *x509.CertPool { return v.ca.pool() }

// CAFile writes the authority of a TLS vendor to a PEM file, for SSL_CERT_FILE.
func (v *Vendor) CAFile() string { return v.ca.file(v.t) }

func (v *Vendor) accept() {
	for {
		c, err := v.listener.Accept()
		if err != nil {
			return
		}
		id, ok := v.enter(c)
		if !ok {
			_ = c.Close()
			return
		}
		v.wg.Go(func() {
			defer v.leave(c)
			if !v.cfg.AtAccept {
				v.serveConn(c, id)
			}
		})
	}
}

func (v *Vendor) enter(c net.Conn) (id int, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.done:
		return 0, false
	default:
	}
	v.accepted++
	v.conns[c] = struct{}{}
	return v.accepted, true
}

func (v *Vendor) leave(c net.Conn) {
	_ = c.Close()
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.conns, c)
}

// arrive counts a head and picks what is done with it.
func (v *Vendor) arrive(a *Arrival) Behaviour {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.arrivals = append(v.arrivals, a)
	a.Seq = len(v.arrivals)
	close(v.changed)
	v.changed = make(chan struct{})
	if len(v.queue) > 0 {
		b := v.queue[0]
		v.queue = v.queue[1:]
		return b
	}
	return v.serve
}
