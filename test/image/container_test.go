package image

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// container is what Kubernetes would tell a runtime about one container of a pod. The root file system is read-only, and nothing is
// mounted into it but what is named here.
type container struct {
	// entrypoint is another one than the image's, if there is one.
	entrypoint, args, env []string
	// caps are all the capabilities that there are: the rest is dropped.
	caps []string
	uid  uint32
	// volumes are directories and files of the host by the path at which they are mounted, readOnly those that are not to be written.
	volumes  map[string]string
	readOnly []string
	memory   int64
	// root is another root file system than the image's, for tests that change it.
	root string
}

// pod runs containers in the rig's pod namespace.
type pod struct {
	*rig.Rig
	t *testing.T
}

// containers numbers the containers of this process.
var containers atomic.Int32

// prepare writes the bundle and returns the command that runs it.
func (p pod) prepare(c container) (args []string, id string) {
	p.t.Helper()
	id = fmt.Sprintf("rf%d-image-%d", os.Getpid(), containers.Add(1))
	bundle := filepath.Join(p.Dir, id)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		p.t.Fatal(err)
	}
	config, err := json.Marshal(p.spec(c, id))
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = p.runtime("delete", "--force", id).Run() })
	return p.runtime("run", "--bundle", bundle, id).Args, id
}

// runtime is a command of runc, whose state lives and dies with the rig.
func (p pod) runtime(args ...string) *exec.Cmd {
	return exec.Command("runc", append([]string{"--root", filepath.Join(p.Dir, "runc")}, args...)...)
}

// exec runs a container to its end.
func (p pod) exec(c container) rig.Result {
	p.t.Helper()
	args, _ := p.prepare(c)
	return p.Rig.Exec(args...)
}

// running is a container that was started.
type running struct {
	*shipped.Agent
	p  pod
	id string
}

func (p pod) start(c container) *running {
	p.t.Helper()
	args, id := p.prepare(c)
	return &running{&shipped.Agent{Process: p.Rig.Start(args...), T: p.t, Pod: p.Pod, Patience: patience}, p, id}
}

// signal sends a signal to the container's first process, as the kubelet has the runtime do.
func (r *running) signal(s syscall.Signal) {
	r.p.t.Helper()
	if out, err := r.p.runtime("kill", r.id, fmt.Sprint(int(s))).CombinedOutput(); err != nil {
		r.p.t.Errorf("send %v to the container: %v\n%s", s, err, out)
	}
}

// cgroup is where the container's limits and what it used can be read.
func (r *running) cgroup() cgroup { return cgroup{r.id} }

func (p pod) spec(c container, id string) *oci.Spec {
	p.t.Helper()
	root := host(p.t).root
	if c.root != "" {
		root = c.root
	}
	entrypoint := host(p.t).Config.Entrypoint
	if len(c.entrypoint) > 0 {
		entrypoint = c.entrypoint
	}
	caps := make([]string, len(c.caps))
	for i, name := range c.caps {
		caps[i] = "CAP_" + name
	}
	return &oci.Spec{
		Version: "1.0.2",
		Root:    &oci.Root{Path: root, Readonly: true},
		Process: &oci.Process{
			Args: append(slices.Clone(entrypoint), c.args...),
			Env:  append(slices.Clone(host(p.t).Config.Env), c.env...),
			Cwd:  "/",
			User: oci.User{UID: c.uid, GID: c.uid},
			// What containerd sets for capabilities that are added: inheritable and ambient stay empty.
			Capabilities:    &oci.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			NoNewPrivileges: true,
		},
		Mounts: append(standardMounts(), c.mounts()...),
		Linux: &oci.Linux{
			CgroupsPath: "/" + id,
			Namespaces: []oci.LinuxNamespace{{Type: oci.PIDNamespace}, {Type: oci.IPCNamespace}, {Type: oci.UTSNamespace},
				{Type: oci.MountNamespace}, {Type: oci.NetworkNamespace, Path: "/run/netns/" + p.Pod.Name}},
			Resources: &oci.LinuxResources{Memory: c.limit()},
			Seccomp:   runtimeDefault(p.t, caps),
			MaskedPaths: []string{"/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug",
				"/proc/scsi", "/sys/firmware"},
			ReadonlyPaths: []string{"/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

func (c container) limit() *oci.LinuxMemory {
	if c.memory == 0 {
		return nil
	}
	// Kubernetes switches swap off.
	return &oci.LinuxMemory{Limit: &c.memory}
}

func standardMounts() []oci.Mount {
	secure := []string{"nosuid", "noexec", "nodev"}
	return []oci.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: secure},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: append(secure, "mode=1777", "size=65536k")},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: append(secure, "ro")},
	}
}

func (c container) mounts() []oci.Mount {
	var out []oci.Mount
	for at, from := range c.volumes {
		options := []string{"rbind", "rprivate"}
		if slices.Contains(c.readOnly, at) {
			options = append(options, "ro")
		}
		out = append(out, oci.Mount{Destination: at, Type: "bind", Source: from, Options: options})
	}
	slices.SortFunc(out, func(a, b oci.Mount) int { return strings.Compare(a.Destination, b.Destination) })
	return out
}
