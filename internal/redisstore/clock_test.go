package redisstore

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeClock is a clock over a boot clock that the test moves.
type fakeClock struct {
	*clock
	boot time.Duration
}

func newFakeClock() *fakeClock {
	f := &fakeClock{boot: time.Hour}
	f.clock = newClock(func() time.Duration { return 0 })
	f.clock.boot = func() time.Duration { return f.boot }
	f.clock.guess = func() time.Time { return time.Unix(1, 2345678) }
	return f
}

// answer plays a round trip in whose middle the server's clock showed now.
func (f *fakeClock) answer(trip time.Duration, now time.Time) {
	started := f.boot
	f.boot += trip
	f.learn(started, now)
}

func TestClock(t *testing.T) {
	server := time.UnixMilli(1_760_000_000_000)

	t.Run("guesses before the first answer", func(t *testing.T) {
		require.Equal(t, time.Unix(1, 2000000), newFakeClock().now())
	})
	t.Run("takes the middle of the round trip and runs on", func(t *testing.T) {
		f := newFakeClock()
		f.answer(100*time.Millisecond, server)
		require.WithinDuration(t, server.Add(50*time.Millisecond), f.now(), time.Millisecond)
		f.boot += time.Minute
		require.WithinDuration(t, server.Add(time.Minute+50*time.Millisecond), f.now(), time.Millisecond)
		require.Zero(t, f.now().Nanosecond()%int(time.Millisecond))
	})
	t.Run("prefers the shorter round trip", func(t *testing.T) {
		f := newFakeClock()
		f.answer(2*time.Millisecond, server)
		better := f.now()
		f.answer(200*time.Millisecond, server.Add(20*time.Millisecond)) // all of it on the way back
		require.WithinDuration(t, better.Add(200*time.Millisecond), f.now(), 2*time.Millisecond)
		f.answer(0, server.Add(time.Second/2))
		require.WithinDuration(t, server.Add(time.Second/2), f.now(), time.Millisecond)
	})
	t.Run("an old estimate gives way", func(t *testing.T) {
		f := newFakeClock()
		f.answer(0, server)
		f.boot += 10 * time.Minute
		later := server.Add(10*time.Minute + 5*time.Millisecond) // the clocks drift
		f.answer(20*time.Millisecond, later)
		require.WithinDuration(t, later.Add(10*time.Millisecond), f.now(), time.Millisecond)
	})
	t.Run("a server whose clock was set is believed", func(t *testing.T) {
		for _, jump := range []time.Duration{time.Hour, -time.Hour, 3 * time.Second} {
			f := newFakeClock()
			f.answer(0, server)
			f.answer(300*time.Millisecond, server.Add(jump))
			require.WithinDuration(t, server.Add(jump), f.now(), 200*time.Millisecond)
		}
	})
}
