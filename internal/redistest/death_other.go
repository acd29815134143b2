//go:build !linux

package redistest

import "syscall"

// dieWithParent has no counterpart outside Linux.
func dieWithParent() *syscall.SysProcAttr { return nil }
