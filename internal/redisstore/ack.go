package redisstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"holdfast.dev/gateway/internal/ledger"
)

// acknowledger finds out whether steps that one master has applied are with
// enough of its replicas. It works in rounds, one at a time, on a connection of
// its own: a script asks the master which of the waiting steps it holds and
// writes a mark behind them, then WAIT on the same connection counts the
// replicas that have that mark (https://redis.io/docs/latest/commands/wait/).
//
// A step counts only in a round begun after its reply. The mark then stands
// behind it in the same stream of changes, and the same server has said that it
// holds the step, so what WAIT counts has the step too. Less proves nothing:
// WAIT speaks only of the writes of its own connection, and after a failover
// that connection may lead to a server that never saw the step.
//
// Whatever is not a clear yes is [ledger.ErrUnavailable], and the connection is
// given up with it: the next round asks again who the master is.
type acknowledger struct {
	script  script
	timeout time.Duration // of a round
	connect func() *redis.Client

	mu      sync.Mutex
	waiting []*unacked
	running bool
	rounds  sync.WaitGroup

	client *redis.Client // of the running round; nil: to be connected
}

// unacked is a step that waits for a round.
type unacked struct {
	ks    keyspace
	nonce ledger.Nonce
	need  int        // replicas
	done  chan error // gets one value, and has room for it
}

// confirm returns nil once as many replicas as needed have the step. A caller
// that stops waiting leaves its step to the round.
func (a *acknowledger) confirm(ctx context.Context, ks keyspace, nonce ledger.Nonce, need int) error {
	w := &unacked{ks: ks, nonce: nonce, need: need, done: make(chan error, 1)}
	a.mu.Lock()
	a.waiting = append(a.waiting, w)
	if !a.running {
		a.running = true
		a.rounds.Go(a.run)
	}
	a.mu.Unlock()
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
}

// run makes rounds while anybody waits.
func (a *acknowledger) run() {
	for {
		a.mu.Lock()
		batch := a.waiting
		a.waiting = nil
		a.running = len(batch) > 0
		a.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		if !a.round(batch) {
			a.disconnect()
		}
	}
}

// round tells each step of the batch what became of it, and returns whether all
// of them are acknowledged.
func (a *acknowledger) round(batch []*unacked) bool {
	ctx, cancel := context.WithTimeout(context.Background(), a.timeout)
	defer cancel()
	if a.client == nil {
		a.client = a.connect()
	}
	asked, waited := a.ask(ctx, batch, script.bySum)
	if asked.unknownScript() {
		asked, waited = a.ask(ctx, batch, script.byText)
	}
	count, err := waited.Int()
	all := true
	for _, w := range batch {
		verdict := asked.verdict(w)
		switch {
		case verdict != nil:
		case err != nil:
			verdict = meaning(err)
		case count < w.need:
			verdict = fmt.Errorf("%w: %d of %d replicas have acknowledged", ledger.ErrUnavailable, count, w.need)
		}
		w.done <- verdict
		all = all && verdict == nil
	}
	return all
}

// ask sends one script for each scope, since scopes may differ in their slot,
// and behind them WAIT, all in one write to one connection.
func (a *acknowledger) ask(
	ctx context.Context, batch []*unacked, form func(script, call) []any,
) (questions, *redis.Cmd) {
	asked := questions{}
	need := 0
	for _, w := range batch {
		need = max(need, w.need)
		q, ok := asked[w.ks]
		if !ok {
			q = &question{keys: []string{w.ks.mark()}, at: map[ledger.Nonce]int{}}
			asked[w.ks] = q
		}
		if _, ok := q.at[w.nonce]; !ok {
			q.at[w.nonce] = len(q.at)
			q.keys = append(q.keys, w.ks.nonce(w.nonce))
		}
	}
	pipe := a.client.Pipeline()
	for _, q := range asked {
		q.reply = pipe.Do(ctx, form(a.script, newCall(q.keys, markLife.Milliseconds()))...)
	}
	// Half the time, so that an answer of "too few" arrives while it is waited for.
	waited := pipe.Do(ctx, "wait", need, (a.timeout / 2).Milliseconds())
	_, _ = pipe.Exec(ctx) // each command has its own error
	return asked, waited
}

// markLife is how long the mark of a scope outlives its last round.
const markLife = time.Minute

// questions are the scripts of one round, by scope.
type questions map[keyspace]*question

type question struct {
	keys  []string
	at    map[ledger.Nonce]int // where in the reply a step stands
	reply *redis.Cmd
}

func (qs questions) unknownScript() bool {
	for _, q := range qs {
		if redis.HasErrorPrefix(q.reply.Err(), "NOSCRIPT") {
			return true
		}
	}
	return false
}

// verdict is nil if the master holds the step.
func (qs questions) verdict(w *unacked) error {
	q := qs[w.ks]
	held, err := q.reply.Text()
	switch {
	case err != nil:
		return meaning(err)
	case len(held) != len(q.at):
		return malformed()
	case held[q.at[w.nonce]] != '1':
		return fmt.Errorf("%w: another server has become the master", ledger.ErrUnavailable)
	default:
		return nil
	}
}

func (a *acknowledger) disconnect() {
	if a.client != nil {
		_ = a.client.Close() // it is in doubt, or not needed any more
		a.client = nil
	}
}

// close waits for the last round, whose waiters have gone.
func (a *acknowledger) close() {
	a.rounds.Wait()
	a.disconnect()
}
