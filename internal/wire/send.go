package wire

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"
)

// writeGrace is how long a complete answer waits for the rest of the request to
// be written before the connection is given up.
const writeGrace = 50 * time.Millisecond

// smallRequest is how many bytes any socket takes at once, so that writing them
// does not wait for the vendor to read.
const smallRequest = 8 << 10

// Send puts req on the wire at most once and reports what is known. It never
// fails otherwise: whatever went wrong is in the Exchange.
//
// A caller who must not lose an answer because somebody hung up passes a ctx
// that outlives that somebody.
func (c *Client) Send(ctx context.Context, req Request, permit Permit) Exchange {
	started := time.Now()
	out := c.send(ctx, req, permit)
	out.Started, out.Duration = started, time.Since(started)
	return out
}

func (c *Client) send(ctx context.Context, req Request, permit Permit) Exchange {
	if c.closed.Load() {
		return notSent(ReasonClosed)
	}
	p, reason := prepare(req)
	if reason != "" {
		return notSent(reason)
	}
	timeout := req.Timeout
	if timeout <= 0 {
		timeout = c.cfg.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()

	var con *conn
	if !p.fresh {
		con = c.pool.take(p.key())
	}
	reused := con != nil
	if !reused {
		if con, reason = c.dialer.dial(ctx, p); reason != "" {
			if ctx.Err() != nil {
				reason = endReason(ctx)
			}
			return notSent(reason)
		}
	}
	out := c.exchange(ctx, con, p, permit)
	out.Reused = reused
	return out
}

func notSent(reason string) Exchange { return Exchange{Phase: NotSent, Reason: reason} }

// exchange writes p to con, once, and reads the answer. It owns con: at the end
// con is in the pool or closed, and no goroutine is left.
//
// Everything above the line "attempted" is not_sent, everything below is not.
// There is no loop around this function and none inside that writes.
func (c *Client) exchange(ctx context.Context, con *conn, p prepared, permit Permit) Exchange {
	keep, answered := false, false
	stop := context.AfterFunc(ctx, con.abort)
	defer func() {
		// An abort that has begun cannot be called off.
		switch inTime := stop(); {
		case inTime && keep:
			c.pool.put(con)
		case answered:
			con.drop()
		default:
			con.abort()
		}
	}()
	if permit != nil && permit() != nil {
		return notSent(ReasonNotPermitted)
	}
	if ctx.Err() != nil {
		return notSent(endReason(ctx))
	}

	// ---- attempted: from here on a byte may have left ----
	written := con.write(p.bytes)
	// A failed write is no verdict. A vendor that refuses a large body answers
	// early and closes, and its answer may be here already; if there is none,
	// reading fails too, or the deadline ends it.
	out, usable := c.receive(ctx, con, p)
	answered = out.Phase == Answered && out.Body.State != Cut
	switch {
	case usable:
	case answered:
		con.drop()
	default:
		con.abort()
	}
	keep = written() == nil && usable
	return out
}

// write writes the request while its answer is read already; what it returns waits
// for the end of that, though not for long. A small request is written at once.
func (c *conn) write(request []byte) (written func() error) {
	if len(request) <= smallRequest {
		_, err := c.app.Write(request)
		return func() error { return err }
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.app.Write(request)
		done <- err
	}()
	return func() error {
		_ = c.raw.SetWriteDeadline(time.Now().Add(writeGrace))
		return errors.Join(<-done, c.raw.SetWriteDeadline(time.Time{}))
	}
}

// receive reads the answer and reports whether con may carry another request.
func (c *Client) receive(ctx context.Context, con *conn, p prepared) (out Exchange, usable bool) {
	resp, err := con.readHead(p.method, c.cfg.MaxHead) //nolint:bodyclose // closing would read the body to its end, however long
	if err != nil {
		return Exchange{Phase: SentNoAnswer, Reason: lostReason(ctx, con)}, false
	}
	body, reason, err := readBody(resp, c.cfg.MaxBody)
	if err != nil {
		reason = lostReason(ctx, con)
	}
	out = Exchange{Phase: Answered, Reason: reason, Status: resp.StatusCode, Header: resp.Header, Body: body}
	read := err == nil && body.State != TooLarge && resp.StatusCode >= 200
	return out, read && !resp.Close && !p.fresh && con.quiet()
}

// lostReason names why an attempted request has no whole answer.
func lostReason(ctx context.Context, con *conn) string {
	if ctx.Err() != nil {
		return endReason(ctx)
	}
	switch err := con.readErr; {
	case err == nil:
		return ReasonMalformed
	case errors.Is(err, errHeadSize):
		return ReasonHeadSize
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ReasonCut
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNABORTED):
		return ReasonReset
	case con.app != con.raw:
		return ReasonTLS
	}
	return ReasonReset
}

func endReason(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ReasonDeadline
	}
	return ReasonCanceled
}
