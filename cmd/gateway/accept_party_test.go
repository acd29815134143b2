package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/vendortest"
)

// gateways are the addresses of the replicas there are now.
type gateways struct {
	mu   sync.Mutex
	urls []string
	next atomic.Int64
}

func (g *gateways) set(i int, url string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.urls[i] = url
}

// any is one of them, another each time.
func (g *gateways) any() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.urls[int(g.next.Add(1))%len(g.urls)]
}

// tried is one call as its caller saw it.
type tried struct {
	label    string // in meta, so that rows can be found although no answer came
	n        int
	sure     bool // an answer came that says what was recorded
	reply    reply
	question string // do, resolve
}

// party is one tenant, its vendor, and what both of them saw.
type party struct {
	*agent
	ungranted *agent // a key of the tenant's that may do nothing here
	at        *gateways

	mu    sync.Mutex
	calls []tried
	// Of each write, by the number in its body, what the vendor saw and did.
	arrived, performed, refused map[int]int

	labels, answers *atomic.Int64 // of the whole script: tries, and calls that were answered
}

// newParty makes a tenant with a connection to a vendor of its own.
func newParty(t *testing.T, at *gateways, labels, answers *atomic.Int64) *party {
	p := &party{agent: newAgent(t, at.any()), at: at, labels: labels, answers: answers,
		arrived: map[int]int{}, performed: map[int]int{}, refused: map[int]int{}}
	admin := &agent{t: t, base: p.base, key: testAdminKey}
	admin.must(200, "PATCH", "/v1/tenants/"+p.name, map[string]any{"limits": map[string]any{
		"requests_per_second": 100_000, "writes_per_second": 100_000, "new_identities": 1_000_000}})
	key := admin.must(201, "POST", "/v1/tenants/"+p.name+"/keys", map[string]any{
		"scopes": []string{"do"}, "grants": []any{map[string]any{"connection": "other", "actions": []string{"create"}}}})
	p.ungranted = &agent{t: t, base: p.base, key: key.text("key"), name: p.name}
	p.connect("c", "accept@1", vendortest.New(t, p.serve).URL())
	return p
}

// serve is the vendor: what it does with a write is in the write's body, and it
// counts what it does.
func (p *party) serve(c *vendortest.Call) {
	var body struct {
		N   int
		Pad string
	}
	_ = json.Unmarshal(c.ReadBody(), &body)
	p.mu.Lock()
	p.arrived[body.N]++
	first := p.arrived[body.N] == 1
	p.mu.Unlock()
	count := func(what map[int]int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		what[body.N]++
	}
	done := func() {
		count(p.performed)
		c.JSON(200, fmt.Sprintf(`{"n":%d}`, body.N))
	}
	switch {
	case body.Pad == "refuse":
		count(p.refused)
		c.JSON(422, `{"error":"no"}`)
	case body.Pad == "later" && first:
		c.JSON(429, `{"error":"later"}`, "Retry-After: 1")
	case body.Pad == "lost" && first: // done, and the answer lost
		count(p.performed)
		c.Close()
	case body.Pad == "cut" && first: // not done, and no answer either
		c.Close()
	case body.Pad == "slow":
		select {
		case <-time.After(200 * time.Millisecond): // as long as work takes
		case <-c.Done():
			return
		}
		done()
	default:
		done()
	}
}

func (p *party) seen(n int) (arrived, performed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.arrived[n], p.performed[n]
}

func (p *party) note(c tried) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, c)
}

// ask makes one call at one of the gateways, again and again until it is
// answered by one that could ask its store.
func (p *party) ask(who *agent, question string, n int, path string, body func(label string) string) reply {
	p.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); {
		label := fmt.Sprint("call-", p.labels.Add(1))
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		r, err := who.at(p.at.any()).send(ctx, http.MethodPost, path, body(label), nil)
		cancel()
		unsure := []string{"store_unavailable", "draining", "answer_not_saved", "internal", "not_sent"}
		sure := err == nil && (r.status < 400 || !slices.Contains(unsure, r.text("code")))
		p.note(tried{label: label, n: n, sure: sure, reply: r, question: question})
		if sure {
			p.answers.Add(1)
			return r
		}
		<-time.After(50 * time.Millisecond) // a gateway or the store is away, on purpose
	}
	require.FailNow(p.t, "no gateway answers")
	return reply{}
}

// do asks for write n. Pad says what the vendor does, key is the agent's own
// unless empty.
func (p *party) write(n int, pad, key string) reply {
	p.t.Helper()
	return p.ask(p.agent, "do", n, "/v1/do", func(label string) string {
		return writeBody("c", fmt.Sprintf(`{"n":%d,"pad":%q}`, n, pad), key, label)
	})
}

