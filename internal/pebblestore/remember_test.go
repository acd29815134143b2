package pebblestore_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// twin is a store beside one that remembers nothing, on one clock. Both are given
// the same steps and must say the same.
type twin struct {
	t      *testing.T
	rng    *rand.Rand
	clock  *fakeClock
	most   int // bytes that the first may remember
	stores [2]*pebblestore.Store
	disks  [2]*faults
	ticks  [2]chan time.Time
	known  map[ledger.Key]ledger.Version // as the test believes, often wrongly
}

func newTwin(t *testing.T, seed uint64, most int) *twin {
	w := &twin{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), clock: newFakeClock(), most: most,
		known: map[ledger.Key]ledger.Version{},
	}
	for i := range w.disks {
		w.disks[i] = newFaults(vfs.NewMem())
	}
	w.open()
	t.Cleanup(func() {
		for _, s := range w.stores {
			_ = s.Close()
		}
	})
	return w
}

func (w *twin) open() {
	for i := range w.stores {
		w.ticks[i] = make(chan time.Time)
		s, err := pebblestore.OpenTicked("store", pebblestore.Options{FS: w.disks[i], Clock: w.clock.Now}, w.ticks[i])
		require.NoError(w.t, err)
		s.Remember([2]int{w.most, 0}[i])
		w.stores[i] = s
	}
}

// each does the same to both.
func (w *twin) each(do func(s *pebblestore.Store, i int) error) {
	w.t.Helper()
	for i, s := range w.stores {
		require.NoError(w.t, do(s, i))
	}
}

func (w *twin) key() ledger.Key {
	return ledger.Key{Kind: ledger.Action, ID: fmt.Sprint(w.rng.IntN(12))}
}

// counter is mostly one of its own, sometimes where a value may stand.
func (w *twin) counter() ledger.Key {
	if w.rng.IntN(8) == 0 {
		return w.key()
	}
	return ledger.Key{Kind: ledger.Replays, ID: fmt.Sprint(w.rng.IntN(4))}
}

func (w *twin) ends() time.Time {
	if w.rng.IntN(2) == 0 {
		return time.Time{}
	}
	return w.stores[0].Now().Add(time.Duration(w.rng.IntN(4000)-200) * time.Millisecond)
}

func (w *twin) scope() ledger.Scope { return ledger.ScopeOf(fmt.Sprint(w.rng.IntN(3))) }

func (w *twin) step() ledger.Step {
	step := ledger.Step{At: w.stores[0].Now()}
	for i := range step.Nonce {
		step.Nonce[i] = byte(w.rng.Uint32())
	}
	for range w.rng.IntN(3) {
		k := w.key()
		if w.rng.IntN(6) == 0 {
			k = w.counter()
		}
		step.Expect = append(step.Expect, ledger.Expect{Key: k, Version: w.known[k]})
		step.Fetch = append(step.Fetch, ledger.Fetch{Key: k})
	}
	for range w.rng.IntN(2) {
		step.Delete = append(step.Delete, w.key())
	}
	for i := range w.rng.IntN(3) {
		step.Put = append(step.Put, ledger.Put{Key: w.key(), Data: step.Nonce[:i+3], Expires: w.ends()})
	}
	for range w.rng.IntN(3) {
		a := ledger.Add{Key: w.counter(), Delta: w.rng.Int64N(9) - 3, Expires: w.ends()}
		if w.rng.IntN(10) == 0 {
			a.Delta = math.MaxInt64 // too much, unless it begins there
		}
		step.Add = append(step.Add, a)
	}
	if w.rng.IntN(2) == 0 {
		step.Rows = append(step.Rows, step.Nonce[:])
	}
	return step
}

// learn takes over what a step that was made or refused tells.
func (w *twin) learn(step ledger.Step, res ledger.Result) {
	if !res.Applied {
		for _, f := range step.Fetch {
			w.known[f.Key] = res.Values[f.Key].Version
		}
		return
	}
	for _, k := range step.Delete {
		delete(w.known, k)
	}
	for _, p := range step.Put {
		w.known[p.Key] = step.Nonce.Version()
	}
}

