package pebblestore

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
)

// A look that could not take on all begins the next one behind what it deleted:
// to step over the remains each time would cost more with each look.
func TestExpirerGoesOnBehindWhatItDealtWith(t *testing.T) {
	at := func(ms int64) []byte { return noteKey(ms, ledger.Platform, ledger.Version{1}) }
	x := &expirer{from: []byte{tagExpiry}}
	x.goOn(nil, 1)
	require.Equal(t, appendMillis([]byte{tagExpiry}, 1), x.from, "nothing is left up to where steps may still add")
	x.goOn(at(50), 1000)
	require.Equal(t, at(50), x.from, "there is more, perhaps of the same instant")
	x.goOn(at(40), 1000)
	require.Equal(t, at(50), x.from, "never back")
	x.goOn(at(1000), 100)
	require.Equal(t, appendMillis([]byte{tagExpiry}, 100), x.from, "not past where steps may still add")
}

func TestExpirerHurriesOnlyWhenItIsLate(t *testing.T) {
	now := tempoAt(0)
	require.LessOrEqual(t, now.turn, time.Millisecond)
	require.GreaterOrEqual(t, now.rest, 3)
	require.Equal(t, now, tempoAt(expireLate-1))
	for behind := expireLate; behind < 10*expireLate; behind += expireLate {
		late := tempoAt(behind)
		require.Greater(t, late.turn, now.turn)
		require.Equal(t, 1, late.rest)
		now = late
	}
	require.Equal(t, now, tempoAt(1000*expireLate))
	require.LessOrEqual(t, now.turn, 5*time.Millisecond)
}

// crowded is a store of which values end every hour: more than one look of its
// expirer takes on, and each at another instant.
type crowded struct {
	*testing.T
	*Store
	*expirer
	clock time.Time
}

func newCrowded(t *testing.T) *crowded {
	c := &crowded{T: t, clock: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
	s, err := open("store", Options{FS: vfs.NewMem(), Clock: func() time.Time { return c.clock }}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	c.Store, c.expirer = s, s.newExpirer()
	c.most = 100
	c.expirer.rest = func(context.Context, time.Duration) {}
	return c
}

// fill puts values and lets days go by.
func (c *crowded) fill() {
	step := ledger.Step{Nonce: ledger.NewNonce(), At: c.Now()}
	for i := range 150 {
		step.Put = append(step.Put, ledger.Put{
			Key: ledger.Key{Kind: ledger.Meta, ID: strconv.Itoa(i)}, Data: []byte("x"),
			Expires: c.Now().Add(time.Hour + time.Duration(i)*time.Millisecond),
		})
	}
	res, err := c.Apply(c.Context(), ledger.Platform, step)
	require.NoError(c, err)
	require.True(c, res.Applied)
	c.clock = c.clock.Add(72 * time.Hour)
}

func (c *crowded) left(want int) {
	c.Helper()
	require.Equal(c, want, c.RawKeys(tagScope))
	require.Equal(c, want, c.RawKeys(tagExpiry))
}

// How far behind the expirer is counts from when nothing was left for it to do, and
// not from when the values were due: after a rest of days there is no hurry.
func TestExpirerIsBehindSinceItHadNothingToDo(t *testing.T) {
	c := newCrowded(t)
	var age time.Duration
	c.uptime = func() time.Duration { return age }
	c.expirer.done = 0
	var behind []time.Duration
	c.tempo = func(d time.Duration) tempo { behind = append(behind, d); return tempoAt(d) }
	look := func(want bool, left int) {
		t.Helper()
		more, err := c.look(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, more)
		c.left(left)
		age += time.Minute
	}
	c.fill()
	look(true, 50)
	look(false, 0)
	look(false, 0)
	c.fill()
	look(true, 50)
	look(false, 0)
	require.Equal(t, []time.Duration{0, time.Minute, time.Minute, time.Minute, 2 * time.Minute}, behind)
}

// What one look does not take on is dealt with at once, and not at the next tick.
func TestExpirerWorksToTheEnd(t *testing.T) {
	c := newCrowded(t)
	ctx, cancel := context.WithCancel(t.Context())
	ticks, done := make(chan time.Time), make(chan struct{})
	go func() {
		defer close(done)
		c.run(ctx, ticks)
	}()
	for range 3 {
		c.fill()
		ticks <- time.Time{}
		ticks <- time.Time{}
		c.left(0)
	}
	cancel()
	<-done
}

// A turn ends in time, however much there is to do.
func TestExpirerTakesShortTurns(t *testing.T) {
	c := newCrowded(t)
	c.fill()
	turns := 0
	c.tempo = func(time.Duration) tempo { return tempo{turn: 0, rest: 1} }
	c.expirer.rest = func(context.Context, time.Duration) { turns++ }
	_, err := c.look(t.Context())
	require.NoError(t, err)
	require.Equal(t, 100, turns)
	c.left(50)

	turns = 0
	c.tempo = func(time.Duration) tempo { return tempo{turn: time.Hour, rest: 1} }
	_, err = c.look(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, turns)
	c.left(0)
}

// The expirer rests in proportion to what it has worked.
func TestExpirerRests(t *testing.T) {
	c := newCrowded(t)
	c.fill()
	var rests []time.Duration
	c.tempo = func(time.Duration) tempo { return tempo{turn: 0, rest: 4} }
	c.expirer.rest = func(_ context.Context, d time.Duration) { rests = append(rests, d) }
	_, err := c.look(t.Context())
	require.NoError(t, err)
	for _, d := range rests {
		require.Positive(t, d)
		require.Zero(t, d%4)
	}
}
