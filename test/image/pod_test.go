package image

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/rig"
)

// patience is how long a test waits for what must come. It asserts nothing about speed.
const patience = 60 * time.Second

// networks is the ConfigMap of most tests: the bench's node networks.
const networks = "10.250.0.0/16\nfd00:250::/48\n"

// fromConfigMap injects an agent that has its networks from a ConfigMap, for a backend.
func fromConfigMap(backend string) inject.Options {
	return inject.Options{Source: inject.ConfigMapSource + "nodes", Firewall: backend}
}

func newPod(t *testing.T) pod { return pod{rig.New(t, rig.Options{}), t} }

// TestAsKubernetesRunsIt: the injected container, with nothing but what the injected pod gives it, keeps the fence in either backend, ends
// when asked, and leaves no file anywhere but in its emptyDirs.
func TestAsKubernetesRunsIt(t *testing.T) {
	for _, test := range []struct {
		backend string
		caps    []string
		written []string
	}{
		{"nft", []string{"NET_ADMIN"}, nil},
		{"legacy", []string{"NET_ADMIN", "NET_RAW"}, []string{"/run/xtables.lock"}},
	} {
		t.Run(test.backend, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			c := p.injected(fromConfigMap(test.backend), networks)
			if !slices.Equal(c.caps, test.caps) {
				t.Fatalf("the container has %v; this test is of %v", c.caps, test.caps)
			}
			before := tree(t, host(t).root)
			r := p.start(c)
			d := r.AwaitReady()
			if d.Firewall.Backend != test.backend || len(d.Firewall.Degraded) > 0 {
				t.Errorf("firewall: %+v", d.Firewall)
			}
			for _, path := range []string{"/startupz", "/readyz", "/healthz"} {
				if code, body := r.Get(path); code != http.StatusOK {
					t.Errorf("%s: %d %s", path, code, body)
				}
			}
			p.holds()
			r.signal(syscall.SIGTERM)
			if code, err := r.Wait(patience); code != 0 || err != nil {
				t.Errorf("SIGTERM: exit code %d, %v\n%s", code, err, r.Output())
			}
			p.holds()
			if after := tree(t, host(t).root); after != before {
				t.Errorf("the root file system was\n%s\nand is\n%s", before, after)
			}
			if got := c.written(t); !slices.Equal(got, test.written) {
				t.Errorf("files in emptyDirs: %v, want %v", got, test.written)
			}
			p.opens(c)
		})
	}
}

// holds sees that nothing gets to nodes.
func (p pod) holds() {
	p.t.Helper()
	p.ResetCounters()
	for _, to := range []rig.Probe{{Protocol: rig.TCP, To: rig.Node4}, {Protocol: rig.UDP, To: rig.Node6}, {Protocol: rig.TCP, To: rig.Node4, Device: "eth0"}} {
		if a := p.Probe(to); a.Err == nil {
			p.t.Errorf("%v: answered by %s", to, a.From)
		}
	}
	if n := p.SeedCount().Total(); n != 0 {
		p.t.Errorf("%d packets got out", n)
	}
}

// opens sees that cleanup works in the container, too.
func (p pod) opens(c container) {
	p.t.Helper()
	c.args = []string{"cleanup"}
	if out := p.exec(c); out.Exit != 0 {
		p.t.Errorf("cleanup: %v\n%s", out.Err, out.Stderr)
	}
	if a := p.Probe(rig.Probe{Protocol: rig.UDP, To: rig.Node4, Timeout: patience}); a.From != rig.AnswerNet {
		p.t.Errorf("after cleanup a node answers with %v", a)
	}
}

// written returns the files in the volumes that are not read-only, by the path in the container.
func (c container) written(t *testing.T) []string {
	t.Helper()
	var out []string
	for at, from := range c.volumes {
		if slices.Contains(c.readOnly, at) {
			continue
		}
		for path := range strings.Lines(tree(t, from)) {
			out = append(out, filepath.Join(at, strings.Fields(path)[0]))
		}
	}
	slices.Sort(out)
	return out
}

