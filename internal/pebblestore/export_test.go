package pebblestore

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// OpenTicked is Open with the expirer driven by the test.
func OpenTicked(dir string, opts Options, ticks <-chan time.Time) (*Store, error) {
	return open(dir, opts, ticks)
}

// OpenSmall is Open with memory tables so small that log files and tables change
// hands all the time, and no expirer.
func OpenSmall(dir string, opts Options) (*Store, error) {
	return open(dir, opts, nil, func(o *pebble.Options) { o.MemTableSize = 64 << 10 })
}

// ExpireTurns lets an expirer take so many turns, of one value each, and returns how
// many it took.
func (s *Store) ExpireTurns(most int) (took int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	x := s.newExpirer()
	x.tempo = func(time.Duration) tempo { return tempo{rest: 1} }
	x.rest = func(context.Context, time.Duration) {
		if took++; took == most {
			cancel()
		}
	}
	if _, err = x.look(ctx); took == most && errors.Is(err, ledger.ErrUnavailable) {
		err = nil
	}
	return took, err
}

// ScrubRound scrubs every part once.
func (s *Store) ScrubRound(ctx context.Context) error {
	for range scrubParts {
		if err := s.scrubNext(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ScrubPart is the part that comes next.
func (s *Store) ScrubPart() byte {
	mark, ok, err := s.getRaw(keyScrub)
	if err != nil || !ok {
		return 0
	}
	return mark[0]
}

// StartScrubber is the scrubber driven by the test.
func (s *Store) StartScrubber(ticks <-chan time.Time) (stop func()) { return s.startScrubber(ticks) }

// SetUptime replaces the clock nonces live by. It is called before any step.
func (s *Store) SetUptime(f func() time.Duration) { s.uptime = f }

// Nonces counts the remembered nonces and the entries that will end them.
func (s *Store) Nonces() (known, endings int) {
	for i := range s.stripes {
		n := &s.stripes[i].nonces
		known += len(n.known)
		endings += len(n.applied) + len(n.voided)
	}
	return known, endings
}

// Idle is how many goroutines wait for the next call.
func (s *Store) Idle() int { return len(s.workers.seats) }

// ForgetTails drops every remembered row sequence.
func (s *Store) ForgetTails() {
	for i := range s.stripes {
		clear(s.stripes[i].tails)
	}
}

// Corrupt writes bytes under a value key that no encoder makes.
func (s *Store) Corrupt(scope ledger.Scope, key ledger.Key, bytes []byte) error {
	s.Remember(memoryMost) // what changes under the store is not what it remembers
	return s.db.Set(valueKey(scope, key), bytes, pebble.NoSync)
}

// Remember forgets what stands under value keys and bounds what is remembered
// from now on; 0: nothing is. No step may be under way.
func (s *Store) Remember(most int) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.most, s.memory.bytes = most/2, 0
	s.memory.young, s.memory.old = map[string]standing{}, nil
}

// Misremember replaces what is remembered of a value by that of another.
func (s *Store) Misremember(scope ledger.Scope, key, other ledger.Key) {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.young[string(valueKey(scope, key))] = s.memory.young[string(valueKey(scope, other))]
}

// Stale compares what is remembered with the engine's values, and counts where
// they differ for a reader.
func (s *Store) Stale() (n int, err error) {
	now := s.clock.now().UnixMilli()
	for key, at := range s.memory.old {
		if _, newer := s.memory.young[key]; !newer {
			n, err = s.stale(n, err, key, at, now)
		}
	}
	for key, at := range s.memory.young {
		n, err = s.stale(n, err, key, at, now)
	}
	return n, err
}

func (s *Store) stale(n int, err error, key string, at standing, now int64) (int, error) {
	var is standing
	_, failed := view(s.db, []byte(key), func(raw []byte) error {
		e, err := decodeEnvelope(raw)
		is = e.standing()
		return err
	})
	if at.lives(now) != is.lives(now) || at.lives(now) && at != is {
		n++
	}
	return n, errors.Join(err, failed)
}

// Living is every key of the scopes with its value, but for values that have ended.
func (s *Store) Living() (map[string]string, error) {
	now := s.clock.now().UnixMilli()
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tagScope}})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for ok := iter.First(); ok; ok = iter.Next() {
		e, err := decodeEnvelope(iter.Value())
		if iter.Key()[scopeLength-1] != tagValue || err != nil || e.lives(now) {
			all[string(iter.Key())] = string(iter.Value())
		}
	}
	return all, iter.Close()
}

