package benchtest

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// What growth needs is many finished writes. To make each through the rules would
// take two syncs of its own; these are put a hundred to a step, with the kinds,
// sizes and ends of values that the rules leave behind, which one pair is watched for.

// tap keeps the last step that was applied.
type tap struct {
	ledger.Store
	mu   sync.Mutex
	last ledger.Step
}

func (s *tap) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	s.mu.Lock()
	s.last = step
	s.mu.Unlock()
	return s.Store.Apply(ctx, scope, step)
}

// remains is what one finished write leaves.
type remains struct {
	puts []ledger.Put // of its settle
	rows [][]byte
	at   time.Time // of the claim
}

func (w *writes) remains(ctx context.Context) (r remains, err error) {
	t := &tap{Store: w.store}
	over := *w
	over.store, over.claims = t, w.rules(t)
	x, err := over.claim(ctx)
	if err != nil {
		return r, err
	}
	r.at, r.rows = t.last.At, t.last.Rows
	if err := over.settle(ctx, x); err != nil {
		return r, err
	}
	r.puts, r.rows = t.last.Put, append(r.rows, t.last.Rows...)
	return r, nil
}

// stock puts so many finished writes, evenly over the tenants. Their values end
// as the rules have it, or after a time of their own.
func (w *writes) stock(ctx context.Context, count int, rows bool, ends time.Duration) error {
	const each = 100
	like, err := w.remains(ctx)
	if err != nil {
		return fmt.Errorf("watch one write: %w", err)
	}
	var next atomic.Int64
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for n := next.Add(1); (n-1)*each < int64(count) && ctx.Err() == nil; n = next.Add(1) {
				t := &w.tenants[int(n)%len(w.tenants)]
				if err := w.put(ctx, t, like, min(each, count-int(n-1)*each), rows, ends); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// put repeats a step that came too late for its own time, as on a busy machine.
func (w *writes) put(ctx context.Context, t *tenant, like remains, count int, rows bool, ends time.Duration) error {
	for range 100 {
		res, err := w.store.Apply(ctx, t.scope, like.step(w.store.Now(), count, rows, ends))
		if err != nil || res.Applied {
			return err
		}
	}
	return errors.New("put finished writes: not applied")
}

// step puts what so many writes left behind, under names of their own.
func (r remains) step(now time.Time, count int, rows bool, ends time.Duration) ledger.Step {
	step := ledger.Step{Nonce: ledger.NewNonce(), At: now}
	for range count {
		id := make([]byte, 16)
		_, _ = crand.Read(id[6:])
		ms := now.UnixMilli()
		for i := range 6 {
			id[i] = byte(ms >> (40 - 8*i))
		}
		for _, p := range r.puts {
			if p.Key.Kind != ledger.Twins {
				step.Put = append(step.Put, r.anew(p, string(id), now, ends))
			}
		}
		step.Index = append(step.Index, ledger.Entry{Index: ledger.ByCreated, Score: now, Member: string(id)})
		if rows {
			step.Rows = append(step.Rows, r.rows...)
		}
	}
	return step
}

func (r remains) anew(p ledger.Put, id string, now time.Time, ends time.Duration) ledger.Put {
	like := p.Data
	p.Data = noise(len(like))
	if p.Key.Kind == ledger.Action { // names in it compress, as those of others do
		copy(p.Data[len(like)/2:], like[len(like)/2:])
	}
	if p.Key.ID = id; p.Key.Kind == ledger.Binding {
		p.Key.ID = string(noise(32))
	}
	p.Expires = now.Add(p.Expires.Sub(r.at))
	if ends > 0 {
		p.Expires = now.Add(ends)
	}
	return p
}
