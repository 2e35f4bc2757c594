//go:build unix && !linux

package relaytest

import "syscall"

// apart puts a child into a process group of its own, so that a Ctrl-C in the
// terminal does not reach it. It outlives us when we are killed.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
