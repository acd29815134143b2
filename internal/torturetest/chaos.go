package torturetest

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"

	"holdfast.dev/gateway/internal/redistest"
)

// chaos is the hand that breaks things. It does one thing at a time and mends it
// before the next, so that there is somebody left to keep the promise.
type chaos struct {
	gateways []*gateway
	proxies  []*proxy          // one for each gateway; none with the embedded store
	redis    *redistest.Server // nil with the embedded store
	clocks   clocks

	faults map[string]int
	failed error // what could not be mended
}

// run breaks things until ctx ends, then leaves everything mended.
func (c *chaos) run(ctx context.Context, r *rand.Rand) {
	if c.redis != nil {
		for i := range c.gateways {
			c.setOwn(r, i, i%2 == 1) // one is ahead and one behind, from the start
		}
	}
	// No run is without a jump that must be noticed.
	wait(ctx.Done(), between(r, 100*time.Millisecond, time.Second))
	c.jump(ctx, r, between(r, 10*time.Minute, 2*time.Hour))
	for ctx.Err() == nil && c.failed == nil {
		wait(ctx.Done(), time.Duration(100+r.IntN(400))*time.Millisecond)
		if ctx.Err() != nil {
			break
		}
		c.one(ctx, r)
	}
	if c.failed == nil {
		c.rest(context.WithoutCancel(ctx))
	}
}

func (c *chaos) one(ctx context.Context, r *rand.Rand) {
	i := r.IntN(len(c.gateways))
	g := c.gateways[i]
	pick := r.IntN(14)
	if c.redis == nil {
		pick = r.IntN(6)
	}
	switch pick {
	case 0, 1:
		c.count("kill -9")
		g.end(syscall.SIGKILL)
		c.failed = g.start()
	case 2:
		c.count("SIGSTOP past the lease")
		g.signal(syscall.SIGSTOP)
		wait(ctx.Done(), lease+time.Duration(r.IntN(1000))*time.Millisecond)
		g.signal(syscall.SIGCONT)
	case 3:
		c.count("SIGTERM")
		g.end(syscall.SIGTERM)
		c.failed = g.start()
	case 4, 5, 8:
		c.setClocks(ctx, r)
	case 6:
		c.count("redis killed")
		_ = c.redis.Kill()
		wait(ctx.Done(), time.Duration(r.IntN(800))*time.Millisecond)
		c.failed = c.redis.Start()
	case 7:
		c.count("redis stalled")
		_ = c.redis.Pause()
		wait(ctx.Done(), time.Duration(300+r.IntN(1500))*time.Millisecond)
		c.failed = c.redis.Resume()
	default:
		kinds := []trouble{delay, cutAll, halfReply, blackHole, deaf}
		kind := kinds[r.IntN(len(kinds))]
		c.count("network: " + string(kind))
		c.proxies[i].set(kind)
		wait(ctx.Done(), time.Duration(200+r.IntN(1500))*time.Millisecond)
		c.proxies[i].set(none)
	}
}

func (c *chaos) count(fault string) { c.faults[fault]++ }
