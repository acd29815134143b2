package bootclock

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Now is the time since the machine started. Unlike Go's monotonic clock on
// Linux it goes on while the machine is suspended (clock_gettime(2)).
func Now() time.Duration {
	var ts unix.Timespec
	// It cannot fail: the clock exists since Linux 2.6.39.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return time.Duration(ts.Nano())
}

// ID names the run of the machine that [Now] counts from: two readings can be
// compared if their ids are equal. It is "" where that cannot be known
// (random(4), boot_id).
func ID() string {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
