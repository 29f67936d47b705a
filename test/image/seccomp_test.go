package image

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
)

// profile is the container engines' default profile in their own format, which has conditions that a runtime does not know. It is what
// Kubernetes calls RuntimeDefault.
const profile = "/usr/share/containers/seccomp.json"

// conditional is one rule of it.
type conditional struct {
	oci.LinuxSyscall
	Includes, Excludes struct{ Caps, Arches []string }
}

// runtimeDefault returns the profile for a container with these capabilities.
func runtimeDefault(t *testing.T, caps []string) *oci.LinuxSeccomp {
	t.Helper()
	data, err := os.ReadFile(profile)
	if err != nil {
		t.Fatal(err)
	}
	var p struct {
		DefaultAction   oci.LinuxSeccompAction
		DefaultErrnoRet uint
		Syscalls        []conditional
	}
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatalf("%s: %v", profile, err)
	}
	out := &oci.LinuxSeccomp{DefaultAction: p.DefaultAction, DefaultErrnoRet: &p.DefaultErrnoRet}
	for _, rule := range p.Syscalls {
		if rule.applies(caps) {
			out.Syscalls = append(out.Syscalls, rule.LinuxSyscall)
		}
	}
	if len(out.Syscalls) == 0 {
		t.Fatalf("%s: no rule applies", profile)
	}
	return out
}

func (c conditional) applies(caps []string) bool {
	has := func(name string) bool { return slices.Contains(caps, name) }
	here := len(c.Includes.Arches) == 0 || slices.Contains(c.Includes.Arches, runtime.GOARCH)
	return here && !slices.Contains(c.Excludes.Arches, runtime.GOARCH) &&
		!slices.ContainsFunc(c.Includes.Caps, func(name string) bool { return !has(name) }) && !slices.ContainsFunc(c.Excludes.Caps, has)
}
