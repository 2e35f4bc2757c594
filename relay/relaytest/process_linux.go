package relaytest

import "syscall"

// apart puts a child into a process group of its own, so that a Ctrl-C in the
// terminal does not reach it, and lets it end when we are killed.
func apart() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
