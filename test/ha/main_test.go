//go:build vm

package ha

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is routefence, built once for all tests.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "ha")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "routefence")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/routefence").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build routefence: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// eachBackend runs a test in a bench of its own per iptables backend. A guest chooses among them by their names: not
// every kernel has nft.
func eachBackend(t *testing.T, test func(t *testing.T, b *bench, backend string)) {
	t.Helper()
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) { test(t, newBench(t), backend) })
	}
}
