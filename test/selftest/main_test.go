// Package selftest runs "routefence selftest" and the dry runs, as users do, on the bench.
package selftest

import (
	"os"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// bothNetworks is the flag that names the bench's node networks.
const bothNetworks = shipped.BothNetworks

func TestMain(m *testing.M) { os.Exit(shipped.Main(m)) }

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
	if got := r.Exec(append([]string{shipped.Binary, "init"}, args...)...); got.Exit != 0 {
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
