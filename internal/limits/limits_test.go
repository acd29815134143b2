package limits_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"holdfast.dev/gateway/internal/limits"
	"holdfast.dev/gateway/internal/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that a test sets.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func noon() *clock { return &clock{now: time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)} }

func tenant(name string) tenants.Principal { return tenants.Principal{Tenant: name, TenantID: name} }

func TestRequestsPerSecond(t *testing.T) {
	c := noon()
	l := limits.New(limits.Policy{RequestsPerSecond: 4}, c.Now, c.Now)
	a, b := tenant("a"), tenant("b")
	for range 4 {
		require.Nil(t, l.Request(a))
	}
	require.Equal(t, &limits.Exceeded{Limit: limits.Requests, Wait: 250 * time.Millisecond}, l.Request(a))
	require.Nil(t, l.Request(b), "nobody pays for another")
	c.now = c.now.Add(250 * time.Millisecond)
	require.Nil(t, l.Request(a))
	require.NotNil(t, l.Request(a))
	c.now = c.now.Add(time.Hour)
	for range 4 {
		require.Nil(t, l.Request(a))
	}
	require.NotNil(t, l.Request(a), "an hour's rest saves up no more than a second's worth")
}

// A store whose clock was far ahead for a moment says nothing of what a tenant has
// used: rates are counted on the replica's own clock. Only days are the store's.
func TestTheStoresClockDecidesDaysOnly(t *testing.T) {
	own, store := noon(), noon()
	l := limits.New(limits.Policy{RequestsPerSecond: 1, WritesPerSecond: 1, NewWrites: 2}, own.Now, store.Now)
	a := tenant("a")
	use := func() *limits.Exceeded {
		own.now = own.now.Add(time.Second)
		if over := l.Request(a); over != nil {
			return over
		}
		permit, over := l.Write(a)
		permit.Done()
		return over
	}
	require.Nil(t, use())
	right := store.now
	store.now = right.Add(40 * time.Hour)
	require.Nil(t, use())
	permit, over := func() (*limits.Permit, *limits.Exceeded) { own.now = own.now.Add(time.Second); return l.Write(a) }()
	require.Nil(t, over)
	permit.Claimed(store.now, 1) // of the day after tomorrow
	permit.Done()
	store.now = right
	require.Nil(t, use(), "not for as long as the clock was ahead")

	own.now = own.now.Add(time.Second)
	permit, over = l.Write(a)
	require.Nil(t, over)
	permit.Claimed(store.now, 2)
	permit.Done()
	require.Equal(t, &limits.Exceeded{Limit: limits.NewWrites, Wait: 12 * time.Hour}, use(), "the day is today again")
}

func TestATenantsOwnLimitsCount(t *testing.T) {
	c := noon()
	l := limits.New(limits.Policy{RequestsPerSecond: 1, WritesPerSecond: 1, MaxBody: 100}, c.Now, c.Now)
	a := tenant("a")
	a.Limits = tenants.Limits{RequestsPerSecond: 2, WritesPerSecond: 3, MaxBody: 50}
	require.Nil(t, l.Request(a))
	require.Nil(t, l.Request(a))
	require.NotNil(t, l.Request(a))
	for range 3 {
		_, over := l.Write(a)
		require.Nil(t, over)
	}
	_, over := l.Write(a)
	require.Equal(t, limits.Writes, over.Limit)
	require.EqualValues(t, 50, l.MaxBody(a))
	a.Limits.MaxBody = 1 << 20
	require.EqualValues(t, 100, l.MaxBody(a), "none is above the gateway's own")
}

func TestAReplayIsNotCharged(t *testing.T) {
	c := noon()
	l := limits.New(limits.Policy{WritesPerSecond: 2, ConcurrentCalls: 1}, c.Now, c.Now)
	a := tenant("a")
	for range 100 {
		p, over := l.Write(a)
		require.Nil(t, over)
		p.Cancel()
		p.Cancel() // counts once
		p.Done()
	}
	first, over := l.Write(a)
	require.Nil(t, over)
	_, over = l.Write(a)
	require.Equal(t, &limits.Exceeded{Limit: limits.Calls, Wait: time.Second}, over)
	first.Done()
	_, over = l.Write(a)
	require.Nil(t, over)
	_, over = l.Write(a)
	require.NotNil(t, over)
}

func TestNewWritesOfADay(t *testing.T) {
	c := noon()
	l := limits.New(limits.Policy{NewWrites: 10}, c.Now, c.Now)
	a := tenant("a")
	p, over := l.Write(a)
	require.Nil(t, over)
	p.Claimed(c.now, 9) // another replica made eight
	p.Done()
	p, over = l.Write(a)
	require.Nil(t, over)
	p.Claimed(c.now, 10)
	p.Claimed(c.now, 7) // an earlier claim's word comes late
	p.Done()
	_, over = l.Write(a)
	require.Equal(t, &limits.Exceeded{Limit: limits.NewWrites, Wait: 12 * time.Hour}, over)
	c.now = c.now.Add(12 * time.Hour)
	_, over = l.Write(a)
	require.Nil(t, over, "a new day")
}

// TestACallThatIsNoWriteTakesAPlaceOnly: it is neither of a second's nor of a
// day's writes.
func TestACallThatIsNoWriteTakesAPlaceOnly(t *testing.T) {
	c := noon()
	l := limits.New(limits.Policy{WritesPerSecond: 1, ConcurrentCalls: 2, NewWrites: 1}, c.Now, c.Now)
	a := tenant("a")
	p, over := l.Write(a)
	require.Nil(t, over)
	p.Claimed(c.now, 1)
	call, over := l.Call(a)
	require.Nil(t, over)
	_, over = l.Call(a)
	require.Equal(t, &limits.Exceeded{Limit: limits.Calls, Wait: time.Second}, over)
	_, over = l.Call(tenant("b"))
	require.Nil(t, over)
	call.Done()
	call.Done()
	_, over = l.Call(a)
	require.Nil(t, over)
	_, over = l.Call(a)
	require.NotNil(t, over, "a place is given back once")
}

