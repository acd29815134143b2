package redisstore

import (
	"sync"
	"time"

	"holdfast.dev/gateway/internal/bootclock"
)

const (
	// tick is the resolution of the server's answers: half of it is added to
	// the doubt about each.
	tick = time.Millisecond
	// wander is how fast two clocks are taken to drift apart: one part in 2000,
	// five times what quartz does.
	wander = 2000
)

// clock estimates the server's time from its answers and a local clock that
// counts suspension. The answer was given at some moment of the round trip, so
// the middle of it is off by half the round trip at most: that is the doubt.
type clock struct {
	boot  func() time.Duration // local time; only differences matter
	guess func() time.Time     // before the first answer

	mu     sync.Mutex
	known  bool
	offset time.Duration // server's time since 1970 - boot
	doubt  time.Duration // how far off the offset may have been when learnt
	at     time.Duration // boot time when it was learnt
}

func newClock(shift func() time.Duration) *clock {
	return &clock{
		boot:  bootclock.New().Now,
		guess: func() time.Time { return time.Now().Add(shift()) },
	}
}

// now is the estimate, in whole milliseconds as all times of the store.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return c.guess().Truncate(tick)
	}
	return time.UnixMilli((c.boot() + c.offset).Milliseconds())
}

// learn takes an answer to a call begun at started (boot time). The better of
// the old and the new estimate stays, the old one losing worth with age; an
// answer that contradicts the old one means that the server's clock was set or
// that another server answers, and then the new one is the truth.
func (c *clock) learn(started time.Duration, server time.Time) {
	ended := c.boot()
	half := (ended - started) / 2
	offset := time.Duration(server.UnixNano()) + tick/2 - (started + half)
	doubt := half + tick/2

	c.mu.Lock()
	defer c.mu.Unlock()
	aged := c.doubt + (ended-c.at)/wander
	apart := (offset - c.offset).Abs()
	if c.known && doubt > aged && apart <= doubt+aged {
		return
	}
	c.known, c.offset, c.doubt, c.at = true, offset, doubt, ended
}
