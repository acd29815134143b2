package redistest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// shifted is a clock that is off. It is libfaketime's, from the system's packages:
// preloaded, it answers the server's questions for the time of day with the
// kernel's answer plus what a file says, which it reads each time.
type shifted struct{ file string }

// LaunchShifted is [Launch] of a server whose clock [Server.Shift] can set. The
// server is several times slower for it.
func LaunchShifted(dir string, config ...string) (*Server, error) {
	s := &Server{dir: dir, config: config, clock: &shifted{file: filepath.Join(dir, "clock")}}
	if err := s.Shift(0); err != nil {
		return nil, err
	}
	return launch(s)
}

// Shift sets the server's clock to so much off the machine's. It holds over a
// restart. Clocks that count what passed, and are never set, stay true.
func (s *Server) Shift(by time.Duration) error {
	if s.clock == nil {
		return errors.New("shift redis's clock: it was not launched for that")
	}
	// The server must never read half of it.
	next := s.clock.file + ".next"
	if err := os.WriteFile(next, fmt.Appendf(nil, "%+.6f\n", by.Seconds()), 0o600); err != nil {
		return fmt.Errorf("shift redis's clock: %w", err)
	}
	if err := os.Rename(next, s.clock.file); err != nil {
		return fmt.Errorf("shift redis's clock: %w", err)
	}
	return nil
}

// environ is what the server needs in its environment for it.
func (c *shifted) environ() ([]string, error) {
	if c == nil {
		return nil, nil
	}
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil || len(found) == 0 {
		return nil, errors.New("libfaketime is not installed, and these tests shift clocks with it (Debian: apt-get install faketime)")
	}
	return []string{
		// The C library's own malloc comes in front of jemalloc's, which asks for
		// the time while it starts and so before libfaketime can tell it.
		"LD_PRELOAD=" + found[0] + ":libc.so.6",
		"FAKETIME_TIMESTAMP_FILE=" + c.file,
		"FAKETIME_NO_CACHE=1",
		"FAKETIME_DONT_FAKE_MONOTONIC=1",
		"NO_FAKE_STAT=1",
	}, nil
}

// clean removes what libfaketime leaves of a process that was killed, which
// would keep a later process of the same number from starting.
func (c *shifted) clean(pid int) {
	if c == nil {
		return
	}
	for _, name := range []string{"faketime_shm_", "sem.faketime_sem_"} {
		_ = os.Remove(filepath.Join("/dev/shm", name+strconv.Itoa(pid)))
	}
}

// asLaunched is the environment of the test with what is added.
func asLaunched(add []string) []string {
	var out []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "LD_PRELOAD=") {
			out = append(out, e)
		}
	}
	return append(out, add...)
}
