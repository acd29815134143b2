package benchtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"
)

// effort is what a number of callers reached.
type effort struct {
	done     int
	took     time.Duration
	cpu      time.Duration // of this process
	p50, p99 time.Duration
}

func (l effort) sample() Sample {
	return Sample{
		"per_s": float64(l.done) / l.took.Seconds(), "cpu_us": float64(l.cpu.Microseconds()) / float64(l.done),
		"p50_ms": l.p50.Seconds() * 1000, "p99_ms": l.p99.Seconds() * 1000,
	}
}

// byCallers is a round in which a number of callers do one thing over and over.
func (b *Bench) byCallers(number int, one func(context.Context) error) func(context.Context) (Sample, error) {
	return b.byEach(number, func() func(context.Context) error { return one })
}

// byEach is byCallers for a thing that each caller has of its own.
func (b *Bench) byEach(number int, own func() func(context.Context) error) func(context.Context) (Sample, error) {
	return func(ctx context.Context) (Sample, error) {
		l, err := together(ctx, number, b.Time, own)
		if err != nil {
			return nil, err
		}
		return l.sample(), nil
	}
}

// together has a number of callers do what is their own over and over for a time.
// An error ends it.
func together(ctx context.Context, number int, during time.Duration, own func() func(context.Context) error) (effort, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([][]time.Duration, number)
	used, start := cpuTime(), time.Now()
	end := start.Add(during)
	var wg sync.WaitGroup
	for c := range number {
		one := own()
		wg.Go(func() {
			for at := time.Now(); at.Before(end) && ctx.Err() == nil; {
				if err := one(ctx); err != nil {
					cancel(err)
					return
				}
				now := time.Now()
				took[c] = append(took[c], now.Sub(at))
				at = now
			}
		})
	}
	wg.Wait()
	l := effort{took: time.Since(start), cpu: cpuTime() - used}
	if err := context.Cause(ctx); err != nil {
		return l, err
	}
	all := slices.Concat(took...)
	if l.done = len(all); l.done == 0 {
		return l, errors.New("nothing was done in the time")
	}
	slices.Sort(all)
	l.p50, l.p99 = all[len(all)/2], all[len(all)*99/100]
	return l, nil
}

// times does one thing so many times by as many callers as help.
func times(ctx context.Context, count int, one func(context.Context) error) error {
	const helpers = 256
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan struct{}, helpers)
	var wg sync.WaitGroup
	for range helpers {
		wg.Go(func() {
			for range work {
				if ctx.Err() != nil {
					continue
				}
				if err := one(ctx); err != nil {
					cancel(err)
				}
			}
		})
	}
	for range count {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	return context.Cause(ctx)
}

// cpuTime is the processor time this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
