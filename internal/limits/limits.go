// Package limits owns how much a tenant may use, and how often an address may
// ask without a good key.
//
// It leaves to its neighbours what is counted when (actions asks before a claim,
// the api before everything else) and how a refusal is worded.
//
// # What is kept where
//
// Requests and writes per second and calls at once are bounded by each replica
// for itself: what they protect is a replica's processor, memory and sockets, and
// a count that all replicas share would cost every call a round trip. A tenant
// whose requests are spread over n replicas may therefore use n times as much.
//
// New writes in a day are counted in the store, by a counter that the claim's own
// step adds to: what that protects is the store, which all replicas fill. A
// replica knows the count as of its own last claim, so the limit may be passed by
// as many writes as were being claimed at that moment.
package limits

import (
	"strconv"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// Policy is how much a tenant may use; 0 stands for no limit.
type Policy struct {
	RequestsPerSecond int64 // of any kind, replays included
	WritesPerSecond   int64 // new ones; a replay is none
	ConcurrentCalls   int64 // to vendors at once
	NewWrites         int64 // in a day of UTC
	MaxBody           int64 // bytes of a request
}

// of is the policy of a tenant: the gateway's, as far as the tenant has no
// limits of its own.
func (p Policy) of(own tenants.Limits) Policy {
	for _, limit := range []struct {
		to  *int64
		own int64
	}{
		{&p.RequestsPerSecond, own.RequestsPerSecond}, {&p.WritesPerSecond, own.WritesPerSecond},
		{&p.ConcurrentCalls, own.ConcurrentCalls}, {&p.NewWrites, own.NewIdentities},
	} {
		if limit.own > 0 {
			*limit.to = limit.own
		}
	}
	// The gateway's own bound on a body protects its memory: no tenant is above it.
	if own.MaxBody > 0 && (p.MaxBody == 0 || own.MaxBody < p.MaxBody) {
		p.MaxBody = own.MaxBody
	}
	return p
}

// The names of the limits, as headers, rows and metrics have them.
const (
	Requests  = "requests"
	Writes    = "writes"
	Calls     = "concurrent-calls"
	NewWrites = "new-identities"
	AtOnce    = "requests-at-once" // worked on; see Turns
)

// Exceeded says which limit refused a caller, and when to come back.
type Exceeded struct {
	Limit string
	Wait  time.Duration
}

// Limiter keeps what tenants have used. It is safe for concurrent use. A nil
// Limiter limits nothing.
type Limiter struct {
	policy Policy
	now    func() time.Time // this process's own, for what takes seconds
	store  func() time.Time // the store's, for days

	mu     sync.Mutex
	states map[string]*state // by incarnation of the tenant
}

// state is what one tenant has used.
type state struct {
	requests, writes bucket
	running          int64
	day              int64 // of count
	count            int64 // new writes of that day, as of the last claim here
	noted            map[string]*note
	seen             time.Time
}

// New returns a limiter on two clocks. Rates are counted on the replica's own, which
// must not go back, as a monotonic one does not: on the store's, which is set by others, a
// clock that was ahead for a moment would refuse everybody for as long as it was
// ahead. A day is the store's: it begins for all replicas at once.
func New(p Policy, now, store func() time.Time) *Limiter {
	return &Limiter{policy: p, now: now, store: store, states: map[string]*state{}}
}

const (
	// maxStates bounds the memory of tenants that come and go.
	maxStates = 1 << 16
	// forgetAfter is when a tenant that asks for nothing is forgotten. By then its
	// buckets are full.
	forgetAfter = time.Minute
)

// of returns a tenant's state and policy. The caller holds mu.
func (l *Limiter) of(p tenants.Principal) (*state, Policy) {
	s, known := l.states[p.TenantID]
	if !known {
		if len(l.states) >= maxStates {
			l.forget()
		}
		s = &state{noted: map[string]*note{}}
		l.states[p.TenantID] = s
	}
	s.seen = l.now()
	return s, l.policy.of(p.Limits)
}

func (l *Limiter) forget() {
	now := l.now()
	for id, s := range l.states {
		if s.running == 0 && now.Sub(s.seen) >= forgetAfter {
			delete(l.states, id)
		}
	}
}

// MaxBody is how many bytes a tenant's request may have; 0: no limit.
func (l *Limiter) MaxBody(p tenants.Principal) int64 {
	if l == nil {
		return 0
	}
	return l.policy.of(p.Limits).MaxBody
}

// Request counts a request of a tenant; nil: it may go on.
func (l *Limiter) Request(p tenants.Principal) *Exceeded {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, policy := l.of(p)
	if policy.RequestsPerSecond == 0 {
		return nil
	}
	if wait, ok := s.requests.take(rate(policy.RequestsPerSecond), s.seen); !ok {
		return &Exceeded{Limit: Requests, Wait: wait}
	}
	return nil
}

// Permit is a place for one new write, or for one other call. A nil Permit is one of a nil Limiter.
type Permit struct {
	l     *Limiter
	who   tenants.Principal
	ended bool
}

// Write takes what a new write needs, or says what there is not. The permit is
// to be given back with Cancel if no write comes of it; otherwise Claimed is
// told of the claim and Done of the end of its call.
func (l *Limiter) Write(p tenants.Principal) (*Permit, *Exceeded) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, policy := l.of(p)
	if today := l.store(); policy.NewWrites > 0 && s.day == dayOf(today) && s.count >= policy.NewWrites {
		return nil, &Exceeded{Limit: NewWrites, Wait: dayEnd(today).Sub(today)}
	}
	if s.full(policy) {
		return nil, &Exceeded{Limit: Calls, Wait: callWait}
	}
	if policy.WritesPerSecond > 0 {
		if wait, ok := s.writes.take(rate(policy.WritesPerSecond), s.seen); !ok {
			return nil, &Exceeded{Limit: Writes, Wait: wait}
		}
	}
	s.running++
	return &Permit{l: l, who: p}, nil
}

