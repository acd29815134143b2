package actions

import (
	"context"

	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/wire"
)

// resend puts the stored bytes on the wire once more, under the stored vendor
// key, and says whether the answer settles the write. It is the only place
// beside the owner that sends a write, and the vendor is documented to have no
// second effect of it.
func (c *checking) resend(ctx context.Context, rule connectors.CheckRule) bool {
	switch {
	case c.asker.auto && !c.conn.AutoResend:
		c.why = "it is not resent by itself, because the connection does not say auto_resend"
		return false
	case c.conn.Paused:
		c.why = "it is not resent while its connection is paused"
		return false
	}
	req := connectors.Request{Method: c.h.kept.Method, URL: c.h.kept.URL, Header: c.h.kept.Header, Body: c.h.kept.Body}.Clone()
	if err := c.h.spec.Auth.Apply(&req, c.creds); err != nil {
		c.cannot(ctx, "this connection's credential could not be used", err)
		return false
	}
	report, err := c.s.breakers.allow(c.conn.ID)
	if err != nil {
		c.why = "the vendor has been failing, so this connection is resting"
		return false
	}
	learned := errNoVerdict // unless the vendor had a part in it
	defer func() { report(learned) }()
	permit, err := c.markResent(ctx, rule)
	if err != nil {
		return false
	}
	x := c.s.sender.Send(ctx, wire.Request{
		Method: req.Method, URL: req.URL, Header: req.Header, Body: req.Body, Timeout: c.h.action.Timeout,
	}, permit)
	learned = breakerError(x)
	c.s.metrics.vendor.WithLabelValues(c.h.spec.Name).Observe(x.Duration.Seconds())
	f := c.s.judge(ctx, c.h.subject(), x, newMask(c.creds))
	c.probe("resend", f.word(), x, 0)
	if x.Phase != wire.NotSent {
		c.end.Attempt = f.settlement.Attempt
	}
	switch f.settlement.State {
	case dedupe.Succeeded, dedupe.Refused:
		c.end.State, c.end.Resend = f.settlement.State, true
		c.end.Outcome, c.end.Answer = &f.settlement.Outcome, f.settlement.Answer
		return true
	default:
		// "Not done, try later" is said of the resend, not of the first request.
		c.why = "it was sent once more, and the vendor's answer does not say whether it was done"
		return false
	}
}

// markResent stores, before the first byte, that a resend is on its way, and
// returns what the sender asks right before that byte. A checker that was held
// up must not send: its lease may be over, and the vendor may have forgotten the
// key.
func (c *checking) markResent(ctx context.Context, rule connectors.CheckRule) (wire.Permit, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	lease, issued := c.s.claims.Lease(), c.s.boot()
	if !c.h.mayResend(rule, c.s.claims.Now().Add(lease)) {
		c.why = "the vendor may have forgotten the key, so it is not sent again"
		return nil, errTooLate
	}
	if err := c.s.claims.MarkResent(ctx, c.handle, c.asker.by, c.asker.scribe); err != nil {
		c.why = "the check could not go on"
		return nil, err
	}
	c.resent = true
	return func() error {
		if !within(lease*2/3, issued, c.s.boot()) {
			return errTooLate
		}
		return nil
	}, nil
}
