package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// stopPatience is how long a process may take to leave after SIGTERM.
const stopPatience = 5 * time.Second

// Process is a program that runs in a namespace until it ends or the lab does.
type Process struct {
	// Log is the file that takes its standard output and standard error.
	Log string

	t    T
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a program in the namespace.
func (n *Namespace) Start(args ...string) *Process {
	n.lab.t.Helper()
	return n.StartCommand(exec.Command(args[0], args[1:]...))
}

// StartCommand starts a prepared command. Where its output is not set, it goes to a log in the lab's directory.
func (n *Namespace) StartCommand(cmd *exec.Cmd) *Process {
	n.lab.t.Helper()
	name := fmt.Sprintf("%s-%d-%s.log", n.Name, len(n.lab.processes), filepath.Base(cmd.Path))
	p := &Process{Log: filepath.Join(n.lab.Dir, name), t: n.lab.t, cmd: cmd, done: make(chan struct{})}
	log, err := os.Create(p.Log)
	if err != nil {
		n.lab.t.Fatalf("create the log of %s: %v", cmd.Path, err)
	}
	defer log.Close() // the process has a copy of its own
	if cmd.Stdout == nil {
		cmd.Stdout = log
	}
	if cmd.Stderr == nil {
		cmd.Stderr = log
	}
	if err := n.start(cmd); err != nil {
		n.lab.t.Fatalf("in %s: start %s: %v", n.Name, cmd.Path, err)
	}
	go func() {
		_ = cmd.Wait() // the exit status stays in ProcessState
		close(p.done)
	}()
	n.lab.processes = append(n.lab.processes, p)
	return p
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Output is what the process has printed so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return fmt.Sprintf("read the log: %v", err)
	}
	return string(text)
}

// Running reports whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends a signal, to nobody if the process has ended.
func (p *Process) Signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %v to process %d (%s): %v", s, p.Pid(), p.cmd.Path, err)
	}
}

// Wait waits for the end and returns the exit code, -1 for an end by signal. It is an error if the process still runs
// after the time given.
func (p *Process) Wait(patience time.Duration) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-time.After(patience):
		return -1, fmt.Errorf("process %d (%s) still runs after %v", p.Pid(), p.cmd.Path, patience)
	}
}

// Stop asks the process to leave with SIGTERM and kills it if it does not. It returns the exit code.
func (p *Process) Stop() int {
	// A stopped process (SIGSTOP) takes no SIGTERM.
	p.Signal(syscall.SIGCONT)
	p.Signal(syscall.SIGTERM)
	if code, err := p.Wait(stopPatience); err == nil {
		return code
	}
	return p.Kill()
}

// Kill ends the process with SIGKILL and returns its exit code, which is -1 unless it had ended before.
func (p *Process) Kill() int {
	p.Signal(syscall.SIGKILL)
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}
