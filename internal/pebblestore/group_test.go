package pebblestore_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// later is a step on the value that another has put.
func later(s *pebblestore.Store, of ledger.Step, id string) ledger.Step {
	step := claim(s, id)
	step.Expect = append(step.Expect, ledger.Expect{Key: of.Put[0].Key, Version: of.Nonce.Version()})
	return step
}

func TestAStepSeesThoseOfItsGroupBeforeIt(t *testing.T) {
	for name, most := range map[string]int{"remembered": 1 << 20, "forgotten at once": 0} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
			s.Remember(most)
			first := claim(s, "a")
			first.Add = []ledger.Add{{Key: key("n"), Delta: 2}}
			second := later(s, first, "b")
			second.Add = []ledger.Add{{Key: key("n"), Delta: 3}}
			second.Delete = []ledger.Key{key("a")}
			third := later(s, second, "a") // again absent
			third.Add = []ledger.Add{{Key: key("n"), Delta: 5}}
			void := ledger.Step{Nonce: ledger.NewNonce(), At: s.Now(), Void: []ledger.Nonce{{9}}}
			voided := claim(s, "c")
			voided.Nonce = ledger.Nonce{9}

			res, errs := s.Together(t.Context(), scope, first, second, third, second, void, voided)
			require.Equal(t, make([]error, 6), errs)
			require.Equal(t, []int64{2}, res[0].Counters)
			require.Equal(t, []int64{5}, res[1].Counters)
			require.Equal(t, []int64{10}, res[2].Counters)
			require.Equal(t, res[1], res[3], "a nonce again")
			require.True(t, res[4].Applied)
			require.True(t, res[5].Voided)

			require.Len(t, allRows(t, s), 3)
			n, _ := get(t, s, "n")
			require.Equal(t, "10", n)
			for _, id := range []string{"a", "b"} {
				_, exists := get(t, s, id)
				require.True(t, exists, id)
			}
			_, exists := get(t, s, "c")
			require.False(t, exists)
		})
	}
}

func TestARefusedStepIsShownWhatItsGroupMadeBeforeIt(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
	first, behind := claim(s, "a"), claim(s, "c")
	refused := claim(s, "a")
	refused.Fetch = append(refused.Fetch, ledger.Fetch{Key: key("c")})
	late := claim(s, "d")
	late.Before = s.Now()
	late.Fetch = []ledger.Fetch{{Key: key("c")}}
	res, errs := s.Together(t.Context(), scope, first, refused, behind, late)
	require.Equal(t, make([]error, 4), errs)
	require.False(t, res[1].Applied)
	v, exists := res[1].Get(key("a"))
	require.True(t, exists)
	require.Equal(t, first.Nonce.Version(), v.Version)
	_, exists = res[1].Get(key("c"))
	require.False(t, exists, "made behind it")
	require.True(t, res[2].Applied)
	require.False(t, res[3].Applied)
	_, exists = res[3].Get(key("c"))
	require.True(t, exists)
	require.Len(t, allRows(t, s), 2)
}

