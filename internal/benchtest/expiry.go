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
		{Name: "expiry", Open: func(_ testing.TB, b *Bench) Contest { return expiry(b) }},
		{Name: "reopening", Open: func(t testing.TB, b *Bench) Contest { return reopening(t, b) }},
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

// expiring is a time in which the expirer certainly has work with so many records of
// three values: it deletes fewer than 32,768 of them a second.
func expiring(count int) time.Duration {
	return max(time.Second, time.Duration(float64(count)*3/32768*float64(time.Second)))
}

func reopening(t testing.TB, b *Bench) Contest {
	count := b.records()
	// Most of what a kill leaves to do is the log of the last writes, which is no
	// longer for more records: of fewer, no more can be said than that.
	goal := AtMost(0.5 * max(1, float64(count)/1e6))
	return Contest{
		Name: "reopening",
		Contestants: []Contestant{{Name: "embedded", Round: func(context.Context) (Sample, error) {
			closed, killed, err := reopen(t, b, count)
			return Sample{"closed": closed.Seconds(), "killed": killed.Seconds()}, err
		}}},
		Figures: []Figure{
			{Name: fmt.Sprintf("opening the embedded store again after a kill, with %d live records (goal: for a million)", count), Unit: "s", Goal: goal, Of: Value("embedded", "killed")},
			{Name: "– after it was closed", Unit: "s", Goal: goal, Of: Value("embedded", "closed")},
		},
	}
}

// reopen has a process fill a store and kills it, and opens the store twice: as it
// was left, and after it was closed.
func reopen(t testing.TB, b *Bench, count int) (closed, killed time.Duration, err error) {
	dir, err := os.MkdirTemp(b.Dir, "reopen") //nolint:usetesting // it goes with the round, not with the test
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	dir = filepath.Join(dir, "store")
	filler := spawn(t, roleFiller, fmt.Sprintf("%d %s", count, dir))
	_ = filler.cmd.Process.Kill()
	filler.close()
	if filler.addr != filled {
		return 0, 0, fmt.Errorf("fill store: %s", filler.addr)
	}
	if killed, err = opening(dir); err != nil {
		return 0, 0, err
	}
	closed, err = opening(dir)
	return closed, killed, err
}

const filled = "filled"

// fillStore makes a store of so many finished writes, in the words "count folder",
// and does not close it.
func fillStore(what string) string {
	var count int
	var dir string
	if _, err := fmt.Sscanf(what, "%d %s", &count, &dir); err != nil {
		return err.Error()
	}
	f, err := newStoreFolder(context.Background(), dir, shape{}, pebblestore.Options{})
	if err == nil {
		err = f.writes.stock(context.Background(), count, true, 0)
	}
	if err != nil {
		return err.Error()
	}
	return filled
}

func opening(dir string) (time.Duration, error) {
	began := time.Now()
	s, err := pebblestore.Open(dir, pebblestore.Options{})
	if err != nil {
		return 0, err
	}
	return time.Since(began), s.Close()
}
