// Package due knows which tenants may have something that the clock asks for: a
// write in flight whose lease can end, a held one that can lapse or is to be
// checked.
//
// With ten thousand tenants a look at each every other second would cost more than
// their writes. So a scope is marked, in the platform's scope, before anything of
// that kind is put into it, and the background work of every replica visits the
// marked scopes alone. A mark is made at most once in a [Spell] by each replica, and
// goes when a spell later nothing of the kind is there.
//
// What is due, and what is done about it, is for others to know (dedupe, actions).
package due

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/tenants"
)

// Spell is how long a mark is good for. Marks of a spell are made until its end,
// and are looked at for removal when the next one has passed too: by then whatever
// was put into the scope under them is there to be seen.
const Spell = 10 * time.Minute

// lookEvery is how often all tenants are gone through, for what was put into their
// scopes without a mark: by a release that made none, or by one whose mark a store
// has lost.
const lookEvery = 10 * time.Minute

// atLatest is when a round waits for that.
const atLatest = 2 * lookEvery

// page is how many marks are read at a time.
const page = 500

// kinds are the indexes of what the clock asks for, in the order of a write's life.
var kinds = [...]ledger.Index{ledger.ByLease, ledger.ByHold, ledger.ByCheck} //nolint:gochecknoglobals // a list

// Directory is who there is.
type Directory interface {
	Refs(ctx context.Context, each func(tenants.Ref) error) error
	RefOf(ctx context.Context, scope ledger.Scope) (ref tenants.Ref, ok bool, err error)
	GetTenant(ctx context.Context, id string) (tenants.Tenant, error)
}

// Scopes keeps the marks. It may be used from many goroutines.
type Scopes struct {
	Directory
	store ledger.Store

	mu     sync.Mutex
	spell  int64                        // of what is in marked
	marked map[ledger.Scope]*mark       // made by this process, or being made
	refs   map[ledger.Scope]tenants.Ref // of marked scopes; a scope is one tenant's for good
	looked time.Time                    // when all tenants were gone through; zero: not yet
	lost   int                          // how often marks may have been lost
}

// mark is one that is being made until done is closed, and is there if err is nil.
type mark struct {
	done chan struct{}
	err  error
	gone bool // it failed, and its caller did not wait for it
}

// New returns the marks of a store.
func New(store ledger.Store, all Directory) *Scopes {
	return &Scopes{
		Directory: all, store: store,
		marked: map[ledger.Scope]*mark{}, refs: map[ledger.Scope]tenants.Ref{},
	}
}

// Forget forgets which marks were made and that all tenants were gone through. It is
// for a store that may have lost marks: the next round goes through all.
func (s *Scopes) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.marked)
	s.looked = time.Time{}
	s.lost++
}

// Watch returns the store with its steps watched: one that puts something the
// clock will ask for into a scope is applied only after the scope is marked.
func (s *Scopes) Watch(store ledger.Store) ledger.Store { return watched{Store: store, scopes: s} }

type watched struct {
	ledger.Store
	scopes *Scopes
}

func (w watched) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if asksTheClock(step) {
		if err := w.scopes.mark(ctx, scope); err != nil {
			return ledger.Result{}, err
		}
	}
	return w.Store.Apply(ctx, scope, step) //nolint:wrapcheck // it is the store's
}

// asksTheClock says whether a step brings into its scope what was not there. One
// that moves what is there needs no mark: while it is there the scope is marked, and
// the move does not hide it from who reads the kinds in their order (quiet). So a
// lease can be renewed, and a write held, though no mark can be made.
func asksTheClock(step ledger.Step) bool {
	from, to := len(kinds), -1
	for i, k := range kinds {
		if has(step.Index, k) {
			to = i
		}
		if has(step.Unindex, k) {
			from = min(from, i)
		}
	}
	return to >= 0 && from > to
}

func has(entries []ledger.Entry, index ledger.Index) bool {
	return slices.ContainsFunc(entries, func(e ledger.Entry) bool { return e.Index == index })
}

func spellOf(t time.Time) int64 { return t.UnixMilli() / Spell.Milliseconds() }

// entry is how a mark lies in the store. Each spell has its own, so that one can be
// removed while another is made.
func entry(scope ledger.Scope, spell int64) ledger.Entry {
	return ledger.Entry{
		Index: ledger.ByDue, Score: time.UnixMilli(spell * Spell.Milliseconds()),
		Member: string(binary.BigEndian.AppendUint64(scope[:], uint64(spell))),
	}
}

func parse(e ledger.Entry) (scope ledger.Scope, spell int64, ok bool) {
	if len(e.Member) != len(scope)+8 {
		return scope, 0, false
	}
	copy(scope[:], e.Member)
	return scope, int64(binary.BigEndian.Uint64([]byte(e.Member[len(scope):]))), true
}

// mark marks a scope for the present spell, unless this process has. Of many that
// want it one does it, and they share its failure: if each tried after the other, the
// last would wait for as many time-outs. Nothing has been put into the scope then.
func (s *Scopes) mark(ctx context.Context, scope ledger.Scope) error {
	for {
		s.mu.Lock()
		if now := spellOf(s.store.Now()); now != s.spell {
			s.spell = now
			clear(s.marked)
		}
		m := s.marked[scope]
		if m == nil {
			m = &mark{done: make(chan struct{})}
			s.marked[scope] = m
			spell := s.spell
			s.mu.Unlock()
			return s.make(ctx, scope, spell, m)
		}
		s.mu.Unlock()
		select {
		case <-m.done:
		case <-ctx.Done():
			return fmt.Errorf("mark scope: %w: %w", ledger.ErrUnavailable, ctx.Err())
		}
		if !m.gone || ctx.Err() != nil {
			return m.err
		}
	}
}

// tries bounds how often a mark is made again because the store's clock was not
// where it was taken to be.
const tries = 3

func (s *Scopes) make(ctx context.Context, scope ledger.Scope, spell int64, m *mark) (err error) {
	defer func() {
		if err != nil {
			s.mu.Lock()
			if s.marked[scope] == m {
				delete(s.marked, scope)
			}
			s.mu.Unlock()
		}
		m.err, m.gone = err, err != nil && ctx.Err() != nil
		close(m.done)
	}()
	step := ledger.Step{Nonce: ledger.NewNonce(), Index: []ledger.Entry{entry(scope, spell)}}
	return s.apply(ctx, step)
}

func (s *Scopes) apply(ctx context.Context, step ledger.Step) error {
	for range tries {
		step.At = s.store.Now()
		res, err := s.store.Apply(ctx, ledger.Platform, step)
		if err != nil {
			return fmt.Errorf("mark scope: %w", err)
		}
		if res.Applied {
			return nil
		}
	}
	return fmt.Errorf("mark scope: %w: its clock runs away", ledger.ErrUnavailable)
}
