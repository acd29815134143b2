package actions

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock reads CLOCK_BOOTTIME, which unlike Go's monotonic clock goes on
// while the machine is suspended (clock_gettime(2)). A process that was stopped
// or a machine that slept must not believe that its lease did too.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// Without the clock no lease can be trusted: report the end of time, so
		// that every permit is refused.
		return 1<<63 - 1
	}
	return time.Duration(ts.Nano())
}
