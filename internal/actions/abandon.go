package actions

import (
	"context"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
)

// Back-off of an abandon that the store did not confirm.
const (
	abandonFirst = 50 * time.Millisecond
	abandonMost  = 500 * time.Millisecond
)

// unconfirmed is a claim of this process whose step got no answer. Nothing was
// sent under it, and it must not keep its identity.
type unconfirmed struct {
	scope   ledger.Scope
	ident   identity.Result
	abandon dedupe.Abandon
	once    sync.Mutex // one try at a time
	done    chan struct{}
}

// doubts are the unconfirmed claims of this process. There are none while the
// store answers.
type doubts struct {
	mu  sync.Mutex
	all map[*unconfirmed]struct{}
}

func (d *doubts) add(u *unconfirmed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.all == nil {
		d.all = make(map[*unconfirmed]struct{})
	}
	d.all[u] = struct{}{}
}

func (d *doubts) remove(u *unconfirmed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, u)
}

// about returns the unconfirmed claims that stand in the way of a write: those
// of its identity, and those that would be its twins.
func (d *doubts) about(scope ledger.Scope, ident identity.Result) []*unconfirmed {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []*unconfirmed
	for u := range d.all {
		if u.scope == scope && (u.ident.Identity == ident.Identity || u.ident.Fingerprint == ident.Fingerprint) {
			found = append(found, u)
		}
	}
	return found
}

// abandon undoes a claim whose step got no answer, in the background, until the
// store confirms or the gateway ends; after that its lease lapses and the write
// is held.
func (s *Service) abandon(w *write, a dedupe.Abandon) {
	u := &unconfirmed{scope: w.req.Principal.Scope, ident: w.ident, abandon: a, done: make(chan struct{})}
	s.doubts.add(u)
	s.running.Add(1) // under the place of the call that claimed
	go func() {
		defer s.running.Done()
		wait := abandonFirst
		for s.undo(s.base, u) != nil {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-u.done:
				timer.Stop()
				return
			case <-s.base.Done():
				timer.Stop()
				s.log.Warn("unconfirmed claim not undone; if it was stored, its write becomes held", "action_id", a.ID.String())
				return
			}
			wait = min(wait*2, abandonMost)
		}
	}()
}

// undo tries once.
func (s *Service) undo(ctx context.Context, u *unconfirmed) (err error) {
	defer caught(&err)
	u.once.Lock()
	defer u.once.Unlock()
	select {
	case <-u.done:
		return nil
	default:
	}
	if err := s.claims.Abandon(ctx, u.abandon); err != nil && !isFinal(err) {
		return err
	}
	s.doubts.remove(u)
	close(u.done)
	return nil
}

// clear undoes this process's own unconfirmed claims that a new one would meet,
// so that a repeat is never told that a write which nobody sends is in flight.
func (s *Service) clear(ctx context.Context, w *write) error {
	for _, u := range s.doubts.about(w.req.Principal.Scope, w.ident) {
		if err := s.undo(ctx, u); err != nil {
			return err
		}
	}
	return nil
}
