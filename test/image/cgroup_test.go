package image

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// cgroup is a container's control group, in either version.
type cgroup struct{ name string }

// read returns the first of the files that is there: version 2 comes first.
func (c cgroup) read(t *testing.T, paths ...string) string {
	t.Helper()
	for _, path := range paths {
		if data, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", path)); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	t.Fatalf("control group %s: none of %v can be read", c.name, paths)
	return ""
}

// limit and peak are in bytes.
func (c cgroup) limit(t *testing.T) int64 {
	return number(t, c.read(t, c.name+"/memory.max", "memory/"+c.name+"/memory.limit_in_bytes"))
}

func (c cgroup) peak(t *testing.T) int64 {
	return number(t, c.read(t, c.name+"/memory.peak", "memory/"+c.name+"/memory.max_usage_in_bytes"))
}

// kills is how many processes were killed for want of memory.
func (c cgroup) kills(t *testing.T) int64 {
	t.Helper()
	for line := range strings.Lines(c.read(t, c.name+"/memory.events", "memory/"+c.name+"/memory.oom_control")) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == "oom_kill" {
			return number(t, value)
		}
	}
	t.Fatalf("control group %s does not tell oom_kill", c.name)
	return 0
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
