// Package rig builds the test bench: network namespaces that look like a control plane pod, its seed network and the far
// end of the VPN, with senders, listeners and counters in them.
//
// Everything in a bench hangs on one pipe. A small shell (the undertaker) holds its reading end and removes namespaces,
// processes and files when the pipe closes, so a test that panics, times out or is killed leaves as little behind as one
// that passes, and the way of removing is the same each time.
package rig

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
)

// T is what a bench needs of its user. testing.TB is one; the demo brings its own.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// netnsDir is where iproute2 keeps the names of network namespaces.
const netnsDir = "/run/netns"

// Lab is a set of named network namespaces that live and die together.
type Lab struct {
	// Dir holds the lab's files, the logs of its processes among them. It goes away with the lab.
	Dir string

	t          T
	prefix     string
	spaces     []*Namespace
	processes  []*Process
	undertaker *exec.Cmd
	life       io.Closer
}

// labs numbers the labs of this process, so that tests in one package can run side by side.
var labs atomic.Int32

// NewLab returns an empty lab which ends with the test. Its namespaces are called rf<pid>-<number>-<role>: the process
// id tells a later "make clean" whether their owner still lives.
func NewLab(t T) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatalf("network namespaces need root (make test runs these tests; make unit runs those that do not)")
	}
	prefix := fmt.Sprintf("rf%d-%d-", os.Getpid(), labs.Add(1))
	dir, err := os.MkdirTemp("", prefix)
	if err != nil {
		t.Fatalf("make a directory for the lab: %v", err)
	}
	l := &Lab{Dir: dir, t: t, prefix: prefix}
	if err := l.hireUndertaker(); err != nil {
		_ = os.RemoveAll(dir)
		t.Fatalf("start the lab's undertaker: %v", err)
	}
	t.Cleanup(l.close)
	return l
}

// burial runs as a process of its own: $1 prefix of the namespaces, $2 directory, $3 process id of the owner, who may
// still stand in one of the namespaces and is not to be ended. It waits for the end of its input, then removes.
const burial = `
cat >/dev/null
for path in /run/netns/"$1"*; do
	[ -e "$path" ] || continue
	name=${path##*/}
	for pid in $(ip netns pids "$name"); do
		[ "$pid" = "$3" ] || kill -KILL "$pid"
	done
	ip netns delete "$name"
done
rm -rf -- "$2"
`

func (l *Lab) hireUndertaker() error {
	cmd := exec.Command("sh", "-c", burial, "undertaker", l.prefix, l.Dir, strconv.Itoa(os.Getpid()))
	// A group of its own: Ctrl-C at a terminal ends the test, whose end is the undertaker's cue to work.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	l.life, l.undertaker = life, cmd
	return cmd.Start()
}

// close ends the lab's processes in reverse order, then lets the undertaker remove the rest.
func (l *Lab) close() {
	for i := len(l.processes) - 1; i >= 0; i-- {
		l.processes[i].Stop()
	}
	for _, n := range l.spaces {
		close(n.gone)
	}
	if err := l.life.Close(); err != nil {
		l.t.Errorf("close the undertaker's pipe: %v", err)
	}
	if err := l.undertaker.Wait(); err != nil {
		l.t.Errorf("remove the namespaces %s*: %v", l.prefix, err)
	}
	if left, _ := filepath.Glob(filepath.Join(netnsDir, l.prefix+"*")); len(left) > 0 {
		l.t.Errorf("namespaces left behind: %v", left)
	}
}
