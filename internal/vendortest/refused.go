//go:build unix

package vendortest

import (
	"fmt"
	"syscall"
	"testing"
)

// RefusedURL is the base URL of a loopback port that refuses connections until
// the end of the test. The port is taken but nobody listens, so that no other
// test can be given it meanwhile.
func RefusedURL(t testing.TB) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatalf("open socket: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatalf("bind: %v", err)
	}
	addr, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatalf("read address: %v", err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", addr.(*syscall.SockaddrInet4).Port)
}
