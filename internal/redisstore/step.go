package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	c := encodeStep(ks, step, s.shift())
	started := s.clock.boot()
	reply, err := s.runIn(ctx, sc, c)
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
	for _, p := range step.Put {
		begins := false
		for _, e := range step.Expect {
			if e.Key == p.Key {
				begins = e.Version == ledger.Version{} || e.Key.Kind == ledger.Binding
			}
		}
		if begins {
			return false
		}
	}
	return len(step.Put)+len(step.Delete)+len(step.Unindex)+len(step.Void) > 0
}

func checkStep(step ledger.Step) error {
	if step.Nonce == (ledger.Nonce{}) || step.Nonce.Version() == (ledger.Version{}) {
		return errors.New("a step needs a nonce")
	}
	for _, a := range step.Add {
		for _, p := range step.Put {
			if a.Key == p.Key {
				return errors.New("a step puts a value and adds to it")
			}
		}
	}
	for _, n := range step.Void {
		if n == step.Nonce {
			return errors.New("a step voids itself")
		}
	}
	if longest(step) > maxID {
		return errLongID
	}
	return checkFetch(step.Fetch)
}

// longest is the length of the longest id or member that a step writes or looks at.
func longest(step ledger.Step) (n int) {
	for _, e := range step.Expect {
		n = max(n, len(e.Key.ID))
	}
	for _, k := range step.Delete {
		n = max(n, len(k.ID))
	}
	for _, p := range step.Put {
		n = max(n, len(p.Key.ID))
	}
	for _, a := range step.Add {
		n = max(n, len(a.Key.ID))
	}
	for _, e := range step.Unindex {
		n = max(n, len(e.Member))
	}
	for _, e := range step.Index {
		n = max(n, len(e.Member))
	}
	return n
}

func checkFetch(fetch []ledger.Fetch) error {
	for _, f := range fetch {
		if len(f.Key.ID) > maxID {
			return errLongID
		}
		if len(f.Follow) > math.MaxUint8 {
			return errors.New("a fetch is followed into more kinds than there are")
		}
	}
	return nil
}
