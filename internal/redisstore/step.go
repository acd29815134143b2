package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"holdfast.dev/gateway/internal/ledger"
)

// nonceMargin is kept on top of the lives the contract demands, for the time
// between a server's check and a client's.
const nonceMargin = 2 * time.Second

// Apply applies a step; see [ledger.Step].
func (s *Store) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	res, err := s.apply(ctx, scope, step)
	if err != nil {
		return ledger.Result{}, fmt.Errorf("apply step: %w", err)
	}
	return res, nil
}

func (s *Store) apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	res, _, err := s.applied(ctx, scope, step)
	return res, err
}

// applied applies a step and waits for its acknowledgement. Fresh says that the
// time of the result is that of this very run, not of an earlier one.
func (s *Store) applied(ctx context.Context, scope ledger.Scope, step ledger.Step) (_ ledger.Result, fresh bool, err error) {
	if err := checkStep(step); err != nil {
		return ledger.Result{}, false, err
	}
	ctx, end, err := s.begin(ctx)
	if err != nil {
		return ledger.Result{}, false, err
	}
	defer end()
	ks := keysOf(scope)
	res, fresh, err := s.execute(ctx, ks, step)
	if err != nil || !res.Applied {
		return res, fresh, err
	}
	// A repeat has to be acknowledged as well: the first may not have been.
	if err := s.acknowledged(ctx, ks, step.Nonce); err != nil {
		return ledger.Result{}, false, err
	}
	return res, fresh, nil
}

// execute runs a step on its server, and learns the time from it.
func (s *Store) execute(ctx context.Context, ks keyspace, step ledger.Step) (_ ledger.Result, fresh bool, err error) {
	sc := s.scripts.apply
	if frees(step) {
		sc = s.scripts.settle
	}
	call := encodeStep(ks, step, s.shift())
	started := s.clock.boot()
	reply, err := s.runIn(ctx, sc, call.keys, call.args)
	if err != nil {
		return ledger.Result{}, false, err
	}
	res, fresh, err := decodeResult(ks, reply)
	if err != nil {
		return ledger.Result{}, false, err
	}
	if fresh {
		s.clock.learn(started, res.Now)
	}
	return res, fresh, nil
}

// frees says whether a step must go through although memory is full. Such are
// the steps that end or carry on what has begun: without them a write whose
// vendor has answered could not be settled, and one that was never sent could
// not be given up. They change values that exist, so they add little. Steps
// that begin something (bind an identity, having looked to what it was bound;
// put what must not have existed), or that only record, are refused, and refused
// first: that is what keeps the room for the others. What ends an action puts
// its binding too, to give it an end, and does not look at it.
func frees(step ledger.Step) bool {
	begins := map[ledger.Key]bool{}
	for _, e := range step.Expect {
		begins[e.Key] = e.Version == ledger.Version{} || e.Key.Kind == ledger.Binding
	}
	for _, p := range step.Put {
		if begins[p.Key] {
			return false
		}
	}
	return len(step.Put)+len(step.Delete)+len(step.Unindex)+len(step.Void) > 0
}

func checkStep(step ledger.Step) error {
	if step.Nonce == (ledger.Nonce{}) || step.Nonce.Version() == (ledger.Version{}) {
		return errors.New("a step needs a nonce")
	}
	ids := make([]string, 0, 16)
	for _, e := range step.Expect {
		ids = append(ids, e.Key.ID)
	}
	for _, k := range step.Delete {
		ids = append(ids, k.ID)
	}
	puts := map[ledger.Key]bool{}
	for _, p := range step.Put {
		ids = append(ids, p.Key.ID)
		puts[p.Key] = true
	}
	for _, a := range step.Add {
		ids = append(ids, a.Key.ID)
		if puts[a.Key] {
			return errors.New("a step puts a value and adds to it")
		}
	}
	for _, e := range step.Unindex {
		ids = append(ids, e.Member)
	}
	for _, e := range step.Index {
		ids = append(ids, e.Member)
	}
	for _, n := range step.Void {
		if n == step.Nonce {
			return errors.New("a step voids itself")
		}
	}
	return errors.Join(checkIDs(ids), checkFetch(step.Fetch))
}

func checkFetch(fetch []ledger.Fetch) error {
	ids := make([]string, len(fetch))
	for i, f := range fetch {
		ids[i] = f.Key.ID
	}
	return checkIDs(ids)
}

func checkIDs(ids []string) error {
	for _, id := range ids {
		if len(id) > maxID {
			return errLongID
		}
	}
	return nil
}

// scriptCall gathers the keys and arguments of a script in the order in which
// it reads them. Bytes are copied: a pipelined command may be sent after the
// caller has gone.
type scriptCall struct {
	keys []string
	args []any
}

func (c *scriptCall) key(k string) { c.keys = append(c.keys, k) }

func (c *scriptCall) arg(a ...any) { c.args = append(c.args, a...) }

// encodeStep is the other half of scripts/apply.lua.
func encodeStep(ks keyspace, step ledger.Step, shift time.Duration) scriptCall {
	c := &scriptCall{}
	c.key(ks.rows())
	c.key(ks.nonce(step.Nonce))
	c.arg(shift.Milliseconds(), ks.values(), step.At.UnixMilli(), before(step.Before), ledger.Drift.Milliseconds(),
		(ledger.NonceLife + nonceMargin).Milliseconds(), (ledger.VoidLife + nonceMargin).Milliseconds())
	c.arg(len(step.Expect))
	for _, e := range step.Expect {
		c.key(ks.value(e.Key))
		c.arg(string(e.Version[:]))
	}
	c.values(ks, step)
	c.lists(ks, step)
	c.fetches(ks, step.Fetch)
	return *c
}

// before is the bound as the script compares it: a clock of whole milliseconds
// has reached an instant between two of them at the later one.
func before(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return ceilMillis(t)
}

func (c *scriptCall) values(ks keyspace, step ledger.Step) {
	c.arg(len(step.Delete))
	for _, k := range step.Delete {
		c.key(ks.value(k))
	}
	c.arg(len(step.Put))
	for _, p := range step.Put {
		c.key(ks.value(p.Key))
		c.arg(append(head(step.Nonce.Version(), p.Expires), p.Data...), millis(p.Expires))
	}
	c.arg(len(step.Add))
	for _, a := range step.Add {
		c.key(ks.value(a.Key))
		c.arg(head(ledger.Version{}, a.Expires), encodeCounter(a.Delta), millis(a.Expires))
	}
}

func (c *scriptCall) lists(ks keyspace, step ledger.Step) {
	c.arg(len(step.Unindex))
	for _, e := range step.Unindex {
		c.key(ks.index(e.Index))
		c.arg(e.Member)
	}
	c.arg(len(step.Index))
	for _, e := range step.Index {
		c.key(ks.index(e.Index))
		c.arg(e.Score.UnixMilli(), e.Member)
	}
	c.arg(len(step.Rows))
	for _, row := range step.Rows {
		c.arg(string(row))
	}
	c.arg(len(step.Void))
	for _, n := range step.Void {
		c.key(ks.nonce(n))
	}
}

func (c *scriptCall) fetches(ks keyspace, fetch []ledger.Fetch) {
	c.arg(len(fetch))
	for _, f := range fetch {
		c.key(ks.value(f.Key))
		follow := make([]byte, len(f.Follow))
		for i, k := range f.Follow {
			follow[i] = byte(k)
		}
		c.arg(follow)
	}
}
