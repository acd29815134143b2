package vendortest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
)

// Call is one arrival while it is being answered. Its methods are for the
// goroutine of the Behaviour.
type Call struct {
	// Arrival is a copy, without the body; see ReadBody.
	Arrival Arrival

	v       *Vendor
	record  *Arrival
	socket  *net.TCPConn
	conn    net.Conn // above TLS
	request *http.Request
	closed  bool
}

// ReadBody reads the rest of the request body and returns all of it.
func (c *Call) ReadBody() []byte {
	raw, err := io.ReadAll(c.request.Body)
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	c.record.Body = append(c.record.Body, raw...)
	c.record.BodyRead = err == nil
	return append([]byte(nil), c.record.Body...)
}

// Raw writes bytes as they are.
func (c *Call) Raw(s string) { _, _ = io.WriteString(c.conn, s) }

// Respond reads the rest of the body and writes a whole answer with a
// Content-Length. The header is given as lines: "Retry-After: 3".
func (c *Call) Respond(status int, contentType, body string, lines ...string) {
	c.ReadBody()
	c.Raw(head(status, append(lines, "Content-Type: "+contentType, "Content-Length: "+strconv.Itoa(len(body)))...))
	c.Raw(body)
}

// JSON is Respond with application/json.
func (c *Call) JSON(status int, body string, lines ...string) {
	c.Respond(status, "application/json", body, lines...)
}

// Close ends the connection in an orderly way: a FIN, if the request was read.
// Over TLS no close_notify is sent, so that the end looks like a cut.
func (c *Call) Close() {
	c.closed = true
	_ = c.socket.Close()
}

// CloseNotify ends the connection with a TLS close_notify, if it is TLS.
func (c *Call) CloseNotify() {
	c.closed = true
	_ = c.conn.Close()
}

// Reset ends the connection with a RST.
func (c *Call) Reset() {
	_ = c.socket.SetLinger(0)
	c.Close()
}

// Hang answers nothing more until the client or the vendor closes.
func (c *Call) Hang() {
	_, _ = io.Copy(io.Discard, c.conn)
	c.Close()
}

// Done is closed when the vendor is.
func (c *Call) Done() <-chan struct{} { return c.v.done }

// head is a status line and header lines with the blank line after them.
func head(status int, lines ...string) string {
	s := fmt.Sprintf("HTTP/1.1 %03d %s\r\n", status, http.StatusText(status))
	for _, l := range lines {
		s += l + "\r\n"
	}
	return s + "\r\n"
}

// serveConn serves one connection until either side is done with it.
func (v *Vendor) serveConn(nc net.Conn, id int) {
	conn := nc
	if v.tls != nil {
		secured := tls.Server(nc, v.tls)
		if err := secured.Handshake(); err != nil {
			return
		}
		conn = secured
		if secured.ConnectionState().NegotiatedProtocol == "h2" {
			v.serveHTTP2(counted{conn, v}, id)
			return
		}
	}
	conn = counted{conn, v}
	br := bufio.NewReader(conn)
	for {
		// ReadRequest returns once the head is complete; the body follows.
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		a := Arrival{
			Conn: id, Proto: req.Proto, Method: req.Method, Target: req.RequestURI,
			Host: req.Host, Header: req.Header,
		}
		record := a
		record.Header = a.Header.Clone()
		b := v.arrive(&record)
		a.Seq = record.Seq
		c := &Call{Arrival: a, v: v, record: &record, socket: nc.(*net.TCPConn), conn: conn, request: req}
		b(c)
		if c.closed {
			return
		}
		c.ReadBody()
	}
}

// counted counts what is read.
type counted struct {
	net.Conn
	v *Vendor
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.v.mu.Lock()
	c.v.received += int64(n)
	c.v.mu.Unlock()
	return n, err
}
