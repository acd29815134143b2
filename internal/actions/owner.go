package actions

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/limits"
)

// owner is the one call that may send an acquired write: it keeps the lease,
// sends at most once and stores what came of it. It outlives its caller.
type owner struct {
	s *Service
	w *write

	mu     sync.Mutex // guards handle: a renewal and a settle never overlap
	handle *dedupe.Handle

	lease renewal
	left  bool // to a goroutine, which ends it

	clock     sync.Mutex
	issued    time.Duration // boot clock when the claim was issued
	confirmed time.Duration // boot clock when the last confirmed claim or renewal was issued
}

// done is what a caller is told as soon as it can be told anything true.
type done struct {
	reply Reply
	err   *Error
}

// run sends an acquired write and waits for its end. It does so on its caller's
// goroutine, but not in its context: a caller that goes away ends nothing, and
// what it left waits in its place.
func (s *Service) run(ctx context.Context, w *write, c dedupe.Claimed) (Reply, *Error) {
	o := &owner{s: s, w: w, handle: c.Handle, issued: w.issued, confirmed: w.issued}
	d := o.carry(inService{s.base, ctx})
	return d.reply, d.err
}

// inService is the context of a call that outlives its caller: it ends with the
// service, and has the values of the caller's context (its trace, its turn).
type inService struct {
	context.Context
	caller context.Context //nolint:containedctx // for its values only
}

// Value asks the service's context first: it holds nothing but itself, for what is
// derived from this one to be ended by it.
func (c inService) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.caller.Value(key)
}

// carry takes the write from the claim to its stored end, or to where the caller
// is told without it and a goroutine goes on.
func (o *owner) carry(ctx context.Context) (d done) {
	o.keepLeaseLater(ctx)
	defer func() {
		if !o.left {
			o.end()
		}
	}()
	if o.safely(ctx, func() { d = o.settle(ctx, o.perform(ctx)) }) != nil {
		d = done{err: fail(Internal, "the gateway failed at its own work; get the action to see how it stands, and do not send it again").
			next(GetAction).about(o.record())}
	}
	return d
}

// end is what is done once nothing more becomes of the write here.
func (o *owner) end() {
	o.lease.end()
	o.w.place.Done()
}

// safely turns a panic into an error, and logs it.
func (o *owner) safely(ctx context.Context, do func()) (err error) {
	defer func() {
		if err != nil {
			o.s.log.ErrorContext(ctx, "write not carried to its end", "action_id", o.w.id.String(), "error", err)
		}
	}()
	defer caught(&err)
	do()
	return nil
}

// permit is asked right before the first byte: a claim that is too old may have
// lapsed and been settled by somebody else, so a sender that was held up must
// not send. Both bounds are on the boot clock, which a suspended process cannot
// hold back.
func (o *owner) permit() error {
	lease := o.s.claims.Lease()
	now := o.s.boot()
	o.clock.Lock()
	defer o.clock.Unlock()
	if !within(lease, o.issued, now) || !within(lease*2/3, o.confirmed, now) {
		return errTooLate
	}
	return nil
}

// within says whether less than span has passed. A clock that cannot be read, or
// went backwards, proves nothing; one that could not be read before reads less now.
func within(span, from, to time.Duration) bool {
	return to != clockFailed && from <= to && to-from < span
}

var errTooLate = errors.New("the claim is too old to send under")

// Back-off of a settle that the store would not take.
const (
	settleFirst = 50 * time.Millisecond
	settleMost  = 2 * time.Second
)

// settle stores what was found. If the store does not take it, the caller is told
// what can truthfully be told without, and it is tried until it does.
func (o *owner) settle(ctx context.Context, f finding) done {
	ctx, span := o.s.span(context.WithoutCancel(ctx), "settle", trace.SpanKindInternal)
	defer func() {
		if !o.left {
			span.End()
		}
	}()
	spanSettle(span, f)
	f.settlement.Scribe = o.w.scribe
	rec, err := o.store(ctx, f)
	if err == nil || isFinal(err) {
		return o.finish(ctx, f, rec, err)
	}
	o.notStored(ctx, err)
	d := o.unsaved(ctx, f)
	limits.TurnOf(ctx).Leave() // this may take long
	o.left = true
	o.s.running.Add(1) // under the caller's own place, so Close cannot be past it
	go func() {
		defer o.s.running.Done()
		defer o.end()
		defer span.End()
		_ = o.safely(ctx, func() { o.insist(ctx, f) })
	}()
	return d
}

