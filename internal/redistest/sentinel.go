package redistest

import (
	"fmt"
	"testing"
)

// SentinelName is the name under which [StartSentinel] watches its master.
const SentinelName = "store"

// StartSentinel runs a Redis Sentinel, alone and so with a quorum of one, that
// watches a master and takes it for dead after half a second. It ends with the
// test.
func StartSentinel(t testing.TB, master *Server, config ...string) *Server {
	t.Helper()
	return StartSentinelAt(t, master.port, config...)
}

// StartSentinelAt is [StartSentinel] for a master that is to be found at another
// port than its own: that of its TLS.
func StartSentinelAt(t testing.TB, port int, config ...string) *Server {
	t.Helper()
	s, err := launch(&Server{dir: t.TempDir(), sentinel: true, config: append([]string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %d 1", SentinelName, port),
		"sentinel down-after-milliseconds " + SentinelName + " 500",
		"sentinel failover-timeout " + SentinelName + " 5000",
	}, config...)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}
