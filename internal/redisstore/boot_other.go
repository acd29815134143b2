//go:build !linux

package redisstore

import "time"

// bootTime stands in for the boot clock where there is none: wall time. A step
// of the wall clock shows as a contradiction at the next answer.
func bootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
