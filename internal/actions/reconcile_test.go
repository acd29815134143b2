package actions_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/actions"
	"holdfast.dev/gateway/internal/connections"
	"holdfast.dev/gateway/internal/connectors"
	"holdfast.dev/gateway/internal/dedupe"
	"holdfast.dev/gateway/internal/wire"
)

// lost leaves n writes of a connection in doubt.
func (f *fixture) lost(connection string, n int) []dedupe.ActionID {
	f.Helper()
	f.vendor.says(wire.Exchange{Phase: wire.SentNoAnswer, Reason: wire.ReasonCut})
	var ids []dedupe.ActionID
	for i := range n {
		e := f.fails(actions.OutcomeUnknown, fmt.Sprintf(`{"n":%d}`, i), func(r *actions.Request) { r.Connection = connection })
		ids = append(ids, e.Record.ID)
	}
	return ids
}

func (f *fixture) allSettled(ids []dedupe.ActionID) bool {
	for _, id := range ids {
		if f.get(id).State != dedupe.Succeeded {
			return false
		}
	}
	return true
}

// accountsAtVendor gives the fixture connections besides its own, each with an
// address by which its look-ups are told apart.
func (f *fixture) accountsAtVendor(names ...string) {
	f.accounts.more = map[string]connections.Connection{}
	for _, name := range names {
		f.accounts.more[name] = connections.Connection{
			ID: "con_" + name, Name: name, Connector: "fake@1", BaseURL: "https://" + name + ".vendor.example",
		}
	}
	rule := lookupRule(connectors.StillUnknown)
	f.checks(rule)
	f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1})
	f.fake.SpecValue.BaseURL.Allow = []string{"https://*.vendor.example"}
	f.fake.CheckFunc = func(_ context.Context, op connectors.Op) ([]connectors.CheckStep, error) {
		return []connectors.CheckStep{{CheckRule: rule, Request: connectors.Request{Method: "GET", URL: op.BaseURL + "/things"}}}, nil
	}
}

// TestTheReconcilerLetsAVendorRest: an open breaker puts every check of its
// connection off by about its rest; nothing is sent and no row is written. They
// are made afterwards.
func TestTheReconcilerLetsAVendorRest(t *testing.T) {
	const rest = time.Hour // by the real clock: nothing but Rested ends it here
	f := newFixture(t, brisk, func(_ *fixture, _ *dedupe.Config, c *actions.Config) { c.BreakerRest = rest })
	f.checks(lookupRule(connectors.StillUnknown))
	f.finds(connectors.Found{Kind: connectors.FoundOne, Matches: 1})
	ids := f.lost("billing", 8)
	f.vendor.says(answered(200, "", `[]`))
	rows := len(f.rows())
	f.advance(settle + time.Second)
	due := f.claims.Now()
	f.reconciles()
	f.eventually("all are put off", func() bool {
		for _, id := range ids {
			if !f.get(id).NextCheck.After(due) {
				return false
			}
		}
		return true
	})
	for _, id := range ids {
		rec := f.get(id)
		require.WithinRange(t, rec.NextCheck, due.Add(rest*3/4), due.Add(rest*5/4))
		require.Zero(t, rec.Checks)
	}
	require.Equal(t, 8, f.vendor.calls(), "the writes alone")
	require.Len(t, f.rows(), rows)
	f.svc.Rested()
	f.advance(rest * 5 / 4)
	f.eventually("all are settled", func() bool { return f.allSettled(ids) })
	require.Equal(t, 16, f.vendor.calls())
}

