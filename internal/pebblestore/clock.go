package pebblestore

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// clock is the store's time. It shows its source's, except that it never goes
// back: not when the source is set back, and not over a restart.
//
// Ahead of its source, it runs at half pace until the source has caught up. To
// stand still would be simpler, but a host's clock set back by an hour would
// then keep every lease alive for an hour; and at full pace the lead would never
// be made good. At half pace leases end late and never early, which is the safe
// side: who holds one counts on its own clock.
type clock struct {
	mu     sync.Mutex
	source func() time.Time
	boot   func() time.Duration // nil: jumps of the source are not noticed
	seen   time.Time            // the source's last reading, with its monotonic part
	ran    time.Duration        // the boot clock's last reading
	at     time.Time            // the last time shown, with nanoseconds
	ahead  time.Duration        // how far the source has jumped; 0: it has not
}

// maxJump is how far the source may go forward at once. More would end windows
// and holds that have not ended, so it is for an operator to say that the source
// is right: until then the clock goes on at the machine's own pace.
const maxJump = 5 * time.Minute

// newClock begins at the source's time, or at the floor if that is later. If it
// is known where the clock would stand had it gone on, it begins there, and the
// source has jumped if it is far ahead of that.
func newClock(source func() time.Time, boot func() time.Duration, floor, stood time.Time) *clock {
	c := &clock{source: source, boot: boot, seen: source()}
	if boot != nil {
		c.ran = boot()
	}
	if c.at = stood; stood.IsZero() {
		c.at = c.seen.Round(0)
	}
	if floor.After(c.at) {
		c.at = floor
	}
	return c
}

// now is the time to the millisecond.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.source()
	passed := c.passed(t)
	wall := t.Round(0)
	due := c.at.Add(passed)
	switch {
	case c.boot != nil && wall.Sub(due) > maxJump:
		c.at, c.ahead = due, wall.Sub(due)
	case wall.After(c.at):
		c.at, c.ahead = wall, 0
	default:
		c.at, c.ahead = c.at.Add(passed/2), 0
	}
	return fromMillis(c.at.UnixMilli())
}

// passed is how much time has passed since the last reading.
func (c *clock) passed(t time.Time) time.Duration {
	// Sub compares monotonic readings where both have one, so a source that was
	// set back still tells how much time has passed.
	passed := t.Sub(c.seen)
	c.seen = t
	if c.boot != nil {
		ran := c.boot()
		passed, c.ran = ran-c.ran, ran
	}
	return max(passed, 0)
}

// jump is how far the source has gone forward without the clock following it.
func (c *clock) jump() time.Duration {
	c.now()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// markAhead is how far the persisted mark runs ahead of the clock, so that it is
// written once a second and not with each step. After a crash the clock begins
// at the mark, at most this much ahead of its source.
const markAhead = time.Second

// highWater keeps a mark on disk that no step's time has passed: whichever step
// would be the first beyond it carries a new one in its own batch. So after a
// crash no time is given out twice, rows stay in the order of their times, and
// what had expired stays so.
type highWater struct {
	pace      func(now int64) []byte // what is kept beside the mark; nil: nothing
	mu        sync.Mutex
	committed atomic.Int64 // the mark in the log, in milliseconds
}

// write appends a batch made at a time to the log by way of commit, and puts a
// new mark into it if it needs one. A step beyond the mark waits for the batch
// that carries it to be in the log, which puts it in front.
func (h *highWater) write(b *pebble.Batch, now int64, commit func() error) error {
	if now <= h.committed.Load() {
		return commit()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if now <= h.committed.Load() {
		return commit()
	}
	mark := now + markAhead.Milliseconds()
	if err := b.Set(keyHighWater, encodeMillis(mark), nil); err != nil {
		return err
	}
	if h.pace != nil {
		if err := b.Set(keyPace, h.pace(now), nil); err != nil {
			return err
		}
	}
	if err := commit(); err != nil {
		return err
	}
	h.committed.Store(mark)
	return nil
}
