package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/routefence/routefence/test/rig"
)

// lab is one shoot with its control plane.
type lab struct {
	t       *testing.T
	variant variant
	world   *world
	cgroup  string
	// nodesKnown: the VPN has been told of the node network.
	nodesKnown bool

	server, proxy, machine, vpnServer, vpnClient *rig.Process
	config                                       *rest.Config
	client                                       kubernetes.Interface
}

var labs atomic.Int32

// newCluster builds a control plane and a machine. The images, files by the name that they get, are those of pods, besides the one there
// always is.
func newCluster(t *testing.T, v variant, images map[string]string) *lab {
	t.Helper()
	l := &lab{t: t, variant: v, cgroup: fmt.Sprintf("rf%d-e2e-%d", os.Getpid(), labs.Add(1))}
	makeCgroup(t, l.cgroup)
	keeper := newLogKeeper(t, v.name)
	l.world = newWorld(rig.NewLab(t))
	keeper.keeps(l.world.Dir)
	l.certificates()
	for name, path := range images {
		write(t, l.machineFile("images/"+name+".oci.tar"), string(read(t, path)))
	}
	l.startMachine()
	l.startControlPlane()
	t.Cleanup(func() { // these two would take their time
		l.server.Kill()
		l.machine.Kill()
	})
	wait(t, "the node is registered", time.Minute, func() error {
		if !l.machine.Running() {
			t.Fatalf("the machine has ended:\n%s", tail(l.machine.Output()))
		}
		_, err := l.client.CoreV1().Nodes().Get(context.Background(), node, metav1.GetOptions{})
		return err
	})
	return l
}

// newLab builds a shoot, VPN and pods included.
func newLab(t *testing.T, v variant) *lab {
	t.Helper()
	begin := time.Now()
	l := newCluster(t, v, nil)
	t.Logf("%.1fs: kube-apiserver is ready and has a node", time.Since(begin).Seconds())
	l.writeShootVPN()
	l.preparePods()
	l.startPods()
	t.Logf("%.1fs: pods are ready", time.Since(begin).Seconds())
	wait(t, "the VPN is up", time.Minute, l.answers)
	wait(t, "the metrics API answers", time.Minute, func() error { return l.top().err })
	t.Logf("%.1fs: the VPN is up and used", time.Since(begin).Seconds())
	return l
}

func read(t rig.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return data
}

// burial removes control groups when its input ends, however the test did: $1 is their name.
const burial = `
cat >/dev/null
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
	left=
	for group in /sys/fs/cgroup/"$1" /sys/fs/cgroup/*/"$1"; do
		[ -d "$group" ] || continue
		find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
		[ ! -d "$group" ] || left="$left $group"
	done
	[ -n "$left" ] || exit 0
	sleep 0.5
done
echo "control groups left behind:$left"
exit 1
`

// makeCgroup makes the control groups of a machine's pods, in each hierarchy that there is. They end with the test, after
// the processes in them.
func makeCgroup(t *testing.T, name string) {
	t.Helper()
	cmd := exec.Command("sh", "-c", burial, "undertaker", name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the test, whose end is the cue
	cmd.Stderr = os.Stderr
	life, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("start the undertaker: %v", err)
	}
	t.Cleanup(func() {
		life.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("control groups %s: %v", name, err)
		}
	})
	parents := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil { // version 1: a directory for each controller
		parents, _ = filepath.Glob("/sys/fs/cgroup/*")
	}
	for _, parent := range parents {
		if filepath.Base(parent) == "unified" {
			continue
		}
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) { // cpu and cpuacct may be one by two names
			t.Fatalf("%v", err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if _, err := os.Stat(filepath.Join(dir, "cpuset.cpu_exclusive")); err != nil {
				break
			}
			all, err := os.ReadFile(filepath.Join(parent, file))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), all, 0)
			}
			if err != nil {
				t.Fatalf("%v", err)
			}
		}
	}
}

// logKeeper copies the logs of a lab to where they stay, if its test fails or is interrupted.
type logKeeper struct {
	t    *testing.T
	name string
	dir  string
}

func newLogKeeper(t *testing.T, name string) *logKeeper {
	return &logKeeper{t: t, name: strings.NewReplacer(" ", "-", ",", "").Replace(name)}
}

func (k *logKeeper) keeps(dir string) {
	k.dir = dir
	running.Store(k.name, k)
	k.t.Cleanup(func() {
		running.Delete(k.name)
		if k.t.Failed() {
			k.copy()
		}
	})
}

func (k *logKeeper) copy() {
	to := filepath.Join(programs.logs, k.name)
	err := filepath.WalkDir(k.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || filepath.Ext(path) != ".log" {
			return nil // neither what goes away meanwhile nor the links that kubelet makes
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(to, 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, filepath.Base(path)), data, 0o644)
	})
	fmt.Printf("logs of %s are in %s (%v)\n", k.name, to, err)
}
