package e2e

import (
	"os"
	"path/filepath"

	"github.com/routefence/routefence/test/rig"
)

// write writes a file and the directories it needs.
func write(t rig.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatalf("%v", err)
	}
}
