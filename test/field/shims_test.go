package field

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// shims puts scripts in front of programs, in which REAL is the program itself, and returns what to put before a command
// that shall meet them.
func shims(t *testing.T, r *rig.Rig, scripts map[string]string) []string {
	t.Helper()
	dir := filepath.Join(r.Dir, "shims")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, script := range scripts {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		text := "#!/bin/sh\n" + strings.ReplaceAll(script, "REAL", real) + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"env", "PATH=" + dir + ":" + os.Getenv("PATH")}
}

// everyProgram gives one script to the programs of both families and a backend that end in suffix.
func everyProgram(backend, suffix, script string) map[string]string {
	scripts := map[string]string{}
	for _, family := range families {
		scripts[program(family, backend)+suffix] = script
	}
	return scripts
}
