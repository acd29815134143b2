package limits

import (
	"net/netip"
	"sync"
	"time"
)

// Addresses bounds how often an address may ask without a good key. It is safe
// for concurrent use. A nil Addresses bounds nothing.
type Addresses struct {
	rate rate
	now  func() time.Time

	mu      sync.Mutex
	buckets map[netip.Prefix]bucket
}

// maxAddresses bounds the memory. Past it addresses that have their whole quota
// are forgotten, and if there are none, any.
const maxAddresses = 1 << 16

// NewAddresses allows so many requests per second, and as many at once; 0 means
// nil, no bound.
func NewAddresses(perSecond int64, now func() time.Time) *Addresses {
	if perSecond <= 0 {
		return nil
	}
	return &Addresses{rate: rate(perSecond), now: now, buckets: map[netip.Prefix]bucket{}}
}

// place is what is counted as one: an IPv4 address, or the /64 that one IPv6
// subscriber has at least (RFC 6177 section 2). What cannot be read is one place.
func place(addr string) netip.Prefix {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.Prefix{}
	}
	a = a.Unmap().WithZone("")
	bits := 32
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}

// Take counts a request before anything is done for it; otherwise it says how
// long to wait. Back is called when the request turns out to have a good key.
func (a *Addresses) Take(addr string) (wait time.Duration, ok bool) {
	if a == nil {
		return 0, true
	}
	at := place(addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	b, known := a.buckets[at]
	if !known && len(a.buckets) >= maxAddresses {
		a.makeRoom(now)
	}
	wait, ok = b.take(a.rate, now)
	a.buckets[at] = b
	return wait, ok
}

// Back returns what Take took.
func (a *Addresses) Back(addr string) {
	if a == nil {
		return
	}
	at := place(addr)
	a.mu.Lock()
	defer a.mu.Unlock()
	if b, known := a.buckets[at]; known {
		b.back(a.rate)
		if !b.full.After(a.now()) {
			delete(a.buckets, at)
			return
		}
		a.buckets[at] = b
	}
}

func (a *Addresses) makeRoom(now time.Time) {
	for at, b := range a.buckets {
		if !b.full.After(now) {
			delete(a.buckets, at)
		}
	}
	for at := range a.buckets {
		if len(a.buckets) < maxAddresses {
			return
		}
		delete(a.buckets, at)
	}
}