// apply gives both a step. The first store's disk may be failing: what it then
// cannot decide is not made, and the other is not asked.
func (w *twin) apply() {
	w.t.Helper()
	scope, step := w.scope(), w.step()
	failing := w.rng.IntN(6) == 0
	if failing {
		w.disks[0].fail(tableRead, syscall.EIO)
	}
	res, err := w.stores[0].Apply(w.t.Context(), scope, step)
	w.disks[0].fail(nil, nil)
	if errors.Is(err, ledger.ErrUnavailable) || failing && err != nil {
		return // also one that came just behind: the engine opens a file for all who wait
	}
	want, failed := w.stores[1].Apply(w.t.Context(), scope, step)
	require.Equal(w.t, fmt.Sprint(failed), fmt.Sprint(err))
	require.Equal(w.t, want, res)
	if err == nil {
		w.learn(step, res)
	}
}

// together gives the first store steps of one scope as a group, and the other one
// after another.
func (w *twin) together() {
	w.t.Helper()
	scope, steps := w.scope(), make([]ledger.Step, w.rng.IntN(12))
	for i := range steps {
		if steps[i] = w.step(); i > 0 && w.rng.IntN(3) == 0 { // on what stands once the one before is made
			steps[i].Expect = nil
			for _, p := range steps[i-1].Put {
				steps[i].Expect = append(steps[i].Expect, ledger.Expect{Key: p.Key, Version: steps[i-1].Nonce.Version()})
			}
		}
	}
	res, errs := w.stores[0].Together(w.t.Context(), scope, steps...)
	for i, step := range steps {
		want, failed := w.stores[1].Apply(w.t.Context(), scope, step)
		require.Equal(w.t, fmt.Sprint(failed), fmt.Sprint(errs[i]))
		require.Equal(w.t, want, res[i])
		if failed == nil {
			w.learn(step, want)
		}
	}
}

// turn is one of the things that happen to a store.
func (w *twin) turn() {
	w.t.Helper()
	switch n := w.rng.IntN(100); {
	case n == 0:
		w.each(func(s *pebblestore.Store, _ int) error { return s.Close() })
		w.open()
	case n < 5:
		w.each(func(s *pebblestore.Store, _ int) error { return s.Flush() })
	case n < 15: // the expirer looks, while the next steps are made
		for _, c := range w.ticks {
			c <- time.Time{}
		}
	case n < 30:
		w.clock.Advance(time.Duration(w.rng.IntN(900)) * time.Millisecond)
	case n < 55:
		w.together()
	default:
		w.apply()
	}
}

// check compares what the two hold, and the first with what it remembers.
func (w *twin) check() {
	w.t.Helper()
	n, err := w.stores[0].Stale()
	require.NoError(w.t, err)
	require.Zero(w.t, n, "remembered otherwise than it is")
	first, err := w.stores[0].Living()
	require.NoError(w.t, err)
	other, err := w.stores[1].Living()
	require.NoError(w.t, err)
	require.Equal(w.t, other, first)
}

// A store that remembers what stands under its keys, and makes steps in groups, says
// and writes what one does that asks the engine each time and makes one at a time.
func TestWhatIsRememberedChangesNothing(t *testing.T) {
	for name, most := range map[string]int{"all": 1 << 20, "little": 2000, "nearly nothing": 400} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(3) {
				w := newTwin(t, seed, most)
				for i := range 300 {
					w.turn()
					if i%50 == 49 {
						w.check()
					}
				}
				for _, s := range w.stores {
					require.NoError(t, s.Close())
				}
			}
		})
	}
}

