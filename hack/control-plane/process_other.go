//go:build unix && !linux

package main

import "syscall"

// childAttributes gives a child its own process group. Only Linux can kill children when the launcher is killed with
// SIGKILL.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
