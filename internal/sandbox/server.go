package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// ErrNotLoopback refuses to show a vendor that takes any credential to a network.
var ErrNotLoopback = errors.New("the sandbox vendor listens on loopback addresses only, unless it has a token of its own")

// Server is a vendor that listens.
type Server struct {
	*Vendor
	URL string // http://127.0.0.1:port, or the address that was given

	http    *http.Server
	served  chan struct{}
	conns   sync.WaitGroup
	stop    sync.Once
	stopErr error
}

// Start begins to listen on a loopback address, such as 127.0.0.1:0, or with
// Options.Token on any other, and returns once connections are accepted.
func Start(addr string, o Options) (*Server, error) {
	tcp, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("read sandbox address: %w", err)
	}
	if !tcp.IP.IsLoopback() && o.Token == "" {
		return nil, ErrNotLoopback
	}
	listener, err := net.ListenTCP("tcp", tcp)
	if err != nil {
		return nil, fmt.Errorf("start sandbox: %w", err)
	}
	vendor := New(o)
	s := &Server{
		Vendor: vendor, URL: "http://" + listener.Addr().String(), served: make(chan struct{}),
	}
	s.http = &http.Server{
		Handler: vendor, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, ConnState: s.track,
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listener) // returns ErrServerClosed, by Close
	}()
	return s, nil
}

// track counts open connections. New ones are only reported by Serve itself, so
// none is added once it has returned.
func (s *Server) track(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateClosed:
		s.conns.Done()
	case http.StateActive, http.StateIdle, http.StateHijacked: // nothing here hijacks
	}
}

// Close stops listening, cuts what still runs and waits until it has ended. It
// may be called twice.
func (s *Server) Close() error {
	s.stop.Do(func() {
		s.Vendor.Close()
		if err := s.http.Close(); err != nil {
			s.stopErr = fmt.Errorf("stop sandbox: %w", err)
		}
		<-s.served
		s.conns.Wait()
	})
	return s.stopErr
}
