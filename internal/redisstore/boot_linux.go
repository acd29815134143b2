package redisstore

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootTime is the time since the machine started. Unlike Go's monotonic clock
// on Linux it goes on while the machine is suspended, so an estimate of the
// server's time is still right after it.
func bootTime() time.Duration {
	var ts unix.Timespec
	// It cannot fail: the clock exists since Linux 2.6.39.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}
