package torturetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"syscall"
	"time"
)

// clocks is the part of the hand that sets clocks: the store's, and those of
// gateways on Redis, which must not matter. It is also the operator who is called
// when a gateway says that a clock has jumped.
type clocks struct {
	gateways []*clock
	store    func(time.Duration) error // sets the store's clock

	off      time.Duration // of the store's clock
	furthest time.Duration // it ever was
	barred   []span        // when every gateway had said that it claims nothing
	wrong    []string      // what the guard did not do
}

// span is a piece of the rig's own time.
type span struct{ from, to time.Time }

const (
	// Windows, holds and the vendors' memory last a day or nearly. The clock stays
	// within less of where it began, so that none of them ends.
	clockRange = 6 * time.Hour
	// guardLimit is how long it may take until every gateway has noticed a jump,
	// and until it has noticed that all is well again.
	guardLimit = 15 * time.Second
)

// setStore sets the store's clock.
func (c *chaos) setStore(off time.Duration) {
	c.clocks.off = off
	c.clocks.furthest = max(c.clocks.furthest, off)
	c.broke(c.clocks.store(off))
}

// broke keeps the first thing that the rig itself could not do.
func (c *chaos) broke(err error) {
	if c.failed == nil {
		c.failed = err
	}
}

func (c *chaos) wrong(format string, args ...any) {
	c.clocks.wrong = append(c.clocks.wrong, fmt.Sprintf(format, args...))
}

// between draws a time between two.
func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// either draws a sign.
func either(r *rand.Rand, d time.Duration) time.Duration {
	if r.IntN(2) == 0 {
		return -d
	}
	return d
}

// setClocks is one fault of a clock.
func (c *chaos) setClocks(ctx context.Context, r *rand.Rand) {
	redis := c.redis != nil
	switch pick := r.IntN(6); {
	case pick < 2:
		c.count("clock: jump below the guard's bound")
		c.setStore(c.clocks.off + either(r, between(r, 500*time.Millisecond, 4*time.Second)))
		wait(ctx.Done(), between(r, 500*time.Millisecond, 1500*time.Millisecond))
	case pick == 2:
		c.count("clock: drift")
		step := either(r, between(r, 10*time.Millisecond, 60*time.Millisecond))
		for range 50 {
			c.setStore(c.clocks.off + step)
			wait(ctx.Done(), 40*time.Millisecond)
		}
	case pick == 3 && redis:
		c.setOwn(r, r.IntN(2), r.IntN(2) == 0)
		wait(ctx.Done(), between(r, 0, time.Second))
	case pick == 3:
		c.setBack(ctx, r)
	case redis:
		c.jump(ctx, r, either(r, between(r, 10*time.Second, 2*time.Hour)))
	default:
		// The store may stand as far ahead as its source ever was.
		c.jump(ctx, r, c.clocks.furthest-c.clocks.off+between(r, 6*time.Minute, 2*time.Hour))
	}
}

// setOwn sets the clock of a gateway's machine, which on Redis must not matter,
// past the end of every window or, turned, to before its beginning.
func (c *chaos) setOwn(r *rand.Rand, gateway int, turned bool) {
	c.count("clock: a gateway's own, by more than a day")
	off := between(r, 25*time.Hour, 50*time.Hour)
	if turned {
		off = -off
	}
	c.broke(c.clocks.gateways[gateway].set(off))
}

// setBack sets the clock back under an embedded store, whose own never goes back.
func (c *chaos) setBack(ctx context.Context, r *rand.Rand) {
	if !c.steady(ctx) {
		return
	}
	c.count("clock: set back for a while")
	was := c.clocks.off
	c.setStore(was - between(r, 10*time.Second, 2*time.Hour))
	wait(ctx.Done(), between(r, 500*time.Millisecond, 3*time.Second))
	if ready, why := c.gateways[0].ready(); !ready {
		c.wrong("the clock was set back, which does no harm, and the gateway is not ready: %s", why)
	}
	c.setStore(was)
}

