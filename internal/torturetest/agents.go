package torturetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// note is what an agent knows of one call: what it asked and what it heard.
type note struct {
	op        string
	other     bool // its own key with another payload: must be refused
	status    int  // 0: no answer
	code      string
	replayed  bool
	requestID string
	actionID  string
	result    string
	began     time.Time
	ended     time.Time
}

// op is one write that somebody wants done once.
type op struct {
	name  string
	class string
	key   string // the agents' own, or ""
}

func (o op) body(name string) []byte {
	b := map[string]any{"connection": o.class, "action": "buy", "body": map[string]string{"op": name}}
	if o.key != "" {
		b["idempotency_key"] = o.key
	}
	raw, _ := json.Marshal(b)
	return raw
}

// makeOps draws the writes of a run.
func makeOps(r *rand.Rand, n int) []op {
	ops := make([]op, n)
	for i := range ops {
		o := op{name: fmt.Sprintf("op-%d", i), class: classes()[r.IntN(3)]}
		if r.IntN(3) == 0 {
			o.key = "key-" + o.name
		}
		ops[i] = o
	}
	return ops
}

// crowd is the agents of one tenant.
type crowd struct {
	gateways []*gateway
	key      string
	client   *http.Client

	mu    sync.Mutex
	notes []note
}

// play makes calls calls: each op several times, some at once and some later, by
// agents that repeat what looks worth repeating.
func (c *crowd) play(ctx context.Context, seed uint64, ops []op, calls, agents int) {
	var running sync.WaitGroup
	for agent := range agents {
		running.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(agent)))
			for range calls / agents {
				if ctx.Err() != nil {
					return
				}
				// Agents stay close together in the list, so that they often meet.
				here := c.count() * len(ops) / calls
				o := ops[min(len(ops)-1, max(0, here-r.IntN(len(ops)/10+1)))]
				c.write(ctx, r, o)
			}
		})
	}
	running.Wait()
}

// count is how many calls were made.
func (c *crowd) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.notes)
}

// write does what an SDK does: up to three tries, again after 408, 409, 429, any
// 5xx, or no answer at all. It knows nothing of what the gateway advises.
func (c *crowd) write(ctx context.Context, r *rand.Rand, o op) {
	for range 3 {
		n := c.call(ctx, r, o, o.name)
		again := n.status == 0 || n.status == 408 || n.status == 409 || n.status == 429 || n.status >= 500
		if n.status == 200 && o.key != "" && r.IntN(20) == 0 {
			c.call(ctx, r, o, o.name+"-other")
		}
		if !again {
			return
		}
		wait(ctx.Done(), time.Duration(20+r.IntN(200))*time.Millisecond)
	}
	// It gives up and does something else; else an outage would eat the run's calls.
	wait(ctx.Done(), time.Duration(200+r.IntN(800))*time.Millisecond)
}

func (c *crowd) call(ctx context.Context, r *rand.Rand, o op, name string) note {
	// Some callers give up early, as agents do.
	patience := 5 * time.Second
	if r.IntN(15) == 0 {
		patience = time.Duration(1+r.IntN(400)) * time.Millisecond
	}
	began := time.Now()
	n := ask(ctx, c.client, c.gateways[r.IntN(len(c.gateways))].base(), c.key, o.body(name), patience)
	n.op, n.other, n.began, n.ended = o.name, name != o.name, began, time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.notes = append(c.notes, n)
	return n
}

// ask makes one call of do. No answer, or half of one, is status 0.
func ask(ctx context.Context, client *http.Client, base, key string, body []byte, patience time.Duration) (n note) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/v1/do", bytes.NewReader(body))
	if err != nil {
		return note{}
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return note{}
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return note{}
	}
	var in struct {
		ID        string          `json:"id"`
		ActionID  string          `json:"action_id"`
		Code      string          `json:"code"`
		Replayed  bool            `json:"replayed"`
		RequestID string          `json:"request_id"`
		Result    json.RawMessage `json:"result"`
	}
	if json.Unmarshal(raw, &in) != nil {
		return note{}
	}
	return note{
		status: resp.StatusCode, code: in.Code, replayed: in.Replayed, requestID: in.RequestID,
		actionID: in.ID + in.ActionID, result: string(in.Result),
	}
}
