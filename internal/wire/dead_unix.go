//go:build unix

package wire

import (
	"errors"
	"net"
	"syscall"
)

// dead looks at the socket of an idle connection without waiting and without
// taking anything from it. An idle connection has nothing to read; an end, an
// error or bytes (a TLS alert, an answer nobody asked for) make it unusable, and
// so does a socket that cannot be looked at.
func dead(c net.Conn) bool {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	rc, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	gone := true
	err = rc.Control(func(fd uintptr) {
		var one [1]byte
		for {
			_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			gone = !errors.Is(err, syscall.EAGAIN)
			return
		}
	})
	return err != nil || gone
}
