package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTwoBuildsAreTheSame: from another directory, with files of another time, the same commit gives the same archive byte for byte.
func TestTwoBuildsAreTheSame(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	if err := copySource(source); err != nil {
		t.Fatal(err)
	}
	platform := "linux/" + host(t).Architecture
	first, err := os.ReadFile(archive(scratch, platform))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(archive(scratch, platform)); err != nil {
		t.Fatal(err)
	}
	if err := build(scratch, source, platform); err != nil {
		t.Fatal(err)
	}
	second, err := unpack(archive(scratch, platform), filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	if second.digest != host(t).digest {
		t.Errorf("the same source gave %s and %s", host(t).digest, second.digest)
	}
	if again, err := os.ReadFile(archive(scratch, platform)); err != nil || string(again) != string(first) {
		t.Errorf("the archives differ (%v)", err)
	}
}

// copySource copies what git knows or would take.
func copySource(to string) error {
	list := exec.Command("git", "-C", "../..", "ls-files", "--cached", "--others", "--exclude-standard")
	out, err := list.Output()
	if err != nil {
		return err
	}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		from := filepath.Join("../..", name)
		info, err := os.Stat(from)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		} else if err != nil {
			return err
		}
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		path := filepath.Join(to, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, info.Mode()); err != nil {
			return err
		}
	}
	return nil
}
