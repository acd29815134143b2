package pebblestore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// expiring is a store whose expirer looks when the test says so.
type expiring struct {
	*pebblestore.Store
	t     *testing.T
	clock *fakeClock
	ticks chan time.Time
}

func newExpiring(t *testing.T) *expiring {
	x := &expiring{t: t, clock: newFakeClock(), ticks: make(chan time.Time)}
	var err error
	x.Store, err = pebblestore.OpenTicked("store", pebblestore.Options{FS: vfs.NewMem(), Clock: x.clock.Now}, x.ticks)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// look lets the expirer look, and returns when it has: a tick is taken only when
// the one before is dealt with.
func (x *expiring) look() {
	x.ticks <- time.Time{}
	x.ticks <- time.Time{}
}

func (x *expiring) put(id string, in time.Duration) {
	x.t.Helper()
	p := put(id, "data")
	if in != 0 {
		p.Expires = x.Now().Add(in)
	}
	must(x.t, x.Store, ledger.Step{Put: []ledger.Put{p}})
}

// left counts stored values and notes of expiry.
func (x *expiring) left() (values, notes int) {
	return x.RawKeys(pebblestore.TagScope), x.RawKeys(pebblestore.TagExpiry)
}

func (x *expiring) expect(values, notes int) {
	x.t.Helper()
	v, n := x.left()
	require.Equal(x.t, [2]int{values, notes}, [2]int{v, n}, "values and notes left")
}

func TestExpirerDeletesWhatIsDue(t *testing.T) {
	x := newExpiring(t)
	x.put("soon", time.Minute)
	x.put("later", time.Hour)
	x.put("never", 0)
	must(t, x.Store, ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: 1, Expires: x.Now().Add(time.Minute)}}})
	x.expect(4, 3)

	x.look()
	x.expect(4, 3)
	x.clock.Advance(time.Minute - time.Millisecond)
	x.look()
	x.expect(4, 3)
	x.clock.Advance(time.Millisecond)
	x.look()
	x.expect(2, 1)
	x.clock.Advance(time.Hour)
	x.look()
	x.expect(1, 0)
	_, exists := get(t, x.Store, "never")
	require.True(t, exists)
}

func TestValuesOfAStepThatEndTogetherShareANote(t *testing.T) {
	x := newExpiring(t)
	end := x.Now().Add(time.Minute)
	step := ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: 1, Expires: end}}}
	for _, id := range []string{"", "a", string(make([]byte, 255))} {
		p := put(id, "data")
		p.Expires = end
		step.Put = append(step.Put, p)
	}
	later := put("later", "data")
	later.Expires = end.Add(time.Hour)
	step.Put = append(step.Put, later)
	must(t, x.Store, step)
	x.expect(5, 2)
	x.clock.Advance(time.Minute)
	x.look()
	x.expect(1, 1)
	x.clock.Advance(time.Hour)
	x.look()
	x.expect(0, 0)
}

func TestTheNoteOfOneStepDoesNotReplaceAnothers(t *testing.T) {
	x := newExpiring(t)
	x.put("a", time.Minute)
	x.put("b", time.Minute)
	x.expect(2, 2)
	x.clock.Advance(time.Minute)
	x.look()
	x.expect(0, 0)
}

func TestACounterThatEndsWhenItDidIsNotNotedAgain(t *testing.T) {
	x := newExpiring(t)
	end := x.Now().Add(time.Minute)
	add := func(delta int64, end time.Time) {
		t.Helper()
		must(t, x.Store, ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: delta, Expires: end}}})
	}
	for range 3 {
		add(1, end)
		x.expect(1, 1)
	}
	must(t, x.Store, ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: 1, Expires: end}, {Key: key("n"), Delta: 1, Expires: end}}})
	x.expect(1, 1)
	add(1, end.Add(time.Hour)) // another end
	x.expect(1, 2)
	add(1, time.Time{}) // none
	x.expect(1, 2)
	add(1, end) // the first again
	x.expect(1, 2+1)
	n, _ := get(t, x.Store, "n")
	require.Equal(t, "8", n)

	x.clock.Advance(time.Minute)
	x.look()
	x.expect(0, 1)
	end = x.Now().Add(time.Minute)
	add(1, end)
	must(t, x.Store, ledger.Step{Delete: []ledger.Key{key("n")}, Add: []ledger.Add{{Key: key("n"), Delta: 1, Expires: end}}})
	x.clock.Advance(time.Hour)
	x.look()
	x.expect(0, 0)
}

// A counter that has ended is another one when it is added to again.
func TestACounterThatBeginsAnewIsNoted(t *testing.T) {
	x := newExpiring(t)
	for range 3 {
		must(t, x.Store, ledger.Step{Add: []ledger.Add{{Key: key("n"), Delta: 1, Expires: x.Now().Add(time.Second)}}})
		x.clock.Advance(time.Minute)
	}
	x.expect(1, 3)
	x.look()
	x.expect(0, 0)
}

