package bootclock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// machine has the clocks of one.
type machine struct {
	boot, monotonic, wall time.Duration
	asked                 int
	reading               time.Duration  // how long each reading takes
	readings              int            // of any clock
	after                 map[int]func() // what happens right after a reading
}

func newMachine() *machine {
	return &machine{boot: time.Hour, monotonic: time.Minute, wall: 1000 * time.Hour}
}

func (m *machine) run(d time.Duration) {
	m.boot, m.monotonic, m.wall = m.boot+d, m.monotonic+d, m.wall+d
}

func (m *machine) sleep(d time.Duration) { m.boot, m.wall = m.boot+d, m.wall+d }

func (m *machine) set(d time.Duration) { m.wall += d }

func (m *machine) clock() *Clock {
	return newClock(func() time.Duration {
		m.asked++
		m.run(m.reading)
		defer m.read()
		return m.boot
	}, func() (monotonic, wall time.Duration) {
		m.run(m.reading)
		defer m.read()
		return m.monotonic, m.wall
	})
}

// read does what is to happen right after this reading.
func (m *machine) read() {
	m.readings++
	if next := m.after[m.readings]; next != nil {
		next()
	}
}

func TestTheSystemIsAskedSeldom(t *testing.T) {
	m := newMachine()
	c := m.clock()
	for range 1000 {
		require.Equal(t, m.boot, c.Now())
		m.run(10 * time.Microsecond)
	}
	require.LessOrEqual(t, m.asked, 2)
}

func TestASleepShowsAtOnce(t *testing.T) {
	for _, slept := range []time.Duration{2 * time.Millisecond, time.Second, 24 * time.Hour} {
		m := newMachine()
		c := m.clock()
		c.Now()
		m.sleep(slept)
		require.Equal(t, m.boot, c.Now(), "%s", slept)
	}
}

// Whenever the machine sleeps, the next to ask for the time is told of it.
func TestASleepWhileTheClocksAreComparedShowsAtOnce(t *testing.T) {
	for reading := 1; reading <= 4; reading++ {
		m := newMachine()
		m.after = map[int]func(){reading: func() { m.sleep(time.Hour) }}
		c := m.clock()
		c.Now()
		require.GreaterOrEqual(t, m.readings, reading)
		require.Equal(t, m.boot, c.Now(), "after reading %d", reading)
		require.Equal(t, m.boot, c.Now())
	}
}

// A wall clock that is set back by just what was slept hides the sleep from Go's
// clocks, though not for long.
func TestASleepThatTheWallClockHidesShowsSoon(t *testing.T) {
	m := newMachine()
	c := m.clock()
	c.Now()
	m.sleep(time.Hour)
	m.set(-time.Hour)
	m.run(trusted)
	require.Equal(t, m.boot, c.Now())
}

func TestShortSleepsDoNotAddUp(t *testing.T) {
	m := newMachine()
	c := m.clock()
	for range 1000 {
		m.sleep(slack)
		m.run(trusted / 4)
		require.LessOrEqual(t, m.boot-c.Now(), 4*slack)
	}
}

func TestAWallClockThatIsSetChangesNothing(t *testing.T) {
	m := newMachine()
	c := m.clock()
	for _, d := range []time.Duration{-1000 * time.Hour, time.Second, 5000 * time.Hour} {
		c.Now()
		m.set(d)
		require.Equal(t, m.boot, c.Now())
	}
}

// Whatever happens to the machine, what is shown does not go back, nor past the
// system's own clock, nor lags by more than the readings took.
func TestItNeverGoesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine()
		c := m.clock()
		shown, ahead := time.Duration(0), time.Duration(0)
		for range 50 {
			m.reading = time.Duration(rapid.IntRange(0, 3000).Draw(t, "reading µs")) * time.Microsecond
			d := time.Duration(rapid.IntRange(0, 30_000).Draw(t, "µs")) * time.Microsecond
			switch rapid.SampledFrom([]string{"runs", "runs", "sleeps", "is set"}).Draw(t, "machine") {
			case "runs":
				m.run(d)
			case "sleeps":
				m.sleep(d)
			case "is set":
				m.set(d - 15*time.Millisecond)
			}
			now := c.Now()
			require.GreaterOrEqual(t, now, shown)
			require.LessOrEqual(t, now, m.boot)
			// Somebody may have read the monotonic clock while the clocks were compared.
			require.GreaterOrEqual(t, c.last.Load().ahead, ahead)
			shown, ahead = now, c.last.Load().ahead
		}
	})
}

func TestItIsTheSystemsClock(t *testing.T) {
	c := New()
	for range 10_000 {
		before := Now()
		now := c.Now()
		require.GreaterOrEqual(t, now, before-time.Second)
		require.LessOrEqual(t, now, Now())
	}
}

func BenchmarkNow(b *testing.B) {
	c := New()
	b.Run("system", func(b *testing.B) {
		for b.Loop() {
			Now()
		}
	})
	b.Run("clock", func(b *testing.B) {
		for b.Loop() {
			c.Now()
		}
	})
}