// Call takes a place among the running calls of a tenant for what is no new
// write, or says that there is none. The permit is to be given back with Done.
func (l *Limiter) Call(p tenants.Principal) (*Permit, *Exceeded) {
	if l == nil {
		return nil, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, policy := l.of(p)
	if s.full(policy) {
		return nil, &Exceeded{Limit: Calls, Wait: callWait}
	}
	s.running++
	return &Permit{l: l, who: p}, nil
}

// callWait is when to come back for a place among the running calls: nobody knows
// when a vendor will have answered.
const callWait = time.Second

func (s *state) full(policy Policy) bool {
	return policy.ConcurrentCalls > 0 && s.running >= policy.ConcurrentCalls
}

// Cancel gives everything back: what was asked for was no new write.
func (p *Permit) Cancel() {
	p.end(func(s *state, policy Policy) {
		if policy.WritesPerSecond > 0 {
			s.writes.back(rate(policy.WritesPerSecond))
		}
	})
}

// Done gives the place among the running calls back.
func (p *Permit) Done() { p.end(func(*state, Policy) {}) }

func (p *Permit) end(also func(*state, Policy)) {
	if p == nil {
		return
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	if p.ended {
		return
	}
	p.ended = true
	s, policy := p.l.of(p.who)
	s.running--
	also(s, policy)
}

// Claimed is told what the store's counter of the day came to with the write, at
// the store's time of the claim.
func (p *Permit) Claimed(at time.Time, count int64) {
	if p == nil {
		return
	}
	p.l.mu.Lock()
	defer p.l.mu.Unlock()
	s, _ := p.l.of(p.who)
	// Another day is the present one, also where it is an earlier one: then the
	// store's clock was set back.
	if day := dayOf(at); day != s.day || count > s.count {
		s.day, s.count = day, count
	}
}

const day = 24 * time.Hour

func dayOf(t time.Time) int64 { return t.Unix() / int64(day/time.Second) }

func dayEnd(t time.Time) time.Time { return t.UTC().Truncate(day).Add(day) }

// Tally is the counter that the step of a claim adds to, at the store's time.
func Tally(at time.Time) ledger.Add {
	return ledger.Add{
		Key:   ledger.Key{Kind: ledger.Meta, ID: "new-writes/" + strconv.FormatInt(dayOf(at), 10)},
		Delta: 1, Expires: dayEnd(at).Add(time.Hour),
	}
}

// note is when a refusal was last written down, and how many were not since.
type note struct {
	at         time.Time
	suppressed int64
}

// noteEvery bounds how many audit rows refusals of one tenant by one limit make:
// a flood that is refused must not fill the store with rows about that.
const noteEvery = time.Second

// Note says whether a refusal is to be written down, and how many before it were
// not.
func (l *Limiter) Note(p tenants.Principal, limit string) (suppressed int64, write bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, _ := l.of(p)
	n := s.noted[limit]
	if n == nil {
		n = &note{}
		s.noted[limit] = n
	}
	if s.seen.Sub(n.at) < noteEvery {
		n.suppressed++
		return 0, false
	}
	suppressed = n.suppressed
	n.at, n.suppressed = s.seen, 0
	return suppressed, true
}
