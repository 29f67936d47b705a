// Package netns gives tests a network namespace of their own, with the real kernel in it.
package netns

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Enter moves the calling goroutine into a new, empty network namespace with lo up. The goroutine keeps its thread for good,
// and the runtime ends that thread with the goroutine, so the namespace goes away with the test; programs that the
// goroutine starts run in it too. Other goroutines stay where they were.
func Enter(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("network namespace tests need root (make test runs them; make unit runs those that do not)")
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("unshare network namespace: %v", err)
	}
	Run(t, "ip link set lo up")
}

// Run runs a command line, split at blanks, and returns what it printed. It ends the test if the command fails.
func Run(t testing.TB, line string) string {
	t.Helper()
	out, err := Try(line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// fataler is a testing.TB or what stands in for it outside of tests.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// AwaitLocal waits for the local routes of a link's IPv6 addresses, which the kernel makes in its own time: before, nobody can connect to
// such an address, and two looks at the routes differ. Addresses may be cut short; run runs a command line in the link's namespace.
func AwaitLocal(t fataler, run func(line string) string, link string, addresses ...string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		table := run("ip -6 route show table local dev " + link)
		if !slices.ContainsFunc(addresses, func(a string) bool { return !strings.Contains(table, "local "+a) }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not all of %v on %s have local routes:\n%s", addresses, link, table)
		}
	}
}

// Try is Run for commands that may fail.
func Try(line string) (string, error) {
	words := strings.Fields(line)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	return string(out), err
}