func writeBody(connection, body, key, label string) string {
	own := ""
	if key != "" {
		own = fmt.Sprintf(`"idempotency_key":%q,`, key)
	}
	return fmt.Sprintf(`{"connection":%q,"action":"create","body":%s,%s"meta":{"call":%q}}`, connection, body, own, label)
}

// settle asks for write n until it is settled. A doubt about it is settled by
// what the vendor knows, which is what a person would look up.
func (p *party) settle(n int, pad, key string) reply {
	p.t.Helper()
	for range 500 {
		r := p.write(n, pad, key)
		switch {
		case r.status == 409:
			<-time.After(50 * time.Millisecond) // as Retry-After says, only that tests are in a hurry
		case r.status == 423 || r.status == 429:
			if id := r.text("action_id"); r.status == 423 {
				p.resolve(n, id)
			}
		default:
			return r
		}
	}
	require.FailNow(p.t, "the write does not settle", "%d", n)
	return reply{}
}

// resolve settles a doubt, once it may be.
func (p *party) resolve(n int, id string) {
	p.t.Helper()
	for range 500 {
		_, performed := p.seen(n)
		outcome := `{"outcome":"not_performed","note":"looked"}`
		if performed > 0 {
			outcome = `{"outcome":"succeeded","result":{"looked":true},"note":"looked"}`
		}
		r := p.ask(p.agent, "resolve", n, "/v1/actions/"+id+"/resolve", func(string) string { return outcome })
		if r.status == 200 || r.text("code") == "not_held" {
			return
		}
		require.Equal(p.t, "still_possible", r.text("code"), "%s", r.raw)
		<-time.After(100 * time.Millisecond)
	}
	require.FailNow(p.t, "the write does not resolve", "%d", n)
}

// scenarios are the lives a write can have, each with its own number.
func (p *party) scenarios() []func(n int) {
	return []func(n int){
		p.repeated, p.refusedTwice, p.reusedKey, p.metWhileRunning, p.doubted, p.doubted, p.denied, p.releasedOnce, p.repeated,
	}
}

func (p *party) repeated(n int) {
	for range 4 {
		require.Equal(p.t, 200, p.settle(n, "ok", "").status)
	}
}

func (p *party) refusedTwice(n int) {
	for range 2 {
		require.Equal(p.t, "vendor_refused", p.settle(n, "refuse", "").text("code"))
	}
}

func (p *party) reusedKey(n int) {
	key := fmt.Sprint("own-", n)
	require.Equal(p.t, 200, p.settle(n, "ok", key).status)
	require.Equal(p.t, "key_reused", p.write(n, "other", key).text("code"))
	require.Equal(p.t, 200, p.settle(n, "ok", key).status)
}

func (p *party) metWhileRunning(n int) {
	var first sync.WaitGroup
	first.Go(func() { p.settle(n, "slow", "") })
	for range 100 {
		if arrived, _ := p.seen(n); arrived > 0 {
			break
		}
		<-time.After(5 * time.Millisecond)
	}
	require.Equal(p.t, 200, p.settle(n, "slow", "").status)
	first.Wait()
}

// doubted is a write whose answer is lost: of even ones the vendor had done it.
func (p *party) doubted(n int) {
	pad := "cut"
	if n%2 == 0 {
		pad = "lost"
	}
	key, other := fmt.Sprint("one-", n), fmt.Sprint("two-", n)
	if r := p.write(n, pad, key); r.status == 423 {
		p.write(n, pad, key)
		p.write(n, pad, other)
	}
	require.Equal(p.t, 200, p.settle(n, pad, key).status)
	require.Equal(p.t, 200, p.settle(n, pad, key).status)
}

func (p *party) denied(n int) {
	nowhere := func(label string) string { return writeBody("nowhere", "{}", "", label) }
	require.Equal(p.t, "unknown_connection", p.ask(p.agent, "do", n, "/v1/do", nowhere).text("code"))
	wrong := func(label string) string { return writeBody("c", `{"n":"no number"}`, "", label) }
	require.Equal(p.t, "invalid_body", p.ask(p.agent, "do", n, "/v1/do", wrong).text("code"))
	right := func(label string) string { return writeBody("c", fmt.Sprintf(`{"n":%d}`, n), "", label) }
	require.Equal(p.t, "forbidden", p.ask(p.ungranted, "do", n, "/v1/do", right).text("code"))
}

func (p *party) releasedOnce(n int) {
	r := p.write(n, "later", "")
	require.Contains(p.t, []int{429, 200, 409, 423}, r.status, strings.TrimSpace(string(r.raw)))
	require.Equal(p.t, 200, p.settle(n, "later", "").status)
}