// A note stays until the last value it names is gone, however often the expirer is
// cut short.
func TestExpirerTakesTurns(t *testing.T) {
	x := newExpiring(t)
	step := ledger.Step{}
	for i := range 5 {
		p := put(fmt.Sprint(i), "data")
		p.Expires = x.Now().Add(time.Minute)
		step.Put = append(step.Put, p)
	}
	must(t, x.Store, step)
	x.clock.Advance(time.Minute)
	for left := 4; left >= 0; left-- {
		n, err := x.ExpireTurns(5 - left)
		require.NoError(t, err)
		require.Equal(t, 5-left, n)
		x.expect(left, min(left, 1))
		if left > 0 {
			p := put(fmt.Sprint(4-left), "data")
			p.Expires = x.Now().Add(-time.Hour) // nothing
			must(t, x.Store, ledger.Step{Put: []ledger.Put{p}})
		}
	}
}

func TestExpirerReadsNotesOfFormat1(t *testing.T) {
	x := newExpiring(t)
	x.put("a", time.Minute)
	x.put("b", time.Minute)
	x.RawEachNoteApart(t)
	x.expect(2, 2)
	x.put("b", time.Hour)
	x.clock.Advance(time.Minute)
	x.look()
	x.expect(1, 1)
	_, exists := get(t, x.Store, "b")
	require.True(t, exists)
}

func TestExpirerLeavesWhatWasPutAgain(t *testing.T) {
	x := newExpiring(t)
	x.put("stays", time.Minute)
	x.put("stays", 0)
	x.put("longer", time.Minute)
	x.put("longer", time.Hour)
	x.put("shorter", time.Hour)
	x.put("shorter", time.Minute)
	must(t, x.Store, ledger.Step{Delete: []ledger.Key{key("gone")}})
	x.put("gone", time.Minute)
	must(t, x.Store, ledger.Step{Delete: []ledger.Key{key("gone")}})
	x.expect(3, 6)

	x.clock.Advance(2 * time.Minute)
	x.look()
	x.expect(2, 2) // of "longer" and the first of "shorter"
	for _, id := range []string{"stays", "longer"} {
		_, exists := get(t, x.Store, id)
		require.True(t, exists, id)
	}
	x.clock.Advance(time.Hour)
	x.look()
	x.expect(1, 0)
}

func TestExpirerFindsLaterValuesWhereItLeftOff(t *testing.T) {
	x := newExpiring(t)
	for range 5 {
		x.put("a", time.Second)
		x.clock.Advance(time.Minute)
		x.look()
		x.expect(0, 0)
	}
}

func TestExpirerLeavesAnUnreadableValue(t *testing.T) {
	x := newExpiring(t)
	x.put("bad", time.Minute)
	x.put("good", time.Minute)
	require.NoError(t, x.Corrupt(scope, key("bad"), []byte("?")))
	x.clock.Advance(time.Hour)
	x.look()
	x.expect(1, 0)
	_, err := x.Read(context.Background(), scope, ledger.Fetch{Key: key("bad")})
	require.ErrorIs(t, err, ledger.ErrCorrupt)
}

func TestExpirerDropsANoteItCannotRead(t *testing.T) {
	x := newExpiring(t)
	require.NoError(t, x.RawSet([]byte{pebblestore.TagExpiry, 0, 1, 2}, nil))
	x.put("good", time.Minute)
	x.clock.Advance(time.Hour)
	x.look()
	x.expect(0, 0)
}

func TestAValueThatHasEndedIsNotWritten(t *testing.T) {
	x := newExpiring(t)
	x.put("a", time.Hour)
	x.put("a", -time.Millisecond)
	x.expect(0, 1)
	p := put("epoch", "data")
	p.Expires = time.UnixMilli(0)
	must(t, x.Store, ledger.Step{Put: []ledger.Put{p}})
	x.expect(0, 1)
}

func TestATrimmedIndexLeavesNothing(t *testing.T) {
	x := newExpiring(t)
	now := x.Now()
	e := ledger.Entry{Index: ledger.ByLease, Score: now.Add(-time.Second), Member: "m"}
	must(t, x.Store, ledger.Step{Index: []ledger.Entry{e}})
	require.NoError(t, x.Trim(t.Context(), scope, ledger.ByLease, now))
	x.expect(0, 0)

}

func TestAnIndexEntryIsOneKey(t *testing.T) {
	x := newExpiring(t)
	e := ledger.Entry{Index: ledger.ByLease, Score: x.Now(), Member: "m"}
	must(t, x.Store, ledger.Step{Index: []ledger.Entry{e}})
	x.expect(1, 0)
	moved := e
	moved.Score = e.Score.Add(time.Second)
	must(t, x.Store, ledger.Step{Unindex: []ledger.Entry{e}, Index: []ledger.Entry{moved}})
	x.expect(1, 0)
	must(t, x.Store, ledger.Step{Unindex: []ledger.Entry{moved}})
	x.expect(0, 0)
}

// The background expirer of Open is stopped by Close; goleak sees to the rest.
func TestOpenStartsTheExpirer(t *testing.T) {
	s, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
