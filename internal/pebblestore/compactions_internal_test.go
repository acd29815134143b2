package pebblestore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// fakeEngine has so many compactions to make, and makes each when it is told to.
type fakeEngine struct {
	pebble.DBForCompaction
	scheduler *compactions
	due, made int
	quick     bool   // a compaction is over before Schedule returns
	before    func() // called once, in the next Schedule
}

func (e *fakeEngine) Schedule(pebble.CompactionGrantHandle) bool {
	if f := e.before; f != nil {
		e.before = nil
		f()
		return false // as it was when it was asked
	}
	if e.due == 0 {
		return false
	}
	e.due--
	if e.made++; e.quick {
		e.scheduler.Done()
	}
	return true
}

func newFakeEngine(due int) *fakeEngine {
	e := &fakeEngine{scheduler: newCompactions(), due: due}
	e.scheduler.Register(2, e)
	return e
}

func (e *fakeEngine) try() bool {
	ok, _ := e.scheduler.TrySchedule()
	return ok
}

func TestOneCompactionAtATimeAndNoneBeforeTheBegin(t *testing.T) {
	e := newFakeEngine(3)
	require.False(t, e.try())
	require.Zero(t, e.made)
	e.scheduler.begin()
	require.Equal(t, 1, e.made, "what waited")
	require.False(t, e.try())
	e.scheduler.Done()
	e.scheduler.Done()
	require.Equal(t, 3, e.made)
	e.scheduler.Done()
	require.True(t, e.try(), "nothing waited")
	require.False(t, e.try())
	e.scheduler.Unregister()
	e.scheduler.Done()
	require.False(t, e.try())
	require.Equal(t, 3, e.made)
}

func TestCompactionsThatAreOverAtOnce(t *testing.T) {
	e := newFakeEngine(5)
	e.quick = true
	require.False(t, e.try())
	e.scheduler.begin()
	require.Equal(t, 5, e.made)
	require.True(t, e.try())
}

// An engine that begins to wait while it says that it does not is not left waiting.
func TestACompactionRefusedDuringAnOffer(t *testing.T) {
	e := newFakeEngine(0)
	e.before = func() {
		e.due = 1
		require.False(t, e.try())
	}
	e.scheduler.begin()
	require.Equal(t, 1, e.made)
}

func TestAnEngineThatIsClosedIsNotAskedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine(0)
		answer, closed := make(chan struct{}), make(chan struct{})
		e.before = func() {
			require.False(t, e.try())
			<-answer
		}
		go e.scheduler.begin()
		synctest.Wait()
		go func() { e.scheduler.Unregister(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("closed while it is asked")
		default:
		}
		e.due = 1
		close(answer)
		<-closed
		require.Zero(t, e.made)
	})
}

// TestOpeningWaitsForNoCompaction: what is due is begun when the folder is open.
func TestOpeningWaitsForNoCompaction(t *testing.T) {
	mem := vfs.NewCrashableMem()
	small := func(o *pebble.Options) { o.MemTableSize = 64 << 10 }
	s, err := open("store", Options{FS: mem}, nil, small, func(o *pebble.Options) { o.DisableAutomaticCompactions = true })
	require.NoError(t, err)
	for i := range 300 {
		_, err := s.Apply(t.Context(), ledger.ScopeOf("acme"), ledger.Step{
			Nonce: ledger.NewNonce(), At: s.Now(),
			Put: []ledger.Put{{Key: ledger.Key{Kind: ledger.Meta, ID: fmt.Sprint(i * 7919 % 300)}, Data: make([]byte, 2000)}},
		})
		require.NoError(t, err)
	}
	killed := mem.CrashClone(vfs.CrashCloneCfg{})
	require.NoError(t, s.Close())

	early, begun := false, make(chan struct{}, 1)
	s, err = open("store", Options{FS: killed}, nil, small, func(o *pebble.Options) {
		scheduler := o.Experimental.CompactionScheduler.(*compactions)
		o.EventListener.CompactionBegin = func(pebble.CompactionInfo) {
			scheduler.mu.Lock()
			early = early || !scheduler.begun
			scheduler.mu.Unlock()
			select {
			case begun <- struct{}{}:
			default:
			}
		}
	})
	require.NoError(t, err)
	select {
	case <-begun:
	case <-time.After(10 * time.Second):
		t.Fatal("no compaction was due")
	}
	require.NoError(t, s.Close())
	require.False(t, early)
}
