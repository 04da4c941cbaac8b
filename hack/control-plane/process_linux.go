package main

import "syscall"

// childAttributes gives a child its own process group, and kills it when the launcher ends for any reason.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
