package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"holdfast.dev/gateway/internal/ledger"
)

const (
	// expireEvery is how often the expirer looks for values that are due. They
	// exist for nobody from their instant on; it only gives their room back.
	expireEvery = time.Second

	// expireMost bounds how many values are taken on in one look, and with it the
	// memory that takes.
	expireMost = 32768

	// expireTurn is about how long a scope's steps wait for the expirer at most.
	expireTurn = 500 * time.Microsecond

	// expireLate is how long the expirer may have been at work without coming to the
	// end of it before it takes longer turns.
	expireLate = 10 * time.Minute

	// expireLag is how far behind the clock the expirer keeps looking. Finding
	// nothing must not mean stepping over the remains of everything deleted so
	// far, so it begins where it left off; a step that was being made meanwhile
	// may still add a value that ends a little earlier.
	expireLag = 10 * time.Second
)

// tempo is how the expirer takes turns with a scope's steps: it keeps them waiting for
// about a turn, and then rests in proportion to the time that took.
type tempo struct {
	turn time.Duration
	rest int
}

// tempoAt is the tempo of an expirer that has been behind for so long. It is to be
// felt by nobody: a fifth of one processor, some 20,000 values a second on a slow one
// with nothing else to do, where 2,700 writes a second leave 8,000. If that is not
// enough, or so many steps wait for their turn that it seldom gets one, it takes ever
// longer ones: a backlog does not last.
func tempoAt(behind time.Duration) tempo {
	late := min(int(behind/expireLate), 9)
	if late == 0 {
		return tempo{turn: expireTurn, rest: 4}
	}
	return tempo{turn: time.Duration(1+late) * expireTurn, rest: 1}
}

// startExpirer deletes due values at each tick until the function it returns is
// called, which waits for the work in hand.
func (s *Store) startExpirer(ticks <-chan time.Time) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	x := s.newExpirer()
	go func() {
		defer close(done)
		x.run(ctx, ticks)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-s.failure.ch: // it may be held inside the engine
		}
	}
}

func (s *Store) newExpirer() *expirer {
	return &expirer{store: s, most: expireMost, from: []byte{tagExpiry}, done: s.uptime(), tempo: tempoAt, rest: s.rest}
}

type expirer struct {
	store *Store
	most  int           // values in one look
	from  []byte        // nothing before this key is due
	done  time.Duration // the age of the store when nothing was due
	tempo func(behind time.Duration) tempo
	rest  func(context.Context, time.Duration)
}

// run looks at each tick, again and again while there is more.
func (x *expirer) run(ctx context.Context, ticks <-chan time.Time) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-x.store.failure.ch:
			return
		case <-ticks:
		}
		for more := true; more; {
			var err error
			if more, err = x.look(ctx); err != nil && ctx.Err() == nil {
				x.store.log.Error("cannot delete expired values", "error", err)
			}
		}
	}
}

// ended is a value that is due by its note. The last one of a note carries it.
type ended struct {
	expires int64
	key     []byte // nil: there is only the note
	note    []byte
}

// look deletes what is due, and says whether there was more than it took on.
func (x *expirer) look(ctx context.Context) (more bool, err error) {
	now := x.store.clock.now()
	began := x.store.uptime()
	d, err := x.due(now)
	if err != nil {
		return false, err
	}
	t := x.tempo(began - x.done)
	for scope, values := range d.values {
		for len(values) > 0 {
			done, err := x.store.expire(ctx, scope, values, t.turn)
			if err != nil {
				return false, err
			}
			values = values[done.values:]
			x.rest(ctx, time.Duration(t.rest)*done.took)
		}
	}
	x.goOn(d.more, now.Add(-expireLag).UnixMilli())
	if d.more == nil {
		x.done = began
	}
	return d.more != nil, nil
}

// rest waits, unless the store comes to its end.
func (s *Store) rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.failure.ch:
	}
}

// goOn begins the next look behind what this one has dealt with, as far as no
// step can still add to it. Of what is due, more was not taken on; nil: nothing.
func (x *expirer) goOn(more []byte, settled int64) {
	next := appendMillis([]byte{tagExpiry}, settled)
	if more != nil && bytes.Compare(more, next) < 0 {
		next = more
	}
	if bytes.Compare(next, x.from) > 0 {
		x.from = next
	}
}

// due is what one look takes on.
type due struct {
	values map[ledger.Scope][]ended
	more   []byte // the first note that was left; nil: none was
}

func (x *expirer) due(now time.Time) (due, error) {
	d := due{values: map[ledger.Scope][]ended{}}
	iter, err := x.store.db.NewIter(&pebble.IterOptions{
		LowerBound: x.from, UpperBound: appendMillis([]byte{tagExpiry}, now.UnixMilli()+1),
	})
	if err != nil {
		return d, readError("read due values", err)
	}
	for ok, count := iter.First(), 0; ok; ok = iter.Next() {
		if count >= x.most {
			d.more = bytes.Clone(iter.Key())
			break
		}
		list, err := iter.ValueAndErr()
		if err != nil {
			return d, errors.Join(readError("read due values", err), iter.Close())
		}
		count += d.add(iter.Key(), list)
	}
	if err := iter.Close(); err != nil {
		return d, readError("read due values", err)
	}
	return d, nil
}

// add takes on what a note names, and returns how much that is. What is no note goes
// with the platform's.
func (d *due) add(key, list []byte) int {
	n, _ := parseNote(key, list)
	values := make([]ended, max(1, len(n.values)))
	for i, k := range n.values {
		values[i] = ended{expires: n.expires, key: k}
	}
	values[len(values)-1].note = bytes.Clone(key)
	d.values[n.scope] = append(d.values[n.scope], values...)
	return len(values)
}

// turn is what the expirer did in one.
type turn struct {
	values int
	took   time.Duration
}

// expire deletes the first of some values of one scope, those of them that still end
// when they were to: one may have been put again meanwhile. It is not synced; a crash
// that takes the deletion back leaves the note, too, and a note is there until the last
// value it names is gone.
func (s *Store) expire(ctx context.Context, scope ledger.Scope, values []ended, long time.Duration) (turn, error) {
	return call(ctx, s, scope, func(g *group) (turn, error) {
		if err := g.append(); err != nil {
			return turn{}, err
		}
		began := time.Now()
		b := s.db.NewBatch()
		n := 0
		var err error
		for ; err == nil && n < len(values) && (n == 0 || time.Since(began) < long); n++ {
			err = s.deleteEnded(b, values[n])
		}
		if err == nil {
			err = s.db.Apply(b, pebble.NoSync)
		}
		if err := errors.Join(err, b.Close()); err != nil {
			return turn{}, err
		}
		return turn{values: n, took: time.Since(began)}, nil
	})
}

// deleteEnded deletes a value if it ends when it was to, and its note.
func (s *Store) deleteEnded(b *pebble.Batch, v ended) error {
	if v.key != nil {
		ends := false
		_, err := view(s.db, v.key, func(raw []byte) error {
			e, err := decodeEnvelope(raw)
			ends = err == nil && e.expires == v.expires
			return err
		})
		switch {
		case errors.Is(err, ledger.ErrCorrupt):
			// What it is and when it ends is unknown, so it stays to be looked at.
			s.log.Error("a value that was to expire is unreadable and stays")
		case err != nil:
			return err
		case ends:
			if err := b.Delete(v.key, nil); err != nil {
				return err
			}
		}
	}
	if v.note == nil {
		return nil
	}
	return b.Delete(v.note, nil)
}
