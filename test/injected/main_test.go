// Package injected starts pods as they come out of inject, in the order in which Kubernetes would, and counts at the far end: its tests
// take the commands, environment, capabilities and probes from Mutate's result, and make up nothing.
package injected

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is routefence, built once for all tests.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", fmt.Sprintf("rf%d-injected-", os.Getpid())) // a name that "make clean" knows
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