func TestTallyIsTheDays(t *testing.T) {
	at := time.Date(2026, 3, 4, 23, 59, 59, 0, time.UTC)
	one, two := limits.Tally(at), limits.Tally(at.Add(time.Second))
	require.NotEqual(t, one.Key, two.Key)
	require.Equal(t, one.Key, limits.Tally(at.Add(-23*time.Hour)).Key)
	require.True(t, one.Expires.After(at))
	require.EqualValues(t, 1, one.Delta)
}

func TestHeaders(t *testing.T) {
	c := noon()
	l := limits.New(limits.Policy{RequestsPerSecond: 10, WritesPerSecond: 5, ConcurrentCalls: 3, NewWrites: 100}, c.Now, c.Now)
	a := tenant("a")
	require.Nil(t, l.Request(a))
	p, _ := l.Write(a)
	p.Claimed(c.now, 40)
	policy, left := l.Headers(a)
	require.Equal(t, `"requests";q=10;w=1, "writes";q=5;w=1, "new-identities";q=100;w=86400, "concurrent-calls";q=3;qu="concurrent-requests"`, policy)
	require.Equal(t, `"requests";r=9;t=1, "writes";r=4;t=1, "new-identities";r=60;t=43200, "concurrent-calls";r=2;t=1`, left)
	for range 20 {
		l.Request(a)
	}
	_, left = l.Headers(a)
	require.Contains(t, left, `"requests";r=0;t=1`)
	policy, left = limits.New(limits.Policy{}, c.Now, c.Now).Headers(a)
	require.Empty(t, policy+left)
	policy, _ = l.Headers(tenants.Principal{Platform: true})
	require.Empty(t, policy)
}

func TestNilLimitsNothing(t *testing.T) {
	var l *limits.Limiter
	require.Nil(t, l.Request(tenant("a")))
	p, over := l.Write(tenant("a"))
	require.Nil(t, over)
	p.Claimed(time.Now(), 1)
	p.Cancel()
	p.Done()
	require.Zero(t, l.MaxBody(tenant("a")))
	var a *limits.Addresses
	_, ok := a.Take("192.0.2.1")
	require.True(t, ok)
	a.Back("192.0.2.1")
}

// A flood that is refused leaves a row a second, which says how many it stands
// for.
func TestRefusalsAreNotedNowAndThen(t *testing.T) {
	c := noon()
	l := limits.New(limits.Policy{}, c.Now, c.Now)
	a := tenant("a")
	n, write := l.Note(a, limits.Writes)
	require.True(t, write)
	require.Zero(t, n)
	for range 41 {
		_, write = l.Note(a, limits.Writes)
		require.False(t, write)
	}
	_, write = l.Note(a, limits.Requests)
	require.True(t, write, "each limit by itself")
	c.now = c.now.Add(time.Second)
	n, write = l.Note(a, limits.Writes)
	require.True(t, write)
	require.EqualValues(t, 41, n)
}

func TestAddresses(t *testing.T) {
	c := noon()
	a := limits.NewAddresses(3, c.Now)
	for range 3 {
		_, ok := a.Take("192.0.2.1")
		require.True(t, ok)
	}
	wait, ok := a.Take("192.0.2.1")
	require.False(t, ok)
	require.InDelta(t, time.Second/3, wait, float64(time.Millisecond))
	_, ok = a.Take("::ffff:192.0.2.1")
	require.False(t, ok, "the same address")
	_, ok = a.Take("192.0.2.2")
	require.True(t, ok)

	for i := range 3 {
		_, ok = a.Take(fmt.Sprintf("2001:db8::%d", i))
		require.True(t, ok)
	}
	_, ok = a.Take("2001:db8::ffff:1")
	require.False(t, ok, "who has one IPv6 address has a /64 of them")
	_, ok = a.Take("2001:db8:0:1::1")
	require.True(t, ok)

	// A good key costs nothing.
	for range 100 {
		_, ok = a.Take("192.0.2.3")
		require.True(t, ok)
		a.Back("192.0.2.3")
	}
	_, ok = a.Take("nonsense")
	require.True(t, ok)
	require.Nil(t, limits.NewAddresses(0, c.Now))
}

func TestAddressesAreBounded(t *testing.T) {
	c := noon()
	a := limits.NewAddresses(1, c.Now)
	for i := range 1<<16 + 10 {
		_, ok := a.Take(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
		require.True(t, ok)
	}
	require.LessOrEqual(t, limits.Remembered(a), 1<<16)
}

func TestLimiterIsSafeForConcurrentUse(t *testing.T) {
	l := limits.New(limits.Policy{RequestsPerSecond: 1000, WritesPerSecond: 1000, ConcurrentCalls: 10, NewWrites: 1000}, time.Now, time.Now)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 200 {
				who := tenant(fmt.Sprint(i % 2))
				l.Request(who)
				if p, over := l.Write(who); over == nil {
					p.Claimed(time.Now(), 1)
					p.Done()
				}
				l.Headers(who)
				l.Note(who, limits.Writes)
			}
		})
	}
	all.Wait()
	_, left := l.Headers(tenant("0"))
	require.Contains(t, left, `"concurrent-calls";r=10`, "every place was given back")
}
