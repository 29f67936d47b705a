// Package replies tests, on the bench, that connections which come in from node networks are answered while those that begin in the
// pod stay fenced.
package replies

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// binary is routefence, built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "rf-replies")
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
	// Some tests write rules themselves, by the product's own edges, which start iptables from this process.
	if err := os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "xtables.lock")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// eachBackend runs a test in a bench of its own per iptables backend, side by side.
func eachBackend(t *testing.T, o rig.Options, test func(t *testing.T, b *bench)) {
	t.Helper()
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, newBench(t, o, backend))
		})
	}
}
