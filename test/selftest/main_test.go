// Package selftest runs "routefence selftest" and the dry runs, as users do, on the bench.
package selftest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// binary is routefence, built once for all tests.
var binary string

// bothNetworks is the flag that names the bench's node networks.
const bothNetworks = "--node-networks=10.250.0.0/16,fd00:250::/48"

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "selftest")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "routefence")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/routefence")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build routefence: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// eachBackend runs a test in a bench of its own per iptables backend.
func eachBackend(t *testing.T, test func(t *testing.T, r *rig.Rig, backend string)) {
	t.Helper()
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel() // each bench is a world of its own, and most of the time is spent waiting for programs
			test(t, rig.New(t, rig.Options{}), backend)
		})
	}
}

// install puts the fence up and leaves no agent behind that would repair it.
func install(t *testing.T, r *rig.Rig, args ...string) {
	t.Helper()
	if got := r.Exec(append([]string{binary, "init"}, args...)...); got.Exit != 0 {
		t.Fatalf("init exits with %d: %s", got.Exit, got.Stderr)
	}
}

// await waits for what must come. It asserts nothing about speed.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never seen that %s", what)
		}
	}
}
