package pebblestore_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"holdfast.dev/gateway/internal/ledger"
	"holdfast.dev/gateway/internal/pebblestore"
)

// machine is a wall clock and a boot clock.
type machine struct {
	wall, boot *fakeClock
	run        string
}

func newMachine() *machine {
	return &machine{wall: newFakeClock(), boot: newFakeClock(), run: "first run"}
}

// passes lets time pass on both clocks.
func (m *machine) passes(d time.Duration) { m.wall.Advance(d); m.boot.Advance(d) }

func (m *machine) options(fs vfs.FS) pebblestore.Options {
	return pebblestore.Options{FS: fs, Clock: m.wall.Now, Run: m.run, Boot: func() time.Duration {
		return m.boot.Now().Sub(time.Time{}.AddDate(2025, 0, 0))
	}}
}

func notReady(t *testing.T, s *pebblestore.Store, words ...string) {
	t.Helper()
	err := s.Ready(t.Context())
	require.ErrorIs(t, err, ledger.ErrNotReady)
	for _, w := range words {
		require.ErrorContains(t, err, w)
	}
}

// A clock that is set forward under a running store is not followed: nothing
// ends early, and nothing is claimed until the clock is back or accepted.
func TestClockSetForward(t *testing.T) {
	m := newMachine()
	s := open(t, "store", m.options(vfs.NewMem()))
	before := s.Now()
	m.wall.Advance(5 * time.Minute)
	require.Equal(t, before.Add(5*time.Minute), s.Now(), "a little is what clocks do")
	require.NoError(t, s.Ready(t.Context()))

	before = s.Now()
	m.wall.Advance(2 * time.Hour)
	notReady(t, s, "gone forward by 2h0m0s", "accept-loss --from "+before.Format(time.RFC3339))
	m.passes(time.Minute)
	require.Equal(t, before.Add(time.Minute), s.Now(), "it goes on at the machine's pace")
	notReady(t, s, "gone forward by 2h0m0s")

	m.wall.Advance(-2 * time.Hour)
	require.NoError(t, s.Ready(t.Context()), "it was never followed, so nothing is lost")
	require.Equal(t, before.Add(time.Minute), s.Now())
}

// A machine that slept is no clock that jumped.
func TestSleepIsNoJump(t *testing.T) {
	m := newMachine()
	s := open(t, "store", m.options(vfs.NewMem()))
	before := s.Now()
	m.passes(48 * time.Hour)
	require.Equal(t, before.Add(48*time.Hour), s.Now())
	require.NoError(t, s.Ready(t.Context()))
}

func TestClockSetForwardWhileTheStoreWasClosed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *machine, o *pebblestore.Options)
		jumped bool
	}{
		"rested":                  {change: func(m *machine, _ *pebblestore.Options) { m.passes(72 * time.Hour) }},
		"set forward":             {change: func(m *machine, _ *pebblestore.Options) { m.wall.Advance(time.Hour) }, jumped: true},
		"set forward, accepted":   {change: func(m *machine, o *pebblestore.Options) { m.wall.Advance(time.Hour); o.AcceptClock = true }},
		"the machine was started": {change: func(m *machine, o *pebblestore.Options) { m.wall.Advance(time.Hour); o.Run = "second run" }},
		"nothing to compare":      {change: func(m *machine, o *pebblestore.Options) { m.wall.Advance(time.Hour); o.Run = "" }},
	} {
		t.Run(name, func(t *testing.T) {
			m, fs := newMachine(), vfs.NewCrashableMem()
			s := open(t, "store", m.options(fs))
			m.passes(time.Minute)
			must(t, s, claim(s, "a"))
			m.passes(10 * time.Minute) // idle: the mark is old, the pace is not
			for end, at := range map[string]vfs.FS{"killed": crash(fs, 0, 1), "closed": fs} {
				if end == "closed" {
					require.NoError(t, s.Close())
				}
				next := &machine{wall: &fakeClock{now: m.wall.Now()}, boot: &fakeClock{now: m.boot.Now()}, run: m.run}
				opts := next.options(at)
				c.change(next, &opts)
				after := open(t, "store", opts)
				if c.jumped {
					notReady(t, after, "gone forward by 1h0m0s")
					require.WithinDuration(t, m.wall.Now(), after.Now(), 2*time.Second, end)
				} else {
					require.NoError(t, after.Ready(t.Context()), end)
					require.Equal(t, next.wall.Now().Truncate(time.Millisecond), after.Now(), end)
				}
				require.NoError(t, after.Close())
			}
		})
	}
}

// What was accepted is accepted for the starts to come.
func TestAcceptedClockStays(t *testing.T) {
	m, fs := newMachine(), vfs.NewMem()
	s := open(t, "store", m.options(fs))
	must(t, s, claim(s, "a"))
	require.NoError(t, s.Close())
	m.wall.Advance(time.Hour)
	opts := m.options(fs)
	opts.AcceptClock = true
	require.NoError(t, open(t, "store", opts).Close())
	m.passes(time.Minute)
	require.NoError(t, open(t, "store", m.options(fs)).Ready(t.Context()))
}