// Conditions are answered from memory, so one that were stale would be noticed.
func TestConditionsAreAnsweredFromMemory(t *testing.T) {
	disk := newFaults(vfs.NewMem())
	s := open(t, "store", pebblestore.Options{FS: disk, Clock: newFakeClock().Now})
	a := must(t, s, ledger.Step{Nonce: ledger.Nonce{1}, Put: []ledger.Put{put("a", "one")}, Delete: []ledger.Key{key("none")}})
	must(t, s, ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: 7}}})
	require.True(t, a.Applied)
	require.NoError(t, s.Flush())

	disk.fail(tableRead, syscall.EIO)
	res := must(t, s, ledger.Step{
		Expect: []ledger.Expect{{Key: key("a"), Version: ledger.Version{1}}, {Key: key("none")}},
		Add:    []ledger.Add{{Key: key("n"), Delta: 1}},
	})
	require.Equal(t, []int64{8}, res.Counters)
	disk.fail(nil, nil)

	n, err := s.Stale()
	require.NoError(t, err)
	require.Zero(t, n)
	s.Misremember(scope, key("a"), key("none"))
	n, err = s.Stale()
	require.NoError(t, err)
	require.Equal(t, 1, n, "the check of these tests sees what is wrong")
}

// A step that was not made, because it could not be built, leaves no trace.
func TestAStepThatFailedIsNotRemembered(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem(), Clock: newFakeClock().Now})
	must(t, s, ledger.Step{Nonce: ledger.Nonce{1}, Put: []ledger.Put{put("a", "one")}})
	must(t, s, ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: 1}}})
	_, err := s.Apply(t.Context(), scope, ledger.Step{
		Nonce: ledger.Nonce{2}, At: s.Now(),
		Delete: []ledger.Key{key("a")}, Put: []ledger.Put{put("b", "two")},
		Add: []ledger.Add{{Key: key("m"), Delta: 1}, {Key: key("n"), Delta: math.MaxInt64}},
	})
	require.ErrorContains(t, err, "does not fit")
	res := must(t, s, ledger.Step{
		Expect: []ledger.Expect{{Key: key("a"), Version: ledger.Version{1}}, {Key: key("b")}, {Key: key("m")}},
		Add:    []ledger.Add{{Key: key("n"), Delta: 1}},
	})
	require.Equal(t, []int64{2}, res.Counters)
}

// What the memory takes is bounded, however many scopes there are.
func TestTheMemoryIsBounded(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem(), Clock: newFakeClock().Now})
	const most = 1 << 20
	s.Remember(most)
	heap := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			step := ledger.Step{Nonce: ledger.NewNonce(), At: s.Now()}
			for j := range 16 {
				step.Expect = append(step.Expect, ledger.Expect{Key: key(fmt.Sprintf("%032d", j))})
			}
			res, err := s.Apply(t.Context(), ledger.ScopeOf(fmt.Sprint(i)), step)
			require.NoError(t, err)
			require.True(t, res.Applied)
		}
	}
	fill(0, 20) // what the engine and the stripes take
	before := heap()
	fill(20, 1000)
	require.Less(t, heap()-before, most*5/4)
	require.Less(t, s.Remembered(), 1000*16/2, "the oldest are forgotten")
	require.Greater(t, s.Remembered(), most/2/300)
}

// Steps of many scopes at once keep the memory exact.
func TestTheMemoryIsExactUnderLoad(t *testing.T) {
	s := open(t, "store", pebblestore.Options{FS: vfs.NewMem(), Clock: newFakeClock().Now})
	s.Remember(3000)
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 1))
			for range 200 {
				sc := ledger.ScopeOf(fmt.Sprint(rng.IntN(3)))
				step := ledger.Step{Nonce: ledger.NewNonce(), At: s.Now()}
				step.Put = []ledger.Put{put(fmt.Sprint(rng.IntN(9)), "data")}
				step.Delete = []ledger.Key{key(fmt.Sprint(rng.IntN(9)))}
				step.Add = []ledger.Add{{Key: ledger.Key{Kind: ledger.Replays}, Delta: 1}}
				if _, err := s.Apply(t.Context(), sc, step); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	n, err := s.Stale()
	require.NoError(t, err)
	require.Zero(t, n)
}
