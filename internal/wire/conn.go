package wire

import (
	"bufio"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"time"
)

var (
	errHeadSize  = errors.New("answer head is too large")
	errMalformed = errors.New("answer is not HTTP/1.x")
)

// conn is one connection to a vendor. Of its methods only abort may be called
// while another runs; everything else is for the Send that holds it.
type conn struct {
	key string   // where it leads, see prepared.key
	app net.Conn // what requests are written to: TCP, or TLS over raw
	raw net.Conn // the socket
	br  *bufio.Reader

	asked   http.Request // all of a request that reading its answer asks for
	left    int64        // bytes that may still be read
	readErr error        // why the connection gave no more
	expiry  *time.Timer
}

func newConn(key string, app, raw net.Conn) *conn {
	c := &conn{key: key, app: app, raw: raw}
	c.br = bufio.NewReader(c)
	return c
}

// Read is for br. It remembers why reading ended: the errors of net/http quote
// what the vendor sent and must not get out.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		c.readErr = errHeadSize
		return 0, errHeadSize
	}
	if int64(len(p)) > c.left {
		p = p[:c.left]
	}
	n, err := c.app.Read(p)
	c.left -= int64(n)
	if err != nil {
		c.readErr = err
	}
	return n, err
}

// readHead reads the head of the final answer. Interim answers are skipped (RFC
// 9110 section 15.2), except 101, after which the connection is not HTTP any
// more; together they may take up limit bytes.
func (c *conn) readHead(method string, limit int64) (*http.Response, error) {
	c.left, c.asked.Method = limit, method
	for {
		resp, err := http.ReadResponse(c.br, &c.asked)
		if err != nil {
			return nil, err
		}
		if resp.ProtoMajor != 1 || resp.StatusCode < 100 {
			return nil, errMalformed
		}
		if resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			c.left = math.MaxInt64
			return resp, nil
		}
	}
}

// quiet reports whether everything that was read has been used. A byte beyond
// the answer would be taken for the beginning of the next one.
func (c *conn) quiet() bool { return c.br.Buffered() == 0 }

// alive looks at a kept connection once more before it is used: a byte later,
// a connection that is already gone would leave an unknown.
func (c *conn) alive() bool { return !dead(c.raw) }

// abort gives the connection up, and with it whatever the system has not
// delivered of the request yet; see discardOnClose.
func (c *conn) abort() { _ = c.raw.Close() }

// drop closes the socket at once, without the close_notify of TLS, which can
// block for seconds on a peer that does not read. What was written stays so.
func (c *conn) drop() {
	setLinger(c.raw, -1)
	_ = c.raw.Close()
}

// close ends an idle connection in an orderly way.
func (c *conn) close() {
	setLinger(c.raw, -1)
	_ = c.app.Close()
}

// discardOnClose makes the system throw away what it still holds of a request
// when the socket is closed, by abort or because the process was killed. By
// default it would go on trying to deliver it for minutes, and a write could
// reach the vendor after somebody has looked there and found nothing (socket(7),
// SO_LINGER with a time-out of zero).
func discardOnClose(raw net.Conn) { setLinger(raw, 0) }

func setLinger(raw net.Conn, seconds int) {
	if s, ok := raw.(interface{ SetLinger(sec int) error }); ok {
		_ = s.SetLinger(seconds)
	}
}

var _ io.Reader = (*conn)(nil)
