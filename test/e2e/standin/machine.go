package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// machine is the first process of a machine, in mount and process namespaces of its own: with it go kubelet, containerd, pods and
// mounts, however it ends. DIR has containerd.toml and images, and takes logs.
func machine(args []string) error {
	dir := args[0]
	if err := furnish(dir); err != nil {
		return err
	}
	done := make(chan error, 2)
	if err := start(done, filepath.Join(dir, "log/containerd.log"), "containerd", "--config", filepath.Join(dir, "containerd.toml")); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(dir, "images/*.tar"))
	if err != nil {
		return err
	}
	for _, path := range images {
		if err := importImage(path); err != nil {
			return err
		}
	}
	if err := start(done, filepath.Join(dir, "log/kubelet.log"), args[1:]...); err != nil {
		return err
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-ended:
		return nil
	case err := <-done:
		return err
	}
}

// constants are the kernel settings that kubelet insists on. They are the host's, so it is shown files that have the wanted
// values: it compares, is content and writes nothing.
var constants = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// furnish mounts what makes the namespaces a machine: /proc and /sys of these namespaces, /run and /var/lib of its own.
func furnish(dir string) error {
	cgroups := filepath.Join(dir, "cgroup")
	for _, path := range []string{cgroups, filepath.Join(dir, "log")} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	const bind = syscall.MS_BIND | syscall.MS_REC
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", syscall.MS_PRIVATE | syscall.MS_REC},
		{"proc", "/proc", "proc", 0},
		// A new sysfs shows this network namespace, but has no cgroups in it: they are set aside and put back.
		{"/sys/fs/cgroup", cgroups, "", bind},
		{"sysfs", "/sys", "sysfs", 0},
		{cgroups, "/sys/fs/cgroup", "", bind},
		{"tmpfs", "/run", "tmpfs", 0},
		{"tmpfs", "/var/lib", "tmpfs", 0},
		{filepath.Join(dir, "log"), "/var/log", "", bind},
	} {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
		}
	}
	if err := syscall.Unmount(cgroups, syscall.MNT_DETACH); err != nil {
		return err
	}
	for _, path := range []string{"/run/lock", "/run/containerd", "/run/sysctl", "/var/lib/kubelet", "/var/lib/containerd"} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	for name, value := range constants {
		shown := filepath.Join("/run/sysctl", filepath.Base(name))
		if err := os.WriteFile(shown, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(shown, filepath.Join("/proc/sys", name), "", bind, ""); err != nil {
			return fmt.Errorf("mount over %s: %w", name, err)
		}
	}
	return nil
}

func start(done chan<- error, logFile string, args ...string) error {
	out, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { done <- fmt.Errorf("%s ended: %v", args[0], cmd.Wait()) }()
	return nil
}

// importImage waits for containerd, too. OCI archives have a tag and no name, which comes from here.
func importImage(path string) (err error) {
	args := []string{"--namespace", "k8s.io", "images", "import", path}
	if name, oci := strings.CutSuffix(filepath.Base(path), ".oci.tar"); oci {
		args = append(args[:4:4], "--base-name", "e2e.test/"+name, path)
	}
	var out []byte
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		out, err = exec.Command("ctr", args...).CombinedOutput()
		if err == nil {
			log.Printf("imported: %s", out)
			return nil
		}
	}
	return fmt.Errorf("import %s: %w\n%s", path, err, out)
}