// Remembered counts what the memory has.
func (s *Store) Remembered() int { return len(s.memory.young) + len(s.memory.old) }

// RawSet and RawDelete change the engine's keys under the store.
func (s *Store) RawSet(key, value []byte) error { return s.db.Set(key, value, pebble.Sync) }

// RawKeys counts the engine's keys that begin with a prefix.
func (s *Store) RawKeys(prefix ...byte) (n int) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: prefixEnd(prefix)})
	if err != nil {
		return -1
	}
	for ok := iter.First(); ok; ok = iter.Next() {
		n++
	}
	if err := iter.Close(); err != nil {
		return -1
	}
	return n
}

// Flush writes what is in memory to table files.
func (s *Store) Flush() error { return s.db.Flush() }

// BlocksRead is how many blocks of table files were not in memory when they were
// asked for.
func (s *Store) BlocksRead() int64 { return s.db.Metrics().BlockCache.Misses }

// Fatal is the engine reporting that it cannot go on.
func (s *Store) Fatal(message string) { engineLogger{s.log, s.failure}.Fatalf("%s", message) }

// Panic is the engine panicking in a call.
func (s *Store) Panic(ctx context.Context, scope ledger.Scope, cause error) error {
	_, err := call(ctx, s, scope, func(*group) (struct{}, error) { panic(cause) })
	return err
}

// PanicLate is Panic once a channel is closed.
func (s *Store) PanicLate(ctx context.Context, scope ledger.Scope, at <-chan struct{}) error {
	_, err := call(ctx, s, scope, func(*group) (struct{}, error) { <-at; panic("late") })
	return err
}

// CloseEngine releases what a failed store keeps until the process ends.
func (s *Store) CloseEngine() error { return s.db.Close() }

// Together makes steps as one group, in their order, as far as one may be so large.
func (s *Store) Together(ctx context.Context, scope ledger.Scope, steps ...ledger.Step) ([]ledger.Result, []error) {
	st, tasks := s.stripe(scope), make([]*task, len(steps))
	results, errs := make([]ledger.Result, len(steps)), make([]error, len(steps))
	release := s.Hold(scope)
	for i := range steps {
		s.calls.enter()
		tasks[i] = &task{ctx: ctx, done: make(chan struct{})}
		tasks[i].begin = func(g *group) (err error) {
			results[i], err = g.apply(scope, &steps[i])
			return err
		}
		st.enter(tasks[i])
	}
	release()
	for i, t := range tasks {
		select {
		case <-t.done:
			errs[i] = t.err
		case <-s.failure.ch:
			errs[i] = s.failure.err()
		}
	}
	return results, errs
}

// First makes one group of steps that wait, and returns how many it took.
func (s *Store) First(ctx context.Context, scope ledger.Scope, steps ...ledger.Step) (int, error) {
	return s.firstGroup(ctx, scope, steps, func(*stripe) {})
}

// FirstForgetting is First of a stripe that forgets the newest rows before each step.
func (s *Store) FirstForgetting(ctx context.Context, scope ledger.Scope, steps ...ledger.Step) (int, error) {
	return s.firstGroup(ctx, scope, steps, func(st *stripe) { clear(st.tails) })
}

func (s *Store) firstGroup(ctx context.Context, scope ledger.Scope, steps []ledger.Step, before func(*stripe)) (int, error) {
	st := new(stripe)
	st.init(nil)
	for i := range steps {
		st.enter(&task{ctx: ctx, begin: func(g *group) error {
			before(st)
			_, err := g.apply(scope, &steps[i])
			return err
		}})
	}
	g := &group{store: s, stripe: st}
	g.change.group = g
	if err := g.make(); err != nil {
		return 0, err
	}
	return len(g.tasks), g.wait(&commit{done: make(chan struct{})})
}

