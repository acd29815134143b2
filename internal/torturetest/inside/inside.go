// Package inside is what the fault rig compiles into the gateways that it
// breaks, in place of [time.Now]: a wall clock that the rig can set from outside.
// libfaketime cannot do that to a Go program, which asks the kernel without the
// C library. The gateway itself does not import this package; see
// torturetest.Build.
//
// It owns the reading. The monotonic part of a time, and the boot clock, stay
// true, as they do on a machine whose clock somebody sets.
package inside

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Clock is the environment variable with the name of a file that says how far
// the clock is off: nanoseconds, eight bytes in the machine's own order. The file
// is mapped, so what is written there counts at once.
const Clock = "TORTURE_CLOCK"

// offset is read from the file for as long as the process lives.
var offset = sync.OnceValue(func() *atomic.Int64 {
	collect()
	name := os.Getenv(Clock)
	if name == "" {
		return new(atomic.Int64)
	}
	page, err := mapped(name)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", Clock, err))
	}
	return (*atomic.Int64)(unsafe.Pointer(&page[0]))
})

func mapped(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return unix.Mmap(int(f.Fd()), 0, 8, unix.PROT_READ, unix.MAP_SHARED)
}

// Collect is the signal at which garbage is collected, so that the rig can compare
// what is left.
const Collect = syscall.SIGUSR1

func collect() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, Collect)
	go func() {
		for range asked {
			runtime.GC()
		}
	}()
}

// Now is [time.Now] on a clock that is off.
func Now() time.Time {
	return Shift(time.Now(), time.Duration(offset().Load()))
}

// What package time keeps of a time that has a monotonic reading: a flag, 33 bits
// of seconds and 30 of nanoseconds in the first word, and the reading in the second.
const (
	hasMonotonic = 1 << 63
	nanoBits     = 30
	nanoMask     = 1<<nanoBits - 1
	secondsMask  = 1<<33 - 1
)

type layout struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

// Shift sets the wall clock of a time and leaves its monotonic reading, which no
// method of [time.Time] does.
func Shift(t time.Time, d time.Duration) time.Time {
	in := (*layout)(unsafe.Pointer(&t))
	if in.wall&hasMonotonic == 0 {
		return t.Add(d)
	}
	seconds := int64(in.wall >> nanoBits & secondsMask)
	nanos := int64(in.wall&nanoMask) + d.Nanoseconds()%1e9
	seconds += d.Nanoseconds() / 1e9
	switch {
	case nanos < 0:
		seconds, nanos = seconds-1, nanos+1e9
	case nanos >= 1e9:
		seconds, nanos = seconds+1, nanos-1e9
	}
	in.wall = hasMonotonic | uint64(seconds)<<nanoBits | uint64(nanos)
	return t
}
