package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A process is one child, with its output in a file of the data folder.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{} // closed when it has ended and has been waited for
}

// start starts a program of the control plane. The child gets its own process group, so that Ctrl-C reaches only the
// launcher, which then stops its children in order.
func start(dir, name, program string, env []string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p.cmd = exec.Command(program, args...)
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := startChild(p.cmd); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // ProcessState has the result
		close(p.done)
	}()
	return p, nil
}

func startChild(cmd *exec.Cmd) error {
	cmd.SysProcAttr = childAttributes()
	result := make(chan error)
	mainThread <- func() { result <- cmd.Start() }
	return <-result
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// failure describes a child that ended unexpectedly.
func (p *process) failure() error {
	return fmt.Errorf("%s ended unexpectedly (%s); the end of its log:\n%s", p.name, p.cmd.ProcessState, tail(p.log, 30))
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stopAll sends SIGTERM to children and waits. If one of them still runs after the patience, it kills all. It also
// sends SIGCONT, because a test may have stopped a child, and a stopped process handles no signal except SIGKILL.
func stopAll(patience time.Duration, children ...*process) {
	for _, p := range children {
		if p != nil {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			_ = p.cmd.Process.Signal(syscall.SIGCONT)
		}
	}
	deadline := time.After(patience)
	for _, p := range children {
		if p == nil {
			continue
		}
		select {
		case <-p.done:
		case <-deadline:
			for _, late := range children {
				if late != nil {
					late.kill()
				}
			}
			return
		}
	}
}

// tail returns the last lines of a file.
func tail(path string, lines int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(data)), "\n")
	if len(all) > lines {
		all = all[len(all)-lines:]
	}
	return "  " + strings.Join(all, "\n  ")
}