// TestInit: the init container of the form for old servers installs the fence and ends.
func TestInit(t *testing.T) {
	p := newPod(t)
	c := p.injected(fromConfigMap("auto"), networks)
	c.args = []string{"init"}
	if out := p.exec(c); out.Exit != 0 || !strings.Contains(out.Stdout, "fenced") {
		t.Fatalf("%v\n%s%s", out.Err, out.Stdout, out.Stderr)
	}
	p.holds()
}

// TestWithNetRaw: with the one capability more that legacy iptables and sets need, and both backends at hand, it is as well.
func TestWithNetRaw(t *testing.T) {
	p := newPod(t)
	c := p.injected(fromConfigMap("nft"), networks)
	c.caps = append(c.caps, "NET_RAW")
	r := p.start(c)
	r.AwaitReady()
	p.holds()
}

// TestWithoutNetAdmin: what is missing is said, and nothing is written.
func TestWithoutNetAdmin(t *testing.T) {
	for _, test := range []struct {
		name, backend string
		caps          []string
		uid           uint32
		says          string
	}{
		{"no capability", "auto", nil, 0, "needs NET_ADMIN"},
		{"none but NET_ADMIN", "legacy", []string{"NET_ADMIN"}, 0, "needs NET_ADMIN and NET_RAW"},
		// FR-48: for a user like kube-apiserver's, capabilities that the pod adds are not effective.
		{"not root", "auto", []string{"NET_ADMIN"}, 65532, "needs NET_ADMIN"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			c := p.injected(fromConfigMap(test.backend), networks)
			c.caps, c.uid, c.args = test.caps, test.uid, []string{"init", "--timeout=2s"}
			before := p.Snapshot()
			out := p.exec(c)
			if out.Exit != 1 || !strings.Contains(out.Stderr, test.says) {
				t.Errorf("exit code %d, without %q:\n%s", out.Exit, test.says, out.Stderr)
			}
			if after := p.Snapshot(); test.backend == "auto" && after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestHostNetwork: in a pod with hostNetwork the container ends with a message, and writes nothing.
func TestHostNetwork(t *testing.T) {
	p := newPod(t)
	c := p.injected(fromConfigMap("auto"), networks)
	c.env = append(c.env, "HOST_IP="+rig.Pod4.String()) // the last of a name counts
	before := p.Snapshot()
	out := p.exec(c)
	if out.Exit != 2 || !strings.Contains(out.Stderr, "--host-network") {
		t.Errorf("exit code %d: %s", out.Exit, out.Stderr)
	}
	if after := p.Snapshot(); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestReadOnlyLock: legacy iptables works with a writable lock file wherever it is said to be, and says so if there is none.
func TestReadOnlyLock(t *testing.T) {
	for name, test := range map[string]struct {
		at   string
		env  []string
		exit int
	}{
		"nowhere":  {exit: 1},
		"run":      {at: "/run"},
		"tmp":      {at: "/tmp"},
		"variable": {at: "/var/lock", env: []string{"XTABLES_LOCKFILE=/var/lock/of-mine"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			c := p.injected(fromConfigMap("legacy"), networks)
			delete(c.volumes, "/run")
			if test.at != "" {
				c.volumes[test.at] = t.TempDir()
			}
			c.args, c.env = []string{"init", "--timeout=2s"}, append(c.env, test.env...)
			out := p.exec(c)
			if out.Exit != test.exit {
				t.Errorf("exit code %d, want %d\n%s", out.Exit, test.exit, out.Stderr)
			}
			if test.exit != 0 && !strings.Contains(out.Stderr, "writable lock file") {
				t.Errorf("does not say what is missing: %s", out.Stderr)
			}
		})
	}
}

// tree lists the files below a directory with all that a write would change.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		b.WriteString(name + " " + info.Mode().String() + " " + info.ModTime().String() + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
