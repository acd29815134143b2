package bootclock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock shows what [Now] does and asks the system for it seldom: each of those
// questions is a call of the kernel, where Go reads its own clocks without one.
//
// While the machine runs, the boot clock and Go's monotonic one go the same way, and
// nothing sets either. Only a sleep parts them, by its length; and by as much it
// parts the wall clock from the monotonic one (Linux adds the same time to both,
// __timekeeping_inject_sleeptime in kernel/time/timekeeping.c). So as long as wall
// and monotonic clock stand as they stood, the last difference holds. A wall clock
// set back by what was slept would hide it, so this goes for [trusted] only, and
// then the system is asked again.
//
// It never goes back where the system's does not. It is safe for concurrent use.
type Clock struct {
	system func() time.Duration
	local  func() (monotonic, wall time.Duration) // read together
	asking sync.Mutex
	last   atomic.Pointer[comparison]
}

// comparison is how the clocks stood when the system was asked.
type comparison struct {
	at    time.Duration // monotonic
	wall  time.Duration // ahead of the monotonic clock
	ahead time.Duration // the boot clock, of the monotonic one: at least so far
}

const (
	// trusted is how long a comparison holds, of the time in which the machine runs.
	trusted = 10 * time.Millisecond
	// slack is how far the wall clock may seem to move between two readings that
	// are not quite at the same time. A sleep shorter than that shows by the next
	// comparison.
	slack = time.Millisecond
)

// New returns a clock.
func New() *Clock {
	start := time.Now()
	return newClock(Now, func() (monotonic, wall time.Duration) {
		t := time.Now()
		return t.Sub(start), time.Duration(t.UnixNano())
	})
}

func newClock(system func() time.Duration, local func() (monotonic, wall time.Duration)) *Clock {
	return &Clock{system: system, local: local}
}

// Now is the time since the machine started.
func (c *Clock) Now() time.Duration {
	monotonic, wall := c.local()
	if last := c.last.Load(); last != nil && last.holds(monotonic, wall) {
		return monotonic + last.ahead
	}
	return c.ask()
}

func (r *comparison) holds(monotonic, wall time.Duration) bool {
	return monotonic-r.at < trusted && (wall-monotonic-r.wall).Abs() <= slack
}

// ask compares the clocks. The boot clock was read between two readings of the
// monotonic one, which bounds the difference; within the bounds, the one that was
// shown by stays, so that nothing that is shown goes back. The wall clock counts as
// it stood before that: a sleep since then, also one in the midst of this, shows.
func (c *Clock) ask() time.Duration {
	c.asking.Lock()
	defer c.asking.Unlock()
	before, wall := c.local()
	boot := c.system()
	after, _ := c.local()
	now := &comparison{at: after, wall: wall - before, ahead: boot - after}
	if last := c.last.Load(); last != nil && now.ahead <= last.ahead && last.ahead <= boot-before {
		now.ahead = last.ahead
	}
	c.last.Store(now)
	return after + now.ahead
}
