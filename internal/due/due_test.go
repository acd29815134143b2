package due_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/due"
	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
	"holdfast.dev/gateway/internal/tenants"
)

// counting is a store that counts what it is asked, and can be made to fail.
type counting struct {
	ledger.Store
	reads, marks atomic.Int64
	fails        atomic.Bool
}

func (c *counting) Entries(ctx context.Context, scope ledger.Scope, r ledger.EntryRange) ([]ledger.Entry, error) {
	c.reads.Add(1)
	return c.Store.Entries(ctx, scope, r)
}

func (c *counting) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	if scope == ledger.Platform {
		if c.fails.Load() {
			return ledger.Result{}, ledger.ErrUnavailable
		}
		c.marks.Add(1)
	}
	return c.Store.Apply(ctx, scope, step)
}

// people are tenants; those named nowhere live nowhere.
type people struct {
	due.Directory
	refs  []tenants.Ref
	asked atomic.Int64
}

func (p *people) Refs(_ context.Context, each func(tenants.Ref) error) error {
	p.asked.Add(1)
	for _, ref := range p.refs {
		if err := each(ref); err != nil {
			return err
		}
	}
	return nil
}

func (p *people) RefOf(_ context.Context, scope ledger.Scope) (tenants.Ref, bool, error) {
	for _, ref := range p.refs {
		if ref.Scope == scope {
			return ref, true, nil
		}
	}
	return tenants.Ref{}, false, nil
}

func crowd(n int) *people {
	p := &people{}
	for i := range n {
		id := fmt.Sprintf("t%d", i)
		p.refs = append(p.refs, tenants.Ref{Tenant: id, TenantID: id, Scope: ledger.ScopeOf(id)})
	}
	return p
}

// play runs a test in a bubble, whose clock is the store's.
func play(t *testing.T, run func(t *testing.T, store *counting)) {
	synctest.Test(t, func(t *testing.T) {
		under, err := pebblestore.Open("store", pebblestore.Options{Clock: time.Now, FS: vfs.NewMem()})
		require.NoError(t, err)
		defer func() { require.NoError(t, under.Close()) }()
		run(t, &counting{Store: under})
	})
}

func put(t *testing.T, store ledger.Store, scope ledger.Scope, index ledger.Index, member string) error {
	t.Helper()
	res, err := store.Apply(t.Context(), scope, ledger.Step{
		Nonce: ledger.NewNonce(), At: store.Now(),
		Index: []ledger.Entry{{Index: index, Score: time.UnixMilli(1), Member: member}},
	})
	require.True(t, err != nil || res.Applied)
	return err
}

func take(t *testing.T, store ledger.Store, scope ledger.Scope, index ledger.Index, member string) {
	t.Helper()
	res, err := store.Apply(t.Context(), scope, ledger.Step{
		Nonce: ledger.NewNonce(), At: store.Now(),
		Unindex: []ledger.Entry{{Index: index, Score: time.UnixMilli(1), Member: member}},
	})
	require.NoError(t, err)
	require.True(t, res.Applied)
}

// visited are the tenants that a round goes to.
func visited(t *testing.T, s *due.Scopes) []string {
	t.Helper()
	ids := []string{}
	require.NoError(t, s.Refs(t.Context(), func(ref tenants.Ref) error {
		ids = append(ids, ref.Tenant)
		return nil
	}))
	return ids
}

// A round goes to those tenants that have something due, whoever put it there, and
// costs nothing for the others.
func TestOnlyWhatMayBeDueIsVisited(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1000)
		one, two := due.New(store, all), due.New(store, all)
		require.Empty(t, visited(t, two))
		for i, index := range []ledger.Index{ledger.ByLease, ledger.ByHold, ledger.ByCheck} {
			require.NoError(t, put(t, one.Watch(store), all.refs[10*i].Scope, index, "m"))
		}
		require.NoError(t, put(t, one.Watch(store), all.refs[500].Scope, ledger.ByCreated, "m"))
		require.EqualValues(t, 3, store.marks.Load())
		store.reads.Store(0)
		require.ElementsMatch(t, []string{"t0", "t10", "t20"}, visited(t, two))
		require.EqualValues(t, 1, store.reads.Load())
		require.EqualValues(t, 1, all.asked.Load())
	})
}

// The mark is there before what it stands for, and nothing is where it cannot be.
func TestNothingIsPutIntoAnUnmarkedScope(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		s := due.New(store, all)
		scope := all.refs[0].Scope
		store.fails.Store(true)
		require.ErrorIs(t, put(t, s.Watch(store), scope, ledger.ByLease, "m"), ledger.ErrUnavailable)
		there, err := store.Entries(t.Context(), scope, ledger.EntryRange{Index: ledger.ByLease, Limit: 1})
		require.NoError(t, err)
		require.Empty(t, there)
		store.fails.Store(false)
		require.NoError(t, put(t, s.Watch(store), scope, ledger.ByLease, "m"))
		require.Equal(t, []string{"t0"}, visited(t, s))
	})
}

