package dedupe

import (
	"context"
	"fmt"
	"sync"

	"holdfast.dev/gateway/internal/identity"
	"holdfast.dev/gateway/internal/ledger"
)

// Bounds of what is remembered of settled writes: in all, and of one answer. A
// record counts as a kilobyte, which is more than most take.
const (
	recentBytes  = 8 << 20
	recentAnswer = 4 << 10
	recordBytes  = 1 << 10
)

// recent remembers writes that were settled or replayed a moment ago, so that a
// replay need not be read first. Nothing is decided on it alone: the step of the
// replay expects the versions that are remembered.
type recent struct {
	mu    sync.Mutex
	known map[recentKey]settledView
	order []remembered // the oldest first; what was dropped stands there, too
	bytes int          // of order
}

// remembered is one put.
type remembered struct {
	key     recentKey
	version ledger.Version // of the record
	bytes   int
}

type recentKey struct {
	scope    ledger.Scope
	identity identity.Identity
}

// settledView is the part of a view that a replay is decided on. It is shared, and
// not to be changed.
type settledView struct {
	binding ledger.Version
	bound   stored
	answer  []byte
}

func (r *recent) get(k recentKey) (settledView, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.known[k]
	return v, ok
}

// put remembers a write, and forgets the oldest ones in its place.
func (r *recent) put(k recentKey, v settledView) {
	if len(v.answer) > recentAnswer {
		return
	}
	p := remembered{key: k, version: v.bound.version, bytes: recordBytes + len(v.answer)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = make(map[recentKey]settledView)
	}
	if old, has := r.known[k]; has && old.bound.version == p.version && old.binding == v.binding {
		return
	}
	r.known[k] = v
	r.order = append(r.order, p)
	for r.bytes += p.bytes; r.bytes > recentBytes; {
		oldest := r.order[0]
		r.order = r.order[1:]
		r.bytes -= oldest.bytes
		if r.known[oldest.key].bound.version == oldest.version {
			delete(r.known, oldest.key)
		}
	}
}

// drop forgets a write. What it took counts until its turn comes.
func (r *recent) drop(k recentKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, k)
}

// Replay answers for a write that is remembered as settled, in one step, and counts
// and records the replay like Claim. It is asked before Claim, and before a new
// write is prepared. False: nothing is known, or not any more, or this is no replay;
// then nothing was told or written, and Claim decides.
func (c *Claims) Replay(ctx context.Context, cl Claim) (Claimed, bool, error) {
	key := recentKey{cl.Scope, cl.Identity}
	known, ok := c.recent.get(key)
	if !ok || cl.DryRun {
		return Claimed{}, false, nil
	}
	v := view{now: milli(c.store.Now()), binding: known.binding, bound: &known.bound, answer: known.answer, guardHolds: true, basisHolds: true}
	if known.bound.over(v.now) || known.bound.Fingerprint != cl.Fingerprint || known.bound.State == Refused && cl.RetryRefused {
		return Claimed{}, false, nil
	}
	d, err := c.replay(&cl, v)
	if err != nil {
		return Claimed{}, false, nil //nolint:nilerr // Claim says what is unreadable
	}
	d.step.Fetch = nil // Claim reads what it needs
	res, err := c.store.Apply(ctx, cl.Scope, *d.step)
	if err != nil {
		return Claimed{}, false, fmt.Errorf("replay action: %w", err)
	}
	if !res.Applied {
		c.recent.drop(key)
		return Claimed{}, false, nil
	}
	if len(res.Counters) == 1 {
		d.claimed.Replays = res.Counters[0]
	}
	return d.claimed, true, nil
}
