//go:build unix && !linux

package main

import "syscall"

// childAttributes: a group of its own. Only Linux can tie children to a launcher that is killed with SIGKILL.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
