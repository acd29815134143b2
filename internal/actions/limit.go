package actions

import (
	"context"
	"strconv"

	"holdfast.dev/gateway/internal/audit"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/limits"
)

// admit asks the tenant's limits for a new write. Like everything that stands
// against one, a limit that is used up is kept and not answered yet: what exists
// is answered first.
func (s *Service) admit(w *write) {
	if w.refusal != nil || w.req.DryRun {
		return
	}
	if w.place, w.exceeded = s.limits.Write(w.req.Principal); w.exceeded == nil {
		return
	}
	detail := "this tenant makes too many new writes at once; nothing was sent. Wait as long as Retry-After says, then repeat the same request"
	if w.exceeded.Limit == limits.NewWrites {
		detail = "this tenant has made as many new writes today as it may; nothing was sent. Ask an operator, or repeat the same request tomorrow"
	}
	w.refusal = fail(RateLimited, detail).after(clampHint(w.exceeded.Wait))
}

// charge keeps what admit took if a write was acquired, and gives it back if
// not: neither a replay nor a refusal is a new write.
func (w *write) charge(c dedupe.Claimed, err error) {
	if err == nil && c.Verdict == dedupe.Acquired {
		w.place.Claimed(c.Now, c.Tally)
		return
	}
	w.place.Cancel()
}

// admitCheck gives a check that somebody asks for a place among the tenant's
// calls. Like a replay, a write that is not held any more is answered whatever
// the limits say.
func (s *Service) admitCheck(ctx context.Context, req Request, rec *dedupe.Record) (*limits.Permit, *Error) {
	place, over := s.limits.Call(req.Principal)
	if over == nil {
		return place, nil
	}
	if !rec.State.Unsettled() {
		return nil, resolveFailure(rec, dedupe.ErrNotHeld)
	}
	return nil, s.limited(ctx, req, over, fail(RateLimited,
		"this tenant has as many calls to vendors under way as it may; nothing was checked. Wait as long as Retry-After says, then repeat the same request").
		after(clampHint(over.Wait)))
}

// limited records a refusal by a limit, though not each of a flood, and counts
// it.
func (s *Service) limited(ctx context.Context, req Request, over *limits.Exceeded, refusal *Error) *Error {
	s.metrics.limited.WithLabelValues(over.Limit).Inc()
	suppressed, write := s.limits.Note(req.Principal, over.Limit)
	if !write {
		return refusal
	}
	row := s.baseRow(ctx, req)
	row.Event, row.At, row.Reason = audit.RateLimited, s.claims.Now(), over.Limit
	if suppressed > 0 {
		row.Subject = "suppressed:" + strconv.FormatInt(suppressed, 10)
	}
	if err := s.journal.Append(context.WithoutCancel(ctx), req.Principal.Scope, row); err != nil {
		return storeFailure(err)
	}
	return refusal
}
