package actions

import (
	"time"

	"holdfast.dev/gateway/internal/dedupe"
)

// Back-off of an abandon that the store did not confirm. The most is short: the
// first repeat after the store's return should find the identity free.
const (
	abandonFirst = 50 * time.Millisecond
	abandonMost  = 500 * time.Millisecond
)

// abandon undoes a claim whose step got no answer. Nothing was sent under it,
// so its identity must not stay taken: it is repeated until the store confirms
// or the gateway ends, after which the lease lapses and the write is held.
func (s *Service) abandon(a dedupe.Abandon) {
	s.running.Add(1) // under the place of the call that claimed
	go func() {
		defer s.running.Done()
		wait := abandonFirst
		for {
			err := s.claims.Abandon(s.base, a)
			if err == nil || isFinal(err) {
				return
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-s.base.Done():
				timer.Stop()
				s.log.Warn("unconfirmed claim not undone; if it was stored, its write becomes held", "action_id", a.ID.String())
				return
			}
			wait = min(wait*2, abandonMost)
		}
	}()
}
