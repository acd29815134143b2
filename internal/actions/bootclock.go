package actions

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// clockFailed is what a boot clock that could not be read returns.
const clockFailed time.Duration = math.MaxInt64

// bootClock reads CLOCK_BOOTTIME, which unlike Go's monotonic clock goes on
// while the machine is suspended (clock_gettime(2)). A process that was stopped
// or a machine that slept must not believe that its lease did too.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return clockFailed // no lease can be trusted without it
	}
	return time.Duration(ts.Nano())
}
