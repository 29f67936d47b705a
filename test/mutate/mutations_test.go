package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMutationsAreUpToDate: each still applies to the code, its test is still there, and the document lists it.
func TestMutationsAreUpToDate(t *testing.T) {
	const root = "../.."
	listed, err := os.ReadFile(filepath.Join(root, "docs/mutations.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range slices.Concat(mutations, reports) {
		code, err := os.ReadFile(filepath.Join(root, m.File))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.apply(code); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if row := m.row(); !strings.Contains(string(listed), row) {
			t.Errorf("docs/mutations.md lacks the row\n%s", row)
		}
		tests, err := filepath.Glob(filepath.Join(root, m.Package, "*_test.go"))
		if err != nil || len(tests) == 0 {
			t.Errorf("%s: no tests in %s (%v)", m.Name, m.Package, err)
		}
		found := false
		for _, path := range tests {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), "\nfunc "+m.Test+"(")
		}
		if !found {
			t.Errorf("%s: no %s in %s", m.Name, m.Test, m.Package)
		}
	}
	if rows := strings.Count(string(listed), "\n| ") - 2; rows != len(mutations)+len(reports) {
		t.Errorf("docs/mutations.md lists %d mutations, there are %d", rows, len(mutations)+len(reports))
	}
}
