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
	// opened is told of each breaker that opens; nil: nobody is.
	opened func()
	mu     sync.Mutex
	byID   map[string]*gobreaker.TwoStepCircuitBreaker[struct{}]
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

// count says how many breakers are in a state: "open" or "half_open". An open
// one that has rested is half open, whether or not anybody has asked it.
func (b *breakers) count(state string) int {
	want := gobreaker.StateOpen
	if state == "half_open" {
		want = gobreaker.StateHalfOpen
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, cb := range b.byID {
		if cb.State() == want {
			n++
		}
	}
	return n
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
			OnStateChange: func(_ string, _, to gobreaker.State) {
				if to == gobreaker.StateOpen && b.opened != nil {
					b.opened()
				}
			},
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