// Many that begin at once make one mark; so does a spell.
func TestOneMarkASpell(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		s := due.New(store, all)
		watched := s.Watch(store)
		scope := all.refs[0].Scope
		many := func() {
			var running sync.WaitGroup
			for i := range 64 {
				running.Go(func() { _ = put(t, watched, scope, ledger.ByLease, fmt.Sprint(i)) })
			}
			running.Wait()
		}
		many()
		many()
		require.EqualValues(t, 1, store.marks.Load())
		<-time.After(due.Spell)
		many()
		require.EqualValues(t, 2, store.marks.Load())
	})
}

// A mark goes once nothing is there, two spells later, and stays while something is.
func TestMarksGoWhenAllIsQuiet(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(2)
		s := due.New(store, all)
		for _, ref := range all.refs {
			require.NoError(t, put(t, s.Watch(store), ref.Scope, ledger.ByHold, "m"))
		}
		take(t, store, all.refs[0].Scope, ledger.ByHold, "m")
		require.Len(t, visited(t, s), 2)
		<-time.After(due.Spell)
		require.Len(t, visited(t, s), 2, "another may have put something there just now")
		for range 5 {
			<-time.After(2 * due.Spell)
			visited(t, s)
			require.Equal(t, []string{"t1"}, visited(t, s))
		}
		take(t, store, all.refs[1].Scope, ledger.ByHold, "m")
		<-time.After(2 * due.Spell)
		visited(t, s)
		require.Empty(t, visited(t, s))
		require.NoError(t, put(t, s.Watch(store), all.refs[0].Scope, ledger.ByLease, "m"))
		require.Equal(t, []string{"t0"}, visited(t, s))
	})
}

// What an earlier release left, or a store that lost its marks has, is found.
func TestUnmarkedScopesAreFoundAtLast(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(3)
		require.NoError(t, put(t, store, all.refs[1].Scope, ledger.ByHold, "m"))
		s := due.New(store, all)
		require.Equal(t, []string{"t1"}, visited(t, s))
		require.NoError(t, put(t, store, all.refs[2].Scope, ledger.ByLease, "m"))
		require.NoError(t, s.Look(t.Context()))
		require.Equal(t, []string{"t1"}, visited(t, s))
		<-time.After(due.Spell)
		asked := all.asked.Load()
		require.Equal(t, []string{"t1"}, visited(t, s))
		require.Equal(t, asked, all.asked.Load(), "a round is not kept waiting")
		require.NoError(t, s.Look(t.Context()))
		require.ElementsMatch(t, []string{"t1", "t2"}, visited(t, s))
		require.NoError(t, put(t, store, all.refs[0].Scope, ledger.ByLease, "m"))
		<-time.After(2 * due.Spell)
		require.Len(t, visited(t, s), 3, "though nobody looked")
	})
}

// A scope where nobody lives keeps no other from being visited.
func TestAMarkOfNobody(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		s := due.New(store, all)
		require.NoError(t, put(t, s.Watch(store), ledger.ScopeOf("gone"), ledger.ByLease, "m"))
		require.NoError(t, put(t, s.Watch(store), all.refs[0].Scope, ledger.ByLease, "m"))
		require.NoError(t, put(t, store, ledger.Platform, ledger.ByDue, "nonsense"))
		require.Equal(t, []string{"t0"}, visited(t, s))
		stop := errors.New("stop")
		require.ErrorIs(t, s.Refs(t.Context(), func(tenants.Ref) error { return stop }), stop)
	})
}

// Who waits for another's mark waits no longer than its caller.
func TestWaitingForAMarkEndsWithTheCaller(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		gate := make(chan struct{})
		slow := &slowStore{Store: store, gate: gate}
		s := due.New(slow, all)
		watched := s.Watch(store)
		done := make(chan error)
		go func() { done <- put(t, watched, all.refs[0].Scope, ledger.ByLease, "m") }()
		synctest.Wait()
		ctx, hangUp := context.WithCancel(t.Context())
		hangUp()
		_, err := watched.Apply(ctx, all.refs[0].Scope, ledger.Step{Index: []ledger.Entry{{Index: ledger.ByLease}}})
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
		close(gate)
		require.NoError(t, <-done)
	})
}

type slowStore struct {
	ledger.Store
	gate chan struct{}
}

func (s *slowStore) Apply(ctx context.Context, scope ledger.Scope, step ledger.Step) (ledger.Result, error) {
	<-s.gate
	return s.Store.Apply(ctx, scope, step)
}

// What moves something that is there needs no mark: a store that takes nothing new
// (its memory is full, or the platform's part of it is away) must still take it.
func TestWhatIsThereMovesWithoutAMark(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		s := due.New(store, all)
		watched := s.Watch(store)
		scope := all.refs[0].Scope
		require.NoError(t, put(t, watched, scope, ledger.ByLease, "m"))
		<-time.After(due.Spell)
		store.fails.Store(true)
		move := func(from, to ledger.Index) error {
			res, err := watched.Apply(t.Context(), scope, ledger.Step{
				Nonce: ledger.NewNonce(), At: store.Now(),
				Unindex: []ledger.Entry{{Index: from, Score: time.UnixMilli(1), Member: "m"}},
				Index:   []ledger.Entry{{Index: to, Score: time.UnixMilli(1), Member: "m"}},
			})
			require.True(t, err != nil || res.Applied)
			return err
		}
		require.NoError(t, move(ledger.ByLease, ledger.ByLease))
		require.NoError(t, move(ledger.ByLease, ledger.ByHold))
		require.NoError(t, move(ledger.ByHold, ledger.ByHold))
		require.ErrorIs(t, move(ledger.ByHold, ledger.ByLease), ledger.ErrUnavailable,
			"who reads leases first could see neither")
	})
}

