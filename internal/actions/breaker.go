package actions

import (
	"errors"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// breakers keeps one circuit breaker per connection. An open breaker answers
// not_sent; it is asked after the claim, so it never stands before a replay.
type breakers struct {
	rest time.Duration
	mu   sync.Mutex
	byID map[string]*gobreaker.TwoStepCircuitBreaker[struct{}]
}

// maxBreakers bounds the memory of connections that come and go. Past it the
// breakers start over, which costs a failing vendor a few more tries.
const maxBreakers = 20_000

// breakerRest is how long an open breaker rests before it lets one probe by.
const breakerRest = 10 * time.Second

// tripAfter is how many failures in a row open a breaker.
const tripAfter = 8

var (
	errVendorFailing = errors.New("vendor failing")
	errNoVerdict     = errors.New("nothing learned about the vendor")
)

func newBreakers(rest time.Duration) *breakers {
	return &breakers{rest: rest, byID: make(map[string]*gobreaker.TwoStepCircuitBreaker[struct{}])}
}

// isOpen says whether a connection is resting, without counting as a call.
func (b *breakers) isOpen(connectionID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	cb, ok := b.byID[connectionID]
	return ok && cb.State() == gobreaker.StateOpen
}

// allow asks a connection's breaker. The function it returns must be called
// once, with what the call told about the vendor.
func (b *breakers) allow(connectionID string) (func(error), error) {
	b.mu.Lock()
	cb, ok := b.byID[connectionID]
	if !ok {
		if len(b.byID) >= maxBreakers {
			clear(b.byID)
		}
		cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
			MaxRequests: 1, // half-open: one probe
			Timeout:     b.rest,
			ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= tripAfter },
			IsExcluded:  func(err error) bool { return errors.Is(err, errNoVerdict) },
		})
		b.byID[connectionID] = cb
	}
	b.mu.Unlock()
	report, err := cb.Allow()
	if err != nil {
		return nil, err
	}
	return report, nil
}