// jump sets the store's clock by so much that every gateway must stop claiming,
// and has it put back or accepted. Once begun it is played to its end, although
// the run may be over meanwhile.
func (c *chaos) jump(ctx context.Context, r *rand.Rand, by time.Duration) {
	if (c.clocks.off + by).Abs() > clockRange {
		if c.redis == nil {
			return
		}
		by = -by
	}
	if !c.steady(ctx) {
		return
	}
	was, back, during := c.clocks.off, r.IntN(2) == 0, between(r, 0, 2*time.Second)
	furthest := c.clocks.furthest
	if back {
		c.count("clock: jump, put back")
	} else {
		c.count("clock: jump, accepted")
	}
	ctx = context.WithoutCancel(ctx)
	c.setStore(was + by)
	wait(ctx.Done(), between(r, 0, 1200*time.Millisecond))
	if !c.until(ctx, c.allNoticed) {
		c.wrong("the store's clock went by %s, and a gateway claims on", by.Round(time.Second))
		c.mendClock(ctx, was, back)
		return
	}
	barred := span{from: time.Now()}
	wait(ctx.Done(), during)
	if c.redis == nil && r.IntN(2) == 0 {
		// What starts on such a clock must notice as well.
		c.count("kill -9")
		c.gateways[0].end(syscall.SIGKILL)
		c.broke(c.gateways[0].start())
		wait(ctx.Done(), during)
	}
	barred.to = time.Now()
	if c.anyReady() {
		c.wrong("the store's clock went by %s, nobody accepted it, and a gateway claims again", by.Round(time.Second))
	}
	c.clocks.barred = append(c.clocks.barred, barred)
	c.mendClock(ctx, was, back)
	if c.redis == nil && back {
		c.clocks.furthest = furthest // the store never went there
	}
}

// mendClock puts the clock back, or has it accepted as it is.
func (c *chaos) mendClock(ctx context.Context, was time.Duration, back bool) {
	if back {
		c.setStore(was)
		// Never followed, it needs nobody's word.
		if c.redis == nil && !c.until(ctx, c.allReady) {
			c.wrong("the clock was put back, and the gateway does not go on")
		}
	}
	c.operate(ctx)
}

// steady waits until every gateway is ready and has seen the store's clock twice,
// so that there is something to compare the next time with.
func (c *chaos) steady(ctx context.Context) bool {
	c.operate(ctx)
	for range 3 {
		if !c.until(ctx, c.allReady) {
			return false
		}
	}
	return ctx.Err() == nil
}

func (c *chaos) allReady() bool {
	for _, g := range c.gateways {
		if ready, _ := g.ready(); !ready {
			return false
		}
	}
	return true
}

// allNoticed says whether every gateway asks for an operator. One that is only not
// ready, because its store was slow to answer, say, may be again and claim before its
// next look.
func (c *chaos) allNoticed() bool {
	for _, g := range c.gateways {
		if ready, why := g.ready(); ready || !acceptFrom.MatchString(why) {
			return false
		}
	}
	return true
}

func (c *chaos) anyReady() bool {
	for _, g := range c.gateways {
		if ready, _ := g.ready(); ready {
			return true
		}
	}
	return false
}

func (c *chaos) until(ctx context.Context, ok func() bool) bool {
	deadline := time.Now().Add(guardLimit)
	for !ok() {
		if ctx.Err() != nil || c.failed != nil || time.Now().After(deadline) {
			return false
		}
		wait(ctx.Done(), 50*time.Millisecond)
	}
	return true
}

// The two stores say it in words of their own.
var acceptFrom = regexp.MustCompile(`(?:T is|--from) (\d{4}-\S*Z)`)

// operate does what the gateways ask of an operator, until each is ready and
// has made its next look, too.
func (c *chaos) operate(ctx context.Context) {
	deadline := time.Now().Add(2 * guardLimit)
	for calm := 0; calm < 2 && ctx.Err() == nil && c.failed == nil; {
		calm++
		for _, g := range c.gateways {
			ready, why := g.ready()
			if ready {
				continue
			}
			calm = 0
			if from := acceptFrom.FindStringSubmatch(why); from != nil {
				c.accept(g, from[1])
				break
			}
			if time.Now().After(deadline) {
				c.wrong("everything is mended, and a gateway is not ready: %s", why)
				return
			}
		}
		wait(ctx.Done(), 50*time.Millisecond)
	}
}

// accept runs gateway store accept-loss, for which an embedded store must be free.
func (c *chaos) accept(g *gateway, from string) {
	c.count("operator: accept-loss")
	if c.redis != nil {
		c.broke(g.acceptLoss(c.redis.URL(), from))
		return
	}
	g.end(syscall.SIGTERM)
	c.broke(g.acceptLoss(g.store, from))
	if c.failed == nil {
		c.broke(g.start())
	}
}

// rest leaves the clocks where nothing waits for them: every lease that the store
// gave out is over once its clock has been as far as it ever was.
func (c *chaos) rest(ctx context.Context) {
	if c.clocks.off < c.clocks.furthest-time.Second {
		c.setStore(c.clocks.furthest)
	}
	c.operate(ctx)
}