func TestAStepThatFailsLeavesNothingInItsGroup(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
	must(t, s, claim(s, "value"))
	must(t, s, ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: math.MaxInt64}}})
	require.NoError(t, s.Corrupt(scope, key("torn"), []byte("x")))
	fails := func(id string, bad ledger.Add) ledger.Step {
		step := claim(s, id)
		step.Delete = []ledger.Key{key("value")}
		step.Add = []ledger.Add{{Key: key("m"), Delta: 1}, bad}
		step.Index = []ledger.Entry{{Index: ledger.ByName, Score: s.Now(), Member: id}}
		return step
	}
	full, ofValue := fails("1", ledger.Add{Key: key("n"), Delta: 1}), fails("2", ledger.Add{Key: key("a"), Delta: 1})
	torn := fails("3", ledger.Add{Key: key("torn"), Delta: 1})
	last := claim(s, "b")
	last.Add = []ledger.Add{{Key: key("m"), Delta: 1}}
	before := len(allRows(t, s))
	res, errs := s.Together(t.Context(), scope, claim(s, "a"), full, ofValue, torn, last)
	require.NoError(t, errs[0])
	require.ErrorContains(t, errs[1], "does not fit")
	require.ErrorIs(t, errs[2], ledger.ErrCorrupt)
	require.ErrorIs(t, errs[3], ledger.ErrCorrupt)
	require.NoError(t, errs[4])
	require.Equal(t, []int64{1}, res[4].Counters)

	require.NoError(t, s.Ready(t.Context()))
	require.Len(t, allRows(t, s), before+2)
	_, exists := get(t, s, "value")
	require.True(t, exists)
	entries, err := s.Entries(t.Context(), scope, ledger.EntryRange{Index: ledger.ByName, Limit: 9})
	require.NoError(t, err)
	require.Empty(t, entries)
	n, err := s.Stale()
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestNothingOfAGroupIsMadeIfOnePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		must(t, s, claim(s, "before"))
		keys := s.RawKeys(pebblestore.TagScope)
		release := s.Hold(scope)
		errs := make(chan error, 20)
		for i := range 5 {
			go func() { _, err := s.Apply(t.Context(), scope, claim(s, fmt.Sprint(i))); errs <- err }()
		}
		synctest.Wait()
		go func() { errs <- s.Panic(t.Context(), scope, errors.New("a fault")) }()
		synctest.Wait()
		for i := range 5 {
			go func() { _, err := s.Apply(t.Context(), scope, claim(s, fmt.Sprint("behind", i))); errs <- err }()
			go func() { _, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("0")}); errs <- err }()
		}
		synctest.Wait()
		release()
		for range 16 {
			require.ErrorIs(t, <-errs, ledger.ErrUnavailable)
		}
		require.Equal(t, keys, s.RawKeys(pebblestore.TagScope))
		_ = s.Close()
		require.NoError(t, s.CloseEngine())
	})
}

// What is read in the turn between two steps is the state between them.
func TestAReadIsOfItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
		release := s.Hold(scope)
		queue := func(call func()) {
			go call()
			synctest.Wait()
		}
		errs, seen, rows := make(chan error, 3), make(chan int, 2), make(chan int, 2)
		apply := func(id string) func() {
			return func() { _, err := s.Apply(t.Context(), scope, claim(s, id)); errs <- err }
		}
		read := func() {
			snap, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("a")}, ledger.Fetch{Key: key("b")}, ledger.Fetch{Key: key("c")})
			seen <- len(snap.Values)
			errs <- err
		}
		list := func() { rows <- len(allRows(t, s)) }
		queue(apply("a"))
		queue(read)
		queue(apply("b"))
		queue(list)
		queue(apply("c"))
		release()
		for range 4 {
			require.NoError(t, <-errs)
		}
		require.Equal(t, 1, <-seen)
		require.Equal(t, 2, <-rows)
	})
}

// A scope whose newest row was forgotten while its group is being made does not put
// the next in its place.
func TestARowComesBehindThoseOfItsGroupThoughTheyWereForgotten(t *testing.T) {
	clock := newFakeClock()
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem(), Clock: clock.Now})
	steps := []ledger.Step{claim(s, "a"), claim(s, "b"), claim(s, "c")}
	n, err := s.FirstForgetting(t.Context(), scope, steps...)
	require.NoError(t, err)
	require.Equal(t, len(steps), n)
	rows := allRows(t, s)
	require.Len(t, rows, len(steps))
	for i, r := range rows {
		require.Equal(t, steps[i].Rows[0], r.Data)
	}
}

// All who wait for a stripe are one group: one write to the log, and one sync.
func TestStepsThatWaitTogetherShareAWrite(t *testing.T) {
	disk := newFaults(vfs.NewMem())
	s := open(t, "store", pebblestore.Options{FS: disk})
	must(t, s, claim(s, "before"))
	var writes, syncs atomic.Int32
	disk.fail(func(op errorfs.Op) bool {
		if logWrite(op) {
			writes.Add(1)
		}
		if logSync(op) {
			syncs.Add(1)
		}
		return false
	}, nil)
	steps := make([]ledger.Step, 32)
	for i := range steps {
		steps[i] = claim(s, fmt.Sprint(i))
	}
	_, errs := s.Together(t.Context(), scope, steps...)
	require.Equal(t, make([]error, 32), errs)
	require.EqualValues(t, 1, writes.Load())
	require.EqualValues(t, 1, syncs.Load())
	require.Len(t, allRows(t, s), 33)
}

