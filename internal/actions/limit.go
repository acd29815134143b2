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

// limited records a refusal by a limit, though not each of a flood, and counts
// it.
func (s *Service) limited(ctx context.Context, w *write) *Error {
	s.metrics.limited.WithLabelValues(w.exceeded.Limit).Inc()
	suppressed, write := s.limits.Note(w.req.Principal, w.exceeded.Limit)
	if !write {
		return w.refusal
	}
	row := s.baseRow(ctx, w.req)
	row.Event, row.At, row.Reason = audit.RateLimited, s.claims.Now(), w.exceeded.Limit
	if suppressed > 0 {
		row.Subject = "suppressed:" + strconv.FormatInt(suppressed, 10)
	}
	if err := s.journal.Append(context.WithoutCancel(ctx), w.req.Principal.Scope, row); err != nil {
		return storeFailure(err)
	}
	return w.refusal
}
