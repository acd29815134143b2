package limits

import "time"

// rate is so many per second, and as many at once.
type rate int64

// every is the time one token takes to come back, at least the clock's grain.
func (r rate) every() time.Duration { return max(time.Second/time.Duration(r), 1) }

// bucket is a token bucket in the form of the generic cell rate algorithm: it
// holds the moment at which it will be full again, and nothing that has to be
// filled up by a clock. The zero bucket is full.
type bucket struct{ full time.Time }

// take takes one token or says how long until there is one.
func (b *bucket) take(r rate, now time.Time) (wait time.Duration, ok bool) {
	full := b.full
	if full.Before(now) {
		full = now
	}
	full = full.Add(r.every())
	if over := full.Sub(now) - time.Duration(r)*r.every(); over > 0 {
		return over, false
	}
	b.full = full
	return 0, true
}

// back returns a token.
func (b *bucket) back(r rate) { b.full = b.full.Add(-r.every()) }

// left is how many tokens there are.
func (b *bucket) left(r rate, now time.Time) int64 {
	missing := max(b.full.Sub(now), 0)
	return int64(r) - int64((missing+r.every()-1)/r.every())
}
