package actions

import (
	"context"
	"errors"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/limits"
)

// renewal is the keeping of a lease. Most calls end before it begins, and pay for
// a timer only.
type renewal struct {
	first *time.Timer
	ended chan struct{}

	mu      sync.Mutex
	stopped bool
	cancel  context.CancelFunc // nil before it has begun
}

// keepLeaseLater has the lease kept, from a third of it on until o.lease is ended.
func (o *owner) keepLeaseLater(ctx context.Context) {
	r := &o.lease
	r.ended = make(chan struct{})
	r.first = time.AfterFunc(o.s.claims.Lease()/3, func() {
		defer close(r.ended)
		// The lease must not wait for a turn.
		ctx, cancel := context.WithCancel(limits.WithTurn(ctx, nil))
		defer cancel()
		if r.begin(cancel) {
			o.keepLease(ctx)
		}
	})
}

// begin is false where it has been stopped already.
func (r *renewal) begin(cancel context.CancelFunc) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cancel = cancel
	return !r.stopped
}

// stop gives the lease up, and does not wait for a renewal that is under way.
func (r *renewal) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped = true; r.cancel != nil {
		r.cancel()
	}
}

func (r *renewal) end() {
	r.stop()
	if !r.first.Stop() {
		<-r.ended
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
