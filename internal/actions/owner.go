package actions

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/limits"
)

// owner is the one call that may send an acquired write: it keeps the lease,
// sends at most once and stores what came of it. It outlives its caller.
type owner struct {
	s      *Service
	w      *write
	scribe dedupe.Scribe

	mu     sync.Mutex // guards handle: a renewal and a settle never overlap
	handle *dedupe.Handle

	stopRenewing context.CancelFunc

	clock     sync.Mutex
	issued    time.Duration // boot clock when the claim was issued
	confirmed time.Duration // boot clock when the last confirmed claim or renewal was issued
}

// done is what a caller is told as soon as it can be told anything true.
type done struct {
	reply Reply
	err   *Error
}

// run sends an acquired write and waits for its end, or for the caller to go.
func (s *Service) run(ctx context.Context, w *write, c dedupe.Claimed) (Reply, *Error) {
	o := &owner{s: s, w: w, handle: c.Handle, scribe: s.scribe(ctx, w.req), issued: w.issued, confirmed: w.issued}
	told := make(chan done, 1)
	s.running.Add(1) // under the caller's own place, so Close cannot be past it
	go func() {
		defer s.running.Done()
		o.carry(context.WithoutCancel(ctx), told)
	}()
	select {
	case d := <-told:
		return d.reply, d.err
	case <-ctx.Done():
		// Nobody is there to read this; the write goes on.
		return Reply{}, fail(InFlight, "the caller went away; the write goes on, and repeating the request gets its answer").
			after(minHint).about(c.Record)
	}
}

// carry takes the write from the claim to its stored end. ctx carries the
// caller's trace; the service's own end cuts it.
func (o *owner) carry(ctx context.Context, told chan<- done) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(o.s.base, cancel)()
	defer o.w.place.Done()

	// The lease must not wait for a turn.
	renewing, stopRenewing := context.WithCancel(limits.WithTurn(ctx, nil))
	o.stopRenewing = stopRenewing
	defer o.renewing(renewing)()
	defer stopRenewing()

	var err error
	func() {
		defer caught(&err)
		o.settle(ctx, o.perform(ctx), told)
	}()
	if err != nil {
		o.s.log.ErrorContext(ctx, "write not carried to its end", "action_id", o.w.id.String(), "error", err)
		o.tell(told, done{err: fail(Internal, "the gateway failed at its own work; get the action to see how it stands, and do not send it again").
			next(GetAction).about(o.record())})
	}
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

// renewing has the lease kept until ctx ends; what it returns waits for that. Most
// calls end before the first renewal, and pay for a timer only.
func (o *owner) renewing(ctx context.Context) (wait func()) {
	ended := make(chan struct{})
	first := time.AfterFunc(o.s.claims.Lease()/3, func() {
		defer close(ended)
		o.keepLease(ctx)
	})
	return func() {
		if !first.Stop() {
			<-ended
		}
	}
}

// keepLease renews the lease, now and every third of it, until ctx ends. A renewal
// that fails is tried again sooner; a lease that was lost is not renewed any more,
// and the call goes on.
func (o *owner) keepLease(ctx context.Context) {
	every := o.s.claims.Lease() / 3
	for ctx.Err() == nil {
		wait := every
		at := o.s.boot()
		err := o.renew(ctx)
		switch {
		case err == nil:
			o.clock.Lock()
			o.confirmed = at
			o.clock.Unlock()
		case errors.Is(err, dedupe.ErrLeaseLost):
			o.s.metrics.leaseLost.Inc()
			o.s.log.WarnContext(ctx, "lease lost; the call goes on", "action_id", o.w.id.String())
			return
		default:
			wait = every / 4
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
	}
}

func (o *owner) renew(ctx context.Context) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer caught(&err)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return o.s.claims.Renew(ctx, o.handle)
}

// Back-off of a settle that the store would not take.
const (
	settleFirst = 50 * time.Millisecond
	settleMost  = 2 * time.Second
)

// settle stores what was found until the store takes it. If the first try
// fails, the caller is told what can truthfully be told without the store.
func (o *owner) settle(ctx context.Context, f finding, told chan<- done) {
	ctx, span := o.s.tracer.Start(context.WithoutCancel(ctx), "settle")
	defer span.End()
	spanSettle(span, f)
	f.settlement.Scribe = o.scribe
	wait := settleFirst
	for {
		rec, err := o.store(ctx, f)
		if err == nil || isFinal(err) {
			o.finish(ctx, f, rec, err, told)
			return
		}
		if errors.Is(err, errPanicked) {
			// It may never end well: the lease is given up, so that the write is
			// held meanwhile. A later try still settles it.
			o.stopRenewing()
		}
		o.s.log.WarnContext(ctx, "outcome not stored yet", "action_id", o.w.id.String(), "error", err)
		o.tell(told, o.unsaved(ctx, f))
		limits.TurnOf(ctx).Leave() // this may take long
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-o.s.base.Done():
			timer.Stop()
			o.lastTry(ctx, f)
			return
		}
		wait = min(wait*2, settleMost)
	}
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

func (o *owner) finish(ctx context.Context, f finding, rec *dedupe.Record, err error, told chan<- done) {
	o.s.metrics.outcome(o.w.spec.Name, f.word())
	o.w.place.Done() // before the caller knows, whose next write may come at once
	if err != nil {
		o.late(ctx, f, rec, err, told)
		return
	}
	out := outcome{Record: rec, Answer: f.settlement.Answer, Release: f.release}
	if rec.State == dedupe.Held {
		// Whoever waits for this may have gone, and its line in the log says so only.
		o.s.log.WarnContext(ctx, "write held", "action_id", o.w.id.String(), "phase", rec.Outcome.Phase, "reason", rec.Outcome.Reason, "vendor_status", rec.Outcome.VendorStatus)
		out.Check = o.howToCheck(ctx, rec)
	}
	reply, e := o.s.settled(out)
	o.tell(told, done{reply, e})
}

// late answers a caller whose write was settled by somebody else meanwhile, or
// whose record is gone. What this call learned changed nothing.
func (o *owner) late(ctx context.Context, f finding, rec *dedupe.Record, err error, told chan<- done) {
	o.s.metrics.lateAnswers.Inc()
	o.s.log.WarnContext(ctx, "late answer changed nothing", "action_id", o.w.id.String(), "outcome", f.settlement.State.String(), "error", err)
	e := fail(OutcomeUnknown, "this write was settled by an operator or a check before the vendor's answer came; get the action to see how it stands. Do not send it again").
		next(GetAction).about(rec).cause(err)
	if rec == nil {
		e = fail(AnswerUnreadable, "what is stored about this write cannot be read or is gone; do not send it again, and ask an operator to look").cause(err)
	}
	o.tell(told, done{err: e})
}

// tell gives the caller its answer; only the first one counts.
func (o *owner) tell(told chan<- done, d done) {
	select {
	case told <- d:
	default:
	}
}
