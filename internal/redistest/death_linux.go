package redistest

import "syscall"

// dieWithParent makes the kernel end the server with the test process, however
// that one ends: a test that runs into its time-out runs no cleanup.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
