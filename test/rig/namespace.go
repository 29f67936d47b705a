package rig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// commandTimeout bounds a command that a test waits for.
const commandTimeout = time.Minute

// Namespace is one network namespace with a thread of this process in it.
type Namespace struct {
	// Name is the one "ip netns" knows.
	Name string

	lab  *Lab
	work chan func()
	gone chan struct{}
}

// Namespace makes a namespace with lo up, IPv6 addresses usable at once and no reverse path filter.
func (l *Lab) Namespace(role string) *Namespace {
	l.t.Helper()
	n := &Namespace{Name: l.prefix + role, lab: l, work: make(chan func()), gone: make(chan struct{})}
	if out, err := exec.Command("ip", "netns", "add", n.Name).CombinedOutput(); err != nil {
		l.t.Fatalf("ip netns add %s: %v\n%s", n.Name, err, out)
	}
	ready := make(chan error)
	go n.live(ready)
	if err := <-ready; err != nil {
		l.t.Fatalf("enter namespace %s: %v", n.Name, err)
	}
	l.spaces = append(l.spaces, n)
	n.Sysctl("ipv6/conf/all/accept_dad", "0")
	n.Sysctl("ipv6/conf/default/accept_dad", "0")
	n.Sysctl("ipv4/conf/all/rp_filter", "0")
	n.Sysctl("ipv4/conf/default/rp_filter", "0")
	n.Run("ip link set lo up")
	return n
}

// live is the thread in the namespace. It stays until the lab ends, as the kernel kills a child with a death signal when
// the thread that started it is gone. It is never the main thread: the process as a whole would seem to be in here.
func (n *Namespace) live(ready chan<- error) {
	runtime.LockOSThread() // and never unlocked: the runtime ends the thread with this goroutine
	if unix.Gettid() == os.Getpid() {
		other := make(chan error)
		go n.live(other)
		ready <- <-other
		runtime.UnlockOSThread()
		return
	}
	if err := n.enter(); err != nil {
		ready <- err
		return
	}
	ready <- nil
	for {
		select {
		case f := <-n.work:
			f()
		case <-n.gone:
			return
		}
	}
}

func (n *Namespace) enter() error {
	handle, err := netns.GetFromName(n.Name)
	if err != nil {
		return err
	}
	defer handle.Close()
	return netns.Set(handle)
}

// Do runs f on the namespace's thread, one after the other. Sockets belong to the namespace in which they were made,
// so f need only make them; waiting for answers is better done outside.
func (n *Namespace) Do(f func() error) error {
	done := make(chan error, 1)
	select {
	case n.work <- func() { done <- f() }:
		return <-done
	case <-n.gone:
		return fmt.Errorf("namespace %s is gone", n.Name)
	}
}

// Sysctl writes a value under /proc/sys/net.
func (n *Namespace) Sysctl(path, value string) {
	n.lab.t.Helper()
	path = filepath.Join("/proc/sys/net", path)
	if err := n.Do(func() error { return os.WriteFile(path, []byte(value), 0) }); err != nil {
		n.lab.t.Fatalf("in %s: write %s: %v", n.Name, path, err)
	}
}

// Result is what a finished command left.
type Result struct {
	Stdout, Stderr string
	// Exit is the exit code, -1 if a signal or the time limit ended the command.
	Exit int
	// Err is nil for exit code 0.
	Err error
}

// Exec runs a program in the namespace to its end.
func (n *Namespace) Exec(args ...string) Result { return n.ExecInput("", args...) }

// ExecInput is Exec with something to read on standard input.
func (n *Namespace) ExecInput(stdin string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), commandTimeout)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	err := n.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	exit := 0
	if err != nil {
		exit = -1
		if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
			exit = failed.ExitCode()
		}
		err = fmt.Errorf("in %s: %s: %w", n.Name, strings.Join(args, " "), err)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Exit: exit, Err: err}
}

// start starts a command in the namespace. It dies with this process. The lock file of iptables is the lab's own, so that
// tests which hold it disturb nobody else.
func (n *Namespace) start(cmd *exec.Cmd) error {
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, "XTABLES_LOCKFILE="+n.lab.XtablesLock())
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return n.Do(cmd.Start)
}

// XtablesLock is the lock file of iptables for all programs in the lab.
func (l *Lab) XtablesLock() string { return filepath.Join(l.Dir, "xtables.lock") }

// Run runs a command line, split at blanks, and returns what it printed. It ends the test if the command fails.
func (n *Namespace) Run(line string) string {
	n.lab.t.Helper()
	return n.Feed("", line)
}

// Feed is Run with something to read on standard input, for "ip -batch -" and "iptables-restore".
func (n *Namespace) Feed(stdin, line string) string {
	n.lab.t.Helper()
	r := n.ExecInput(stdin, strings.Fields(line)...)
	if r.Err != nil {
		n.lab.t.Fatalf("%v\n%s%s%s", r.Err, stdin, r.Stdout, r.Stderr)
	}
	return r.Stdout + r.Stderr
}

// Try is Run for commands that may fail.
func (n *Namespace) Try(line string) (string, error) {
	r := n.Exec(strings.Fields(line)...)
	return r.Stdout + r.Stderr, r.Err
}

// IP runs lines of "ip" commands, without the leading word "ip", in one process. It ends the test at the first that fails.
func (n *Namespace) IP(lines ...string) {
	n.lab.t.Helper()
	n.Feed(strings.Join(lines, "\n")+"\n", "ip -batch -")
}

// HTTP returns a client that dials from the namespace. Hosts must be literal addresses: names would be looked up outside.
func (n *Namespace) HTTP() *http.Client {
	dial := func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		err = n.Do(func() (err error) {
			conn, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(ctx, network, address)
			return err
		})
		return conn, err
	}
	return &http.Client{
		Timeout:   5 * time.Second,
		Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true},
	}
}
