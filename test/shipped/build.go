// Package shipped builds routefence as it is shipped, runs it in a bench, and reads what it says in the words of the contract.
package shipped

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Binary is routefence, built once for all tests of a package.
var Binary string

// Main builds routefence and runs the tests; TestMain exits with what it returns.
func Main(m *testing.M) int {
	dir, err := os.MkdirTemp("", fmt.Sprintf("rf%d-shipped-", os.Getpid())) // a name that "make clean" knows
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	Binary = filepath.Join(dir, "routefence")
	build := exec.Command("go", "build", "-o", Binary, "github.com/routefence/routefence/cmd/routefence")
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
