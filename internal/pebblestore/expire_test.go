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

func TestExpirerWorksThroughMoreThanOneLook(t *testing.T) {
	x := newExpiring(t)
	const many = pebblestore.ExpireMost + 500
	for i := 0; i < many; i += 500 {
		step := ledger.Step{}
		for j := range min(500, many-i) {
			p := put(fmt.Sprint(i+j), "data")
			p.Expires = x.Now().Add(time.Duration(i+j) * time.Millisecond).Add(time.Second)
			step.Put = append(step.Put, p)
		}
		must(t, x.Store, step)
	}
	x.expect(many, many)
	x.clock.Advance(2 * time.Minute)
	x.ticks <- time.Time{}
	x.ticks <- time.Time{}
	x.ticks <- time.Time{}
	x.expect(0, 0)
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

	must(t, x.Store, ledger.Step{Index: []ledger.Entry{e}})
	e.Score = now // not where it stands
	must(t, x.Store, ledger.Step{Unindex: []ledger.Entry{e}})
	x.expect(0, 0)
}

// The background expirer of Open is stopped by Close; goleak sees to the rest.
func TestOpenStartsTheExpirer(t *testing.T) {
	s, err := pebblestore.Open("store", pebblestore.Options{FS: vfs.NewMem()})
	require.NoError(t, err)
	require.NoError(t, s.Close())
}
