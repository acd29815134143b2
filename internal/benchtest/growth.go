package benchtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/redisstore"
	"holdfast.dev/gateway/internal/redistest"
)

// Growth is how pairs of a claim and its settle fare as one thing after another
// grows. It prints a table; nothing is held against anything.
type Growth struct {
	Time    time.Duration // of one measurement
	Dir     string
	Records []int // live records on the embedded store, ascending
	OnRedis []int
	Tenants []int
	Callers []int
	Sizes   []int // of bodies, and of answers
	Expire  int   // records a second that end while pairs are measured

	Log func(row string) // is told each row as soon as it is measured

	out strings.Builder
}

// Run measures everything and returns the table.
func (g *Growth) Run(ctx context.Context) (string, error) {
	g.out.WriteString("| what grows | to | pairs/s | p50, ms | p99, ms | CPU of a pair, µs |\n|---|---|---|---|---|---|\n")
	err := errors.Join(g.records(ctx), g.tenants(ctx), g.callers(ctx), g.sizes(ctx), g.expiring(ctx))
	return g.out.String(), err
}

func (g *Growth) row(what string, value any, e effort) {
	s := e.sample()
	row := fmt.Sprintf("| %s | %v | %s | %s | %s | %s |", what, value,
		number(s["per_s"]), number(s["p50_ms"]), number(s["p99_ms"]), number(s["cpu_us"]))
	g.Log(row)
	g.out.WriteString(row + "\n")
}

// usual is how many callers there are where their number is not what grows.
const usual = 64

// measure has callers make pairs, after a while that is not counted.
func (g *Growth) measure(ctx context.Context, what string, value any, w *writes, number int) error {
	own := func() func(context.Context) error { return w.pair }
	if _, err := together(ctx, number, g.Time/4, own); err != nil {
		return fmt.Errorf("%s %v: %w", what, value, err)
	}
	e, err := together(ctx, number, g.Time, own)
	if err != nil {
		return fmt.Errorf("%s %v: %w", what, value, err)
	}
	g.row(what, value, e)
	return nil
}

// on opens an embedded store for one measurement, and removes it.
func (g *Growth) on(ctx context.Context, sh shape, opts pebblestore.Options, do func(*storeFolder) error) (err error) {
	dir, err := os.MkdirTemp(g.Dir, "growth")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, err := newStoreFolder(ctx, filepath.Join(dir, "store"), sh, opts)
	if err != nil {
		return err
	}
	return errors.Join(do(f), f.store.Close())
}

func (g *Growth) records(ctx context.Context) error {
	return g.on(ctx, shape{}, pebblestore.Options{}, func(f *storeFolder) error {
		return g.stocked(ctx, "live records, embedded", f.writes, g.Records)
	})
}

func (g *Growth) stocked(ctx context.Context, what string, w *writes, records []int) error {
	there := 0
	for _, n := range records {
		if err := w.stock(ctx, n-there, true, 0); err != nil {
			return err
		}
		there = n
		if err := g.measure(ctx, what, n, w, usual); err != nil {
			return err
		}
	}
	return nil
}

// Redis is the part of the table that needs a Redis.
func (g *Growth) Redis(t testing.TB) (string, error) {
	g.out.Reset()
	server := redistest.Start(t, append(redistest.Durable(), "auto-aof-rewrite-percentage 0")...)
	s, err := redisstore.Open(t.Context(), redisstore.Options{URL: server.URL(), Pipeline: true, Timeout: patience})
	if err != nil {
		return "", err
	}
	w, err := newWrites(t.Context(), s, shape{})
	if err == nil {
		err = g.stocked(t.Context(), "live records, Redis", w, g.OnRedis)
	}
	return g.out.String(), errors.Join(err, s.Close())
}

func (g *Growth) tenants(ctx context.Context) error {
	for _, n := range g.Tenants {
		if err := g.on(ctx, shape{tenants: n}, pebblestore.Options{}, func(f *storeFolder) error {
			return g.measure(ctx, "tenants, embedded", n, f.writes, usual)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (g *Growth) callers(ctx context.Context) error {
	for _, n := range g.Callers {
		if err := g.on(ctx, shape{}, pebblestore.Options{}, func(f *storeFolder) error {
			return g.measure(ctx, "callers, embedded", n, f.writes, n)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (g *Growth) sizes(ctx context.Context) error {
	for _, n := range g.Sizes {
		for what, sh := range map[string]shape{"bytes of a body, embedded": {body: n}, "bytes of an answer (JSON), embedded": {answer: n, json: true}} {
			if err := g.on(ctx, sh, pebblestore.Options{}, func(f *storeFolder) error {
				return g.measure(ctx, what, n, f.writes, usual)
			}); err != nil {
				return err
			}
		}
	}
	return nil
}

// expiring measures a store in which all the time as many records end as a busy
// one has written a day before.
func (g *Growth) expiring(ctx context.Context) error {
	for _, n := range []int{0, g.Expire} {
		// The clock is turned so that the first end as soon as all are there.
		var turned clockwork
		if err := g.on(ctx, shape{}, pebblestore.Options{Clock: turned.now}, func(f *storeFolder) error {
			const day = 24 * time.Hour
			begun := f.store.Now()
			for second := range int(2*g.Time/time.Second) + 1 {
				ends := begun.Add(day + time.Duration(second)*time.Second).Sub(f.store.Now())
				if err := f.writes.stock(ctx, n, true, ends); err != nil {
					return err
				}
			}
			turned.turn(begun.Add(day).Sub(f.store.Now()))
			return g.measure(ctx, "records that end each second, embedded", n, f.writes, usual)
		}); err != nil {
			return err
		}
	}
	return nil
}

// clockwork is a clock that can be turned on.
type clockwork struct{ ahead atomic.Int64 }

func (c *clockwork) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clockwork) turn(by time.Duration) { c.ahead.Add(int64(by)) }