// A tenant, or the list of them, that cannot be read keeps no marked one waiting.
func TestTheMarkedAreVisitedThoughNotAllCanBeGoneThrough(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		damaged := &damagedList{people: all}
		s := due.New(store, damaged)
		require.NoError(t, put(t, s.Watch(store), all.refs[0].Scope, ledger.ByLease, "m"))
		went := 0
		each := func(tenants.Ref) error { went++; return nil }
		for _, damaged.err = range []error{ledger.ErrCorrupt, ledger.ErrUnavailable} {
			require.ErrorIs(t, s.Refs(t.Context(), each), damaged.err)
		}
		require.Equal(t, 2, went)
		damaged.err = ledger.ErrNotReady
		require.ErrorIs(t, s.Refs(t.Context(), each), ledger.ErrNotReady)
		require.Equal(t, 2, went)
	})
}

type damagedList struct {
	*people
	err error
}

func (d *damagedList) Refs(context.Context, func(tenants.Ref) error) error { return d.err }

// A tenant whose own record cannot be read is visited as the list of tenants has it.
func TestATenantWhoseRecordIsDamagedIsVisited(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		s := due.New(store, damagedRecord{all})
		require.NoError(t, put(t, s.Watch(store), all.refs[0].Scope, ledger.ByLease, "m"))
		require.Equal(t, []string{"t0"}, visited(t, s))
		require.Equal(t, []string{"t0"}, visited(t, s))
	})
}

// So is one that is found while a round is under way.
func TestWhatALookFindsBesideARoundIsKept(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(2)
		s := due.New(store, damagedRecord{all})
		require.NoError(t, put(t, s.Watch(store), all.refs[0].Scope, ledger.ByLease, "m"))
		require.Equal(t, []string{"t0"}, visited(t, s))
		require.NoError(t, put(t, store, all.refs[1].Scope, ledger.ByLease, "m"))
		<-time.After(due.Spell)
		require.NoError(t, s.Refs(t.Context(), func(tenants.Ref) error { return s.Look(t.Context()) }))
		require.ElementsMatch(t, []string{"t0", "t1"}, visited(t, s))
	})
}

type damagedRecord struct{ *people }

func (damagedRecord) RefOf(context.Context, ledger.Scope) (tenants.Ref, bool, error) {
	return tenants.Ref{}, false, ledger.ErrCorrupt
}

// A store that was set back to before a mark gets it again, and what went in without
// one meanwhile is found in the next round.
func TestMarksThatAStoreLostAreMadeAgain(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(2)
		s := due.New(store, all)
		require.Empty(t, visited(t, s))
		for _, ref := range all.refs {
			require.NoError(t, put(t, s.Watch(store), ref.Scope, ledger.ByLease, "m"))
		}
		require.NoError(t, store.Trim(t.Context(), ledger.Platform, ledger.ByDue, time.Now().Add(due.Spell)))
		take(t, store, all.refs[0].Scope, ledger.ByLease, "m")
		require.Empty(t, visited(t, s))
		s.Forget()
		require.Equal(t, []string{"t1"}, visited(t, s))
		require.NoError(t, put(t, s.Watch(store), all.refs[0].Scope, ledger.ByLease, "m"))
		require.Len(t, visited(t, s), 2)
	})
}

// Those that wait for one mark share its failure, unless it is its caller's own.
func TestWaitersDoNotTryOneAfterTheOther(t *testing.T) {
	play(t, func(t *testing.T, store *counting) {
		all := crowd(1)
		stalled := &stalledStore{Store: store}
		watched := due.New(stalled, all).Watch(store)
		began := time.Now()
		var running sync.WaitGroup
		for i := range 64 {
			running.Go(func() {
				_, err := watched.Apply(context.WithoutCancel(t.Context()), all.refs[0].Scope, ledger.Step{
					Nonce: ledger.NewNonce(), At: store.Now(),
					Index: []ledger.Entry{{Index: ledger.ByLease, Member: fmt.Sprint(i)}},
				})
				if err == nil {
					t.Error("nothing was marked")
				}
			})
		}
		running.Wait()
		require.Equal(t, storeTimeout, time.Since(began))
	})
}

const storeTimeout = 2 * time.Second

// stalledStore gives no answer in time.
type stalledStore struct{ ledger.Store }

func (s *stalledStore) Apply(ctx context.Context, _ ledger.Scope, _ ledger.Step) (ledger.Result, error) {
	select {
	case <-time.After(storeTimeout):
	case <-ctx.Done():
	}
	return ledger.Result{}, ledger.ErrUnavailable
}
