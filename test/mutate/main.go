// Command mutate breaks the fence on purpose, one defect at a time in a copy of the tree, and tells whether the test that is named
// for it notices.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() { os.Exit(run(os.Args[1:])) }

// run tries the mutations whose names contain one of the words, or all.
func run(words []string) int {
	dir, err := os.MkdirTemp("", fmt.Sprintf("rf%d-mutate-", os.Getpid())) // a name that "make clean" knows
	if err == nil {
		defer os.RemoveAll(dir)
		err = copyTree(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	survivors := 0
	sound := map[string]bool{}
	for _, m := range slices.Concat(mutations, reports) {
		if len(words) > 0 && !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(m.Name, w) }) {
			continue
		}
		begin := time.Now()
		outcome := "caught"
		if err := m.try(dir, sound); err != nil {
			outcome = "SURVIVED: " + err.Error()
			survivors++
		}
		fmt.Printf("%-58s %s %s: %s (%v)\n", m.Name, m.Package, m.Test, outcome, time.Since(begin).Round(time.Second))
	}
	if survivors > 0 {
		fmt.Fprintf(os.Stderr, "%d not caught\n", survivors)
		return 1
	}
	return 0
}

// copyTree copies what belongs to the project, as it is in the working tree.
func copyTree(to string) error {
	out, err := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("list the files of the tree (run it in its root): %w", err)
	}
	for name := range strings.SplitSeq(strings.Trim(string(out), "\x00"), "\x00") {
		data, err := os.ReadFile(name)
		if os.IsNotExist(err) {
			continue // deleted and not yet committed
		} else if err != nil {
			return err
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		at := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, data, info.Mode()); err != nil {
			return err
		}
	}
	return nil
}

// try returns nil if the test fails on the mutant, and passes without it. A test that is known to be sound is not run again for that.
func (m mutation) try(dir string, sound map[string]bool) error {
	if test := m.Package + " " + m.Test; !sound[test] {
		if out, err := m.test(dir); err != nil {
			return fmt.Errorf("fails without the mutation, too:\n%s%w", out, err)
		}
		sound[test] = true
	}
	path := filepath.Join(dir, m.File)
	original, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	defer func() { _ = os.WriteFile(path, original, 0o600) }() // a copy
	mutant, err := m.apply(original)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, mutant, 0o600); err != nil {
		return err
	}
	out, err := m.test(dir)
	switch {
	case err == nil:
		return fmt.Errorf("the test passes")
	case !strings.Contains(out, "--- FAIL"):
		return fmt.Errorf("no test failed, but something else did:\n%s", out)
	}
	return nil
}

// row is the mutation as docs/mutations.md lists it.
func (m mutation) row() string {
	return fmt.Sprintf("| %s | `%s` | `%s` %s |", m.Name, m.File, m.Package, m.Test)
}

// apply returns the text with the defect in it.
func (m mutation) apply(text []byte) ([]byte, error) {
	if n := bytes.Count(text, []byte(m.Old)); n != 1 {
		return nil, fmt.Errorf("%q occurs %d times in %s, want once: the mutation is out of date", m.Old, n, m.File)
	}
	return bytes.Replace(text, []byte(m.Old), []byte(m.New), 1), nil
}

// test runs the named test, from its own directory: test/apiserver is a module of its own.
func (m mutation) test(dir string) (string, error) {
	cmd := exec.Command("go", "test", "-count=1", "-run", "^"+m.Test+"$", ".")
	cmd.Dir = filepath.Join(dir, m.Package)
	out, err := cmd.CombinedOutput()
	if err == nil && bytes.Contains(out, []byte("no tests to run")) {
		return "", fmt.Errorf("no test %s in %s", m.Test, m.Package)
	}
	return string(out), err
}
