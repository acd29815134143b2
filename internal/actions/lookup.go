package actions

import (
	"context"
	"time"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/wire"
)

// Bounds of a look-up. It only reads, so it may be repeated, and nobody waits
// for it as long as for a write.
const (
	lookupTimeout = 15 * time.Second
	lookupTries   = 3
	lookupPause   = 200 * time.Millisecond
)

// lookUp reads from the vendor and says whether that settles the write.
func (c *checking) lookUp(ctx context.Context, index int, step connectors.CheckStep) bool {
	// The store's own time, before the first byte: only a look that began after
	// everything had settled can show that something is not there.
	if err := c.renew(ctx); err != nil {
		c.why = "the check could not go on"
		return false
	}
	authoritative := step.Absent == connectors.NotPerformed && !c.resent && !c.handle.Now.Before(c.h.settledAt(step.CheckRule))
	x, ok := c.read(ctx, step.Request)
	if !ok {
		return false
	}
	found, err := c.h.connector.MatchLookup(ctx, c.h.kept.Op, index, connectors.Answer{
		Status: x.Status, Header: x.Header, Body: x.Body.Bytes, Whole: x.Body.State == wire.Complete,
	})
	if err != nil {
		c.s.log.WarnContext(ctx, "look-up not readable", "action_id", c.h.rec.ID.String(), "error", err)
	}
	c.probe("lookup", string(found.Kind), x, found.Matches)
	switch found.Kind {
	case connectors.FoundOne:
		c.found(found.Result)
		return true
	case connectors.FoundMany:
		c.conflict = true
		return true
	case connectors.FoundNone:
		if authoritative {
			c.end.State = dedupe.NotDone
			return true
		}
		c.why = "the vendor shows no such record, which proves nothing"
		if step.Absent == connectors.NotPerformed {
			c.why += " before " + c.h.settledAt(step.CheckRule).Format(timeForm)
		}
		return false
	default:
		c.why = "the vendor's answer to the look-up could not be used"
		return false
	}
}

// read sends a look-up until it is answered by something other than trouble. A
// try that brought no answer is evidence too.
func (c *checking) read(ctx context.Context, planned connectors.Request) (wire.Exchange, bool) {
	timeout := min(c.h.action.Timeout, lookupTimeout)
	for try := 1; ; try++ {
		x, asked := c.ask(ctx, planned, timeout)
		if !asked {
			return x, false
		}
		whole := x.Phase == wire.Answered && x.Body.State != wire.Cut
		if whole && (x.Status < 500 || try == lookupTries) {
			return x, true
		}
		c.probe("lookup", string(x.Phase), x, 0)
		if try == lookupTries || ctx.Err() != nil {
			c.why = "the vendor did not answer the look-up"
			return x, false
		}
		timer := time.NewTimer(lookupPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// ask sends a look-up once, and tells the breaker once, whatever happens. False
// if it could not be sent at all.
func (c *checking) ask(ctx context.Context, planned connectors.Request, timeout time.Duration) (wire.Exchange, bool) {
	report, err := c.s.breakers.allow(c.conn.ID)
	if err != nil {
		c.why = "the vendor has been failing, so this connection is resting"
		return wire.Exchange{}, false
	}
	learned := errNoVerdict // unless the vendor had a part in it
	defer func() { report(learned) }()
	req := planned.Clone()
	if err := c.h.spec.Auth.Apply(&req, c.creds); err != nil {
		c.cannot(ctx, "this connection's credential could not be used", err)
		return wire.Exchange{}, false
	}
	x := c.s.sender.Send(ctx, wire.Request{Method: req.Method, URL: req.URL, Header: req.Header, Body: req.Body, Timeout: timeout}, nil)
	learned = breakerError(x)
	return x, true
}

// found settles the write with the record that carries its name.
func (c *checking) found(result []byte) {
	a := &Answer{Kind: ResultNone}
	if result != nil && soundJSON(result) {
		a = newMask(c.creds).json(result)
	}
	a.limit(c.s.maxResult)
	c.end.State, c.end.Answer = dedupe.Succeeded, a.encode()
	c.end.Outcome = &dedupe.Outcome{Reason: "found"}
}
