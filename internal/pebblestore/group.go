package pebblestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

const (
	// groupMost and groupBytes bound how much is made before it is given to the log,
	// and with it how long the first of a group waits for the last. A step is not
	// taken apart: the one with which a group reaches its bytes may be long.
	groupMost  = 64
	groupBytes = 256 << 10
)

// group is what one leader of a stripe makes in one go: the tasks that wait, one
// after another, their changes in one batch. The next is made while this one waits
// for the disk.
//
// What its steps have changed is in the memory (of standings, nonces and tails) at
// once and in the engine later. So whoever reads the engine calls append before.
type group struct {
	store  *Store
	stripe *stripe
	tasks  []*task
	batch  *pebble.Batch // not in the log yet; nil: there is nothing
	began  uint64        // the memory's generation when batch was
	now    int64         // of the newest step in batch
	writes []write       // in the log
	before *commit       // the newest of the groups before
	change change        // of the step that is being made
}

// write is a batch in the log.
type write struct {
	batch *pebble.Batch
	log   uint64 // it is in this file, or a later one
}

// commit is a group on its way to disk. Everything written under the stripe
// before it is durable when it is, because the log is synced in order; the
// engine closes (and syncs) one log file before it begins the next.
type commit struct {
	done chan struct{} // closed when durable; never, if the store failed
}

// leads returns what makes the groups of a stripe for as long as nobody else does.
func (s *Store) leads(st *stripe) func() {
	return func() {
		for again := true; again; {
			g := &group{store: s, stripe: st, before: st.last}
			g.change.group = g
			err := g.make()
			var c *commit
			if len(g.writes) > 0 {
				c = &commit{done: make(chan struct{})}
				st.last = c
			}
			if err != nil {
				s.read(g.answer(err), true) // the store has failed, so nobody leads again
				return
			}
			if st.give() {
				s.workers.run(st.lead)
			}
			readers := g.answer(g.wait(c))
			again = st.arrived()
			s.read(readers, !again)
		}
	}
}

// make begins tasks and gives what they write to the log. An error is the store's.
func (g *group) make() (err error) {
	defer g.store.catch(&err)
	for len(g.tasks) < groupMost && (g.batch == nil || g.batch.Len() < groupBytes) {
		t := g.stripe.next()
		if t == nil {
			break
		}
		g.tasks = append(g.tasks, t)
		if err := g.store.failure.err(); err != nil {
			return err
		}
		if err := t.ctx.Err(); err != nil {
			t.err = unavailable(err)
		} else {
			t.err = t.begin(g)
		}
	}
	return g.append()
}

// append gives to the log what is not in it. An error is the store's failure.
func (g *group) append() error {
	b := g.batch
	g.batch = nil
	if b == nil {
		return nil
	}
	if err := g.store.failure.err(); err != nil {
		return err // what is in it may be half a step
	}
	if b.Empty() {
		return b.Close()
	}
	w := write{b, g.store.notes.log.Load()} // or a later one, if that is begun meanwhile
	err := g.store.mark.write(b, g.now, func() error { return g.store.db.ApplyNoSyncWait(b, pebble.Sync) })
	if err != nil {
		g.store.failure.set(fmt.Errorf("append to log: %w", err))
		return g.store.failure.err()
	}
	g.writes = append(g.writes, w)
	return nil
}

// wait waits until all that its answers may rest on is on disk.
func (g *group) wait(c *commit) (err error) {
	defer g.store.catch(&err)
	if c == nil {
		return g.store.durable(g.before)
	}
	for _, w := range g.writes {
		if err := g.store.sync(w); err != nil {
			return err
		}
	}
	close(c.done)
	return nil
}

func (s *Store) sync(w write) error {
	if err := w.batch.SyncWait(); err != nil {
		s.failure.set(fmt.Errorf("sync log: %w", err))
		return s.failure.err()
	}
	s.notes.saw(w.batch, w.log)
	return w.batch.Close()
}

// durable waits until everything written under the stripe up to c is on disk.
func (s *Store) durable(c *commit) error {
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return nil
	case <-s.failure.ch:
		return s.failure.err()
	}
}

// answer tells each caller what its task came to, or the error of the group. It
// returns those that have still to read.
func (g *group) answer(err error) (readers []*task) {
	for _, t := range g.tasks {
		if err != nil && (t.finish == nil || t.err != nil) {
			t.err = err
		}
		if t.finish != nil && t.err == nil {
			t.durable = err
			readers = append(readers, t)
			continue
		}
		g.store.answer(t)
	}
	return readers
}
