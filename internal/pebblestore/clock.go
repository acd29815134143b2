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
	seen   time.Time // the source's last reading, with its monotonic part
	at     time.Time // the last time shown, with nanoseconds
}

func newClock(source func() time.Time, floor time.Time) *clock {
	return &clock{source: source, seen: source(), at: floor}
}

// now is the time to the millisecond.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.source()
	// Sub compares monotonic readings where both have one, so a source that was
	// set back still tells how much time has passed.
	passed := max(t.Sub(c.seen), 0)
	c.seen = t
	c.at = c.at.Add(passed / 2)
	if wall := t.Round(0); wall.After(c.at) {
		c.at = wall
	}
	return fromMillis(c.at.UnixMilli())
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
	if err := commit(); err != nil {
		return err
	}
	h.committed.Store(mark)
	return nil
}