// TestAPauseIsOfOneConnection: the gateway looks at nothing there, and goes on
// everywhere else; it takes up what it has put off once the pause is over.
func TestAPauseIsOfOneConnection(t *testing.T) {
	f := newFixture(t, brisk)
	f.accountsAtVendor("one", "two")
	one, two := f.lost("one", 2), f.lost("two", 2)
	pause := func(paused bool) {
		f.accounts.mu.Lock()
		defer f.accounts.mu.Unlock()
		conn := f.accounts.more["one"]
		conn.Paused = paused
		f.accounts.more["one"] = conn
	}
	pause(true)
	f.vendor.says(answered(200, "", `[]`))
	f.advance(settle + time.Second)
	due := f.claims.Now()
	f.reconciles()
	f.eventually("one is put off", func() bool { return f.get(one[0]).NextCheck.After(due) && f.get(one[1]).NextCheck.After(due) })
	f.eventually("two is settled", func() bool { return f.allSettled(two) })
	require.Equal(t, 4+2, f.vendor.calls())
	pause(false)
	f.advance(time.Minute * 2)
	f.eventually("one is settled", func() bool { return f.allSettled(one) })
	require.Equal(t, 4+4, f.vendor.calls())
}

// A connector whose vendor is in trouble can be left alone, on every connection.
func TestAPauseOfAConnector(t *testing.T) {
	f := newFixture(t, brisk, func(_ *fixture, _ *dedupe.Config, c *actions.Config) { c.UncheckedConnectors = []string{"fake"} })
	f.accountsAtVendor("one", "two")
	held := append(f.lost("one", 1), f.lost("two", 1)...)
	f.advance(settle + time.Second)
	due := f.claims.Now()
	f.reconciles()
	f.eventually("both are put off", func() bool { return f.get(held[0]).NextCheck.After(due) && f.get(held[1]).NextCheck.After(due) })
	require.Equal(t, 2, f.vendor.calls(), "nobody looked")
}

// crowd counts the look-ups under way, by the address they go to.
type crowd struct {
	gate chan struct{} // each is answered for one that is taken out of here
	came chan struct{}

	mu        sync.Mutex
	now, most map[string]int
	all, peak int
}

func newCrowd() *crowd {
	return &crowd{gate: make(chan struct{}), came: make(chan struct{}, 100), now: map[string]int{}, most: map[string]int{}}
}

func (c *crowd) answer(_ context.Context, req wire.Request) wire.Exchange {
	c.add(req.URL, 1)
	c.came <- struct{}{}
	<-c.gate
	c.add(req.URL, -1)
	return answered(200, "", `[]`)
}

func (c *crowd) add(url string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[url] += n
	c.all += n
	c.most[url], c.peak = max(c.most[url], c.now[url]), max(c.peak, c.all)
}

// TestTheReconcilerLooksOnceAtATimePerConnection: and at several connections at
// once, though at no more than sixteen.
func TestTheReconcilerLooksOnceAtATimePerConnection(t *testing.T) {
	for connected, atOnce := range map[int]int{2: 2, 20: 16} {
		t.Run(fmt.Sprint(connected), func(t *testing.T) {
			f := newFixture(t, brisk)
			var names []string
			for i := range connected {
				names = append(names, fmt.Sprintf("c%d", i))
			}
			f.accountsAtVendor(names...)
			var ids []dedupe.ActionID
			for _, name := range names {
				ids = append(ids, f.lost(name, 3)...)
			}
			c := newCrowd()
			f.vendor.answer = c.answer
			f.advance(settle + time.Second)
			var passes atomic.Int64
			f.reconcilesFor(oneScope{read: &passes})
			t.Cleanup(func() { close(c.gate) }) // should the test fail, nothing waits
			for range atOnce {
				receive(t, c.came)
			}
			since := passes.Load()
			f.eventually("more passes found no room", func() bool { return passes.Load() > since+5 })
			for range ids {
				c.gate <- struct{}{}
			}
			f.eventually("all are settled", func() bool { return f.allSettled(ids) })
			c.mu.Lock()
			defer c.mu.Unlock()
			require.Equal(t, atOnce, c.peak)
			require.Len(t, c.most, connected)
			for url, n := range c.most {
				require.Equal(t, 1, n, url)
			}
		})
	}
}
