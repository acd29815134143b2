package benchtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"holdfast.dev/gateway/internal/pebblestore"
)

// records is how many records expire, and lie in a store that is opened again.
// The full form of both is a million.
func (b *Bench) records() int {
	switch {
	case b.Short:
		return 1000
	case b.Records > 0:
		return b.Records
	default:
		return 100_000
	}
}

// ageContests measure what a store does with many records that are over, and with
// many that are not.
func ageContests() []Entry {
	return []Entry{
		{Name: "expiry", Open: func(t testing.TB, b *Bench) Contest { return expiry(b) }},
		{Name: "reopening", Open: func(t testing.TB, b *Bench) Contest { return reopening(b) }},
	}
}

func expiry(b *Bench) Contest {
	count := b.records()
	return Contest{
		Name: "expiry",
		Contestants: []Contestant{{Name: "embedded", Round: func(ctx context.Context) (Sample, error) {
			return expireAtOnce(ctx, b, count)
		}}},
		Figures: []Figure{
			{Name: fmt.Sprintf("p99 of a pair while %d records expire at once ÷ before, embedded, 16 callers", count), Unit: "ms", Goal: AtMost(1.5), Of: func(r Round) (float64, float64) { return r["embedded"]["during"], r["embedded"]["before"] }},
		},
	}
}

// expireAtOnce puts records that end at the same time, turns the clock past it,
// and measures pairs before and while they are deleted.
func expireAtOnce(ctx context.Context, b *Bench, count int) (sample Sample, err error) {
	dir, err := os.MkdirTemp(b.Dir, "expiry")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var turned clockwork
	f, err := newStoreFolder(ctx, filepath.Join(dir, "store"), shape{}, pebblestore.Options{Clock: turned.now})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.store.Close()) }()
	const ends = 10 * 24 * time.Hour
	if err := f.writes.stock(ctx, count, false, ends); err != nil {
		return nil, err
	}
	own := func() func(context.Context) error { return f.writes.pair }
	before, err := together(ctx, 16, b.Time, own)
	if err != nil {
		return nil, err
	}
	turned.turn(ends)
	during, err := together(ctx, 16, expiring(count), own)
	if err != nil {
		return nil, err
	}
	return Sample{"before": before.p99.Seconds() * 1000, "during": during.p99.Seconds() * 1000}, nil
}

// expiring is how long the expirer has work with so many records of three values:
// it takes on 32,768 of them a second.
func expiring(count int) time.Duration {
	return max(time.Second, time.Duration(float64(count)*3/32768*float64(time.Second)))
}

func reopening(b *Bench) Contest {
	count := b.records()
	million := func(seconds float64) float64 { return seconds * 1e6 / float64(count) }
	return Contest{
		Name: "reopening",
		Contestants: []Contestant{{Name: "embedded", Round: func(ctx context.Context) (Sample, error) {
			closed, killed, err := reopen(ctx, b, count)
			return Sample{"closed": million(closed.Seconds()), "killed": million(killed.Seconds())}, err
		}}},
		Figures: []Figure{
			{Name: fmt.Sprintf("opening the embedded store again after a kill, for a million live records (with %d)", count), Unit: "s", Goal: AtMost(0.5), Of: Value("embedded", "killed")},
			{Name: "– after it was closed", Unit: "s", Goal: AtMost(0.5), Of: Value("embedded", "closed")},
		},
	}
}

// reopen fills a store and opens it again twice: as a killed process leaves it,
// and closed.
func reopen(ctx context.Context, b *Bench, count int) (closed, killed time.Duration, err error) {
	dir, err := os.MkdirTemp(b.Dir, "reopen")
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	f, err := newStoreFolder(ctx, filepath.Join(dir, "store"), shape{}, pebblestore.Options{})
	if err != nil {
		return 0, 0, err
	}
	err = f.writes.stock(ctx, count, true, 0)
	crashed := filepath.Join(dir, "crashed")
	if err == nil {
		err = os.CopyFS(crashed, os.DirFS(f.dir))
	}
	if err := errors.Join(err, f.store.Close()); err != nil {
		return 0, 0, err
	}
	if killed, err = opening(crashed); err != nil {
		return 0, 0, err
	}
	closed, err = opening(f.dir)
	return closed, killed, err
}

func opening(dir string) (time.Duration, error) {
	began := time.Now()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return 0, err
	}
	return time.Since(began), s.Close()
}