// insist tries to store what was found until the store takes it or the service
// ends. Nobody waits for it.
func (o *owner) insist(ctx context.Context, f finding) {
	for wait := settleFirst; ; wait = min(wait*2, settleMost) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-o.s.base.Done():
			timer.Stop()
			o.lastTry(ctx, f)
			return
		}
		rec, err := o.store(ctx, f)
		if err == nil || isFinal(err) {
			o.finish(ctx, f, rec, err)
			return
		}
		o.notStored(ctx, err)
	}
}

func (o *owner) notStored(ctx context.Context, err error) {
	if errors.Is(err, errPanicked) {
		// It may never end well: the lease is given up, so that the write is
		// held meanwhile. A later try still settles it.
		o.lease.stop()
	}
	o.s.log.WarnContext(ctx, "outcome not stored yet", "action_id", o.w.id.String(), "error", err)
}

// record is the action as this owner last saw it.
func (o *owner) record() *dedupe.Record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.handle.Record
}

// howToCheck describes the check of a write this owner leaves in doubt.
func (o *owner) howToCheck(ctx context.Context, rec *dedupe.Record) *Check {
	return o.s.describeCheck(ctx, &held{
		scope: o.w.req.Principal.Scope, rec: rec, kept: keptRequest{Op: o.w.op},
		connector: o.w.connector, spec: o.w.spec, action: o.w.action,
	})
}

func (o *owner) unsaved(ctx context.Context, f finding) done {
	rec := o.record()
	d := f.unsaved(rec)
	if d.err.Code == OutcomeUnknown {
		d.err.Check = o.howToCheck(ctx, rec)
	}
	return d
}

func (o *owner) store(ctx context.Context, f finding) (rec *dedupe.Record, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer caught(&err)
	return o.s.claims.Settle(ctx, o.handle, f.settlement)
}

// lastTry is made when the drain's patience has ended. If it fails too, the
// lease lapses and the write is held.
func (o *owner) lastTry(ctx context.Context, f finding) {
	if _, err := o.store(ctx, f); err != nil {
		o.s.log.ErrorContext(ctx, "outcome not stored; the write becomes held when its lease lapses",
			"action_id", o.w.id.String(), "outcome", f.settlement.State.String())
	}
}

// isFinal says that repeating a settle cannot change anything.
func isFinal(err error) bool {
	return errors.Is(err, dedupe.ErrLate) || errors.Is(err, dedupe.ErrNotOwner) ||
		errors.Is(err, dedupe.ErrNotFound) || errors.Is(err, dedupe.ErrUnreadable)
}

// finish counts an outcome that the store has taken, or never will, and says what
// is told of it.
func (o *owner) finish(ctx context.Context, f finding, rec *dedupe.Record, err error) done {
	o.s.metrics.outcome(o.w.spec.Name, f.word())
	o.w.place.Done() // before the caller knows, whose next write may come at once
	if err != nil {
		return o.late(ctx, f, rec, err)
	}
	out := outcome{Record: rec, Answer: f.settlement.Answer, Release: f.release}
	if rec.State == dedupe.Held {
		// Whoever waited may have been told before, and its line in the log says that only.
		o.s.log.WarnContext(ctx, "write held", "action_id", o.w.id.String(), "phase", rec.Outcome.Phase, "reason", rec.Outcome.Reason, "vendor_status", rec.Outcome.VendorStatus)
		out.Check = o.howToCheck(ctx, rec)
	}
	reply, e := o.s.settled(out)
	return done{reply, e}
}

// late answers a caller whose write was settled by somebody else meanwhile, or
// whose record is gone. What this call learned changed nothing.
func (o *owner) late(ctx context.Context, f finding, rec *dedupe.Record, err error) done {
	o.s.metrics.lateAnswers.Inc()
	o.s.log.WarnContext(ctx, "late answer changed nothing", "action_id", o.w.id.String(), "outcome", f.settlement.State.String(), "error", err)
	e := fail(OutcomeUnknown, "this write was settled by an operator or a check before the vendor's answer came; get the action to see how it stands. Do not send it again").
		next(GetAction).about(rec).cause(err)
	if rec == nil {
		e = fail(AnswerUnreadable, "what is stored about this write cannot be read or is gone; do not send it again, and ask an operator to look").cause(err)
	}
	return done{err: e}
}