// Stripe is how many groups of a scope's stripe are on their way to the disk, and how
// many calls wait behind them.
func (s *Store) Stripe(scope ledger.Scope) (groups, waiting int) {
	st := s.stripe(scope)
	st.mu.Lock()
	defer st.mu.Unlock()
	for t := st.first; t != nil; t = t.behind {
		waiting++
	}
	return st.groups, waiting
}

// Hold keeps who leads a scope's stripe until the function it returns is called: all
// that waits then is one group.
func (s *Store) Hold(scope ledger.Scope) (release func()) {
	held, at := make(chan struct{}), make(chan struct{})
	go func() {
		_, _ = call(context.Background(), s, scope, func(*group) (struct{}, error) {
			close(held)
			<-at
			return struct{}{}, nil
		})
	}()
	<-held
	return func() { close(at) }
}

// Apart is so many scopes, no two of which are of one stripe.
func (s *Store) Apart(n int) (scopes []ledger.Scope) {
	taken := map[*stripe]bool{}
	for i := 0; len(scopes) < n; i++ {
		scope := ledger.ScopeOf(strconv.Itoa(i))
		if st := s.stripe(scope); !taken[st] {
			taken[st] = true
			scopes = append(scopes, scope)
		}
	}
	return scopes
}

// The tags of the layout, for RawKeys.
const (
	IdleWorkers  = idleWorkers
	StripeGroups = stripeGroups
	GroupMost    = groupMost
	GroupBytes   = groupBytes

	TagExpiry = tagExpiry
	TagScope  = tagScope
	TagMember = tagMember
)

// FormatKey and HighWaterKey are the store's own keys.
func FormatKey() []byte    { return keyFormat }
func HighWaterKey() []byte { return keyHighWater }

// Note is the note of how far the files reach, as it is made once a second.
func (s *Store) Note() error { return s.notes.write() }

// RawEachNoteApart replaces each note of expiry by those that a release of format 1
// would have left.
func (s *Store) RawEachNoteApart(t require.TestingT) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tagExpiry}, UpperBound: []byte{tagExpiry + 1}})
	require.NoError(t, err)
	b := s.db.NewBatch()
	for ok := iter.First(); ok; ok = iter.Next() {
		n, ok := parseNote(iter.Key(), iter.Value())
		require.True(t, ok)
		require.NoError(t, b.Delete(iter.Key(), nil))
		for _, key := range n.values {
			require.NoError(t, b.Set(append(appendMillis([]byte{tagExpiry}, n.expires), key...), nil, nil))
		}
	}
	require.NoError(t, iter.Close())
	require.NoError(t, s.db.Apply(b, pebble.Sync))
	require.NoError(t, b.Close())
}

// RawIndexApart adds to each index entry the key that a release of format 1 kept
// beside it, marks the folder as of that format and returns how many it added.
func (s *Store) RawIndexApart(t require.TestingT) (n int) {
	iter, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tagScope}, UpperBound: []byte{tagScope + 1}})
	require.NoError(t, err)
	b := s.db.NewBatch()
	for ok := iter.First(); ok; ok = iter.Next() {
		if k := iter.Key(); k[scopeLength-1] == tagIndex {
			member := append([]byte(nil), k[:scopeLength+1]...)
			member[scopeLength-1] = tagMember
			require.NoError(t, b.Set(append(member, k[scopeLength+1+8:]...), k[scopeLength+1:scopeLength+1+8], nil))
			n++
		}
	}
	require.NoError(t, iter.Close())
	require.NoError(t, b.Set(keyFormat, []byte{0, 0, 0, 1}, nil))
	require.NoError(t, s.db.Apply(b, pebble.Sync))
	require.NoError(t, b.Close())
	return n
}

// Half is a step that fails while it is written, with some of it in its group's batch.
func (s *Store) Half(ctx context.Context, scope ledger.Scope) error {
	_, err := call(ctx, s, scope, func(g *group) (struct{}, error) {
		if g.batch == nil {
			g.batch = s.db.NewBatch()
		}
		err := g.batch.Set(valueKey(scope, ledger.Key{Kind: ledger.Meta, ID: "half"}), nil, nil)
		s.failure.set(errors.Join(errors.New("half of it"), err))
		return struct{}{}, s.failure.err()
	})
	return err
}
