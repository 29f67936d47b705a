package field

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// binary is routefence, built once for all tests.
var binary string

var (
	backends = []string{"nft", "legacy"}
	families = []string{"4", "6"}
)

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	// These tests wait more than they work.
	if err := flag.Set("test.parallel", "5"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("rf%d-field-", os.Getpid())) // a name that "make clean" knows
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

// eachBackend runs a test in a bench of its own per iptables backend, side by side: most of the time is spent waiting.
func eachBackend(t *testing.T, test func(t *testing.T, r *rig.Rig, backend string)) {
	t.Helper()
	t.Parallel()
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			test(t, rig.New(t, rig.Options{}), backend)
		})
	}
}

// bench is for tests that need one bench only.
func bench(t *testing.T) *rig.Rig {
	t.Helper()
	t.Parallel()
	return rig.New(t, rig.Options{})
}