// A group is bounded, so that the first of it does not wait for all there are.
func TestGroupsAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ steps, size, first int }{
		"few":   {10, 10, 10},
		"many":  {pebblestore.GroupMost + 10, 10, pebblestore.GroupMost},
		"large": {5, pebblestore.GroupBytes/2 + 1, 2},
		"huge":  {3, pebblestore.GroupBytes, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
			steps := make([]ledger.Step, c.steps)
			for i := range steps {
				steps[i] = claim(s, fmt.Sprint(i))
				steps[i].Put[0].Data = []byte(strings.Repeat("x", c.size))
			}
			n, err := s.First(t.Context(), scope, steps...)
			require.NoError(t, err)
			require.Equal(t, c.first, n)
			require.Len(t, allRows(t, s), n)
		})
	}
}

// Behind a disk that hangs a stripe keeps some groups, each of which is one goroutine,
// and no callers; of the steps that were not begun there is nothing.
func TestADiskThatHangsKeepsFewGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		must(t, s, claim(s, "before"))
		release := disk.hold(logSync)
		const callers = 50
		errs := make(chan error, callers)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for i := range callers {
			go func() { _, err := s.Apply(ctx, scope, claim(s, fmt.Sprintf("%02d", i))); errs <- err }()
			synctest.Wait()
		}
		groups, waiting := s.Stripe(scope)
		require.Equal(t, pebblestore.StripeGroups, groups)
		require.Equal(t, callers-groups, waiting)
		for range callers {
			require.ErrorIs(t, <-errs, ledger.ErrUnavailable)
		}
		synctest.Wait()
		groups, waiting = s.Stripe(scope)
		require.Equal(t, pebblestore.StripeGroups, groups)
		require.Zero(t, waiting)

		release(nil)
		must(t, s, claim(s, "after"))
		require.Len(t, allRows(t, s), 1+pebblestore.StripeGroups+1)
		require.NoError(t, s.Close())
	})
}

// A step whose caller leaves while it waits is taken out, wherever it stands; the
// others are made.
func TestAStepWhoseCallerLeftWhileItWaitedIsNotMade(t *testing.T) {
	for _, leaving := range []string{"first", "second", "third"} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
			release := s.Hold(scope)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			errs := map[string]chan error{}
			apply := func(id string) {
				c := make(chan error, 1)
				errs[id] = c
				of := t.Context()
				if id == leaving {
					of = ctx
				}
				go func() { _, err := s.Apply(of, scope, claim(s, id)); c <- err }()
				synctest.Wait()
			}
			apply("first")
			apply("second")
			apply("third")
			cancel()
			require.ErrorIs(t, <-errs[leaving], context.Canceled)
			apply("fourth")
			release()
			for id, c := range errs {
				if id != leaving {
					require.NoError(t, <-c)
				}
				_, exists := get(t, s, id)
				require.Equal(t, id != leaving, exists)
			}
		})
	}
}

// So is one whose caller has not gone yet though its context has ended.
func TestAStepWhoseContextEndedIsNotBegun(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, errs := s.Together(ctx, scope, claim(s, "a"), claim(s, "b"))
	for _, err := range errs {
		require.ErrorIs(t, err, ledger.ErrUnavailable)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Empty(t, allRows(t, s))
	require.NoError(t, s.Close(), "nothing waits for them")
}

// Reading may take long, so no step of the scope waits for it.
func TestAReadThatHangsKeepsNoStepWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newFaults(vfs.NewMem())
		s := open(t, "store", pebblestore.Options{FS: disk})
		must(t, s, claim(s, "a"))
		require.NoError(t, s.Flush())
		release := disk.hold(tableRead)
		const readers = 3 * pebblestore.StripeGroups
		reads := make(chan error, readers)
		for i := range readers {
			go func() { _, err := s.Read(t.Context(), scope, ledger.Fetch{Key: key("a")}); reads <- err }()
			if i%2 == 0 {
				synctest.Wait()
			}
		}
		must(t, s, ledger.Step{Put: []ledger.Put{put("b", "of another")}})
		require.Empty(t, reads)
		release(nil)
		for range readers {
			require.NoError(t, <-reads)
		}
	})
}
