// Package shipped builds routefence as it is shipped, runs it in a bench, and reads what it says in the words of the contract.
package shipped

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	if err := build(); err != nil {
		fmt.Fprintf(os.Stderr, "build routefence: %v\n", err)
		return 1
	}
	// Some tests write rules themselves, by the product's own edges, which start iptables from this process.
	if err := os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "xtables.lock")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// build uses the flags of "make build".
func build() error {
	flags, err := flags()
	if err != nil {
		return err
	}
	args := append([]string{"build", "-o", Binary, "-trimpath", "-ldflags", "-s -w"}, flags...)
	cmd := exec.Command("go", append(args, "github.com/routefence/routefence/cmd/routefence")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// flags are those in image/goflags, two folders above the tests of a package. A guest has no tree, and a binary that was built outside.
func flags() ([]string, error) {
	data, err := os.ReadFile("../../image/goflags")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		if !strings.HasPrefix(line, "#") {
			out = append(out, strings.Fields(line)...)
		}
	}
	return out, err
}
