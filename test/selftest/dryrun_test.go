package selftest

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// fences are kinds of fence that need different lines.
var fences = map[string]struct {
	prepare func(t *testing.T, r *rig.Rig, backend string)
	args    []string
}{
	"plain": {args: []string{bothNetworks, "--allow=10.250.9.0/24"}},
	"set":   {args: []string{"--node-networks=" + manyNetworks(20)}},
	"link group of its own": {
		prepare: func(_ *testing.T, r *rig.Rig, _ string) { r.Pod.IP("link set eth0 group 7") },
		args:    []string{bothNetworks},
	},
	"a link with an odd name": {
		prepare: func(t *testing.T, r *rig.Rig, _ string) {
			if got := r.Exec("ip", "link", "add", "eth'$(x);", "type", "veth", "peer", "name", "other"); got.Exit != 0 {
				t.Fatal(got.Stderr)
			}
		},
		args: []string{bothNetworks, "--fence-interfaces=eth*"},
	},
	"translated": {
		prepare: func(_ *testing.T, r *rig.Rig, backend string) {
			r.Pod.Run("iptables-" + backend + " -t nat -A OUTPUT -d 10.250.0.0/16 -j NETMAP --to 242.0.0.0/16")
		},
		args: []string{bothNetworks},
	},
	"another fence stands": {
		prepare: func(t *testing.T, r *rig.Rig, backend string) {
			install(t, r, "--node-networks="+manyNetworks(20), "--firewall="+backend)
		},
		args: []string{bothNetworks},
	},
}

func manyNetworks(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("10.%d.0.0/24", i+1))
	}
	return strings.Join(out, ",")
}

// TestDryRunCanBePasted: what a dry run prints, fed to a shell, is the very fence that the agent wants.
func TestDryRunCanBePasted(t *testing.T) {
	for name, fence := range fences {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
				if fence.prepare != nil {
					fence.prepare(t, r, backend)
				}
				args := append([]string{"--firewall=" + backend}, fence.args...)
				before := traces(t, r)
				script := dryRun(t, r, "run", args)
				if again := dryRun(t, r, "init", args); again != script {
					t.Errorf("init --dry-run differs from run --dry-run:\n%s", again)
				}
				if diff := cmp.Diff(before, traces(t, r)); diff != "" {
					t.Errorf("a dry run changed something (-before +after):\n%s", diff)
				}
				if strings.HasPrefix(script, "# the") {
					t.Fatalf("nothing to write: %s", script)
				}
				if got := r.Pod.ExecInput("set -e\n"+script, "sh"); got.Exit != 0 {
					t.Fatalf("pasted: exit code %d: %s\n%s", got.Exit, got.Stderr, script)
				}
				if again := dryRun(t, r, "run", args); !strings.HasPrefix(again, "# the "+backend+" fence for ") || strings.Count(again, "\n") != 1 {
					t.Errorf("pasted, and still to be written:\n%s", again)
				}
				expectNoWrites(t, r, args)
			})
		})
	}
}

// traces is the pod's network, and the number that nft raises at every write: a probe that is taken back leaves no other trace.
func traces(t *testing.T, r *rig.Rig) string {
	t.Helper()
	var generation uint32
	err := r.Pod.Do(func() (err error) {
		generation, err = nfnetlink.Conn{}.Generation()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// ip says so when the namespace of another bench goes away while it looks for the names of namespaces.
	network := strings.ReplaceAll(r.Snapshot(), "Error: Peer netns reference is invalid.\n", "")
	return fmt.Sprintf("generation %d\n%s", generation, network)
}

func dryRun(t *testing.T, r *rig.Rig, command string, args []string) string {
	t.Helper()
	got := r.Exec(append([]string{shipped.Binary, command, "--dry-run"}, args...)...)
	if got.Exit != 0 {
		t.Fatalf("%s --dry-run exits with %d: %s", command, got.Exit, got.Stderr)
	}
	return got.Stdout
}

// expectNoWrites lets the real agent look at the fence.
func expectNoWrites(t *testing.T, r *rig.Rig, args []string) {
	t.Helper()
	s := r.Start(append([]string{shipped.Binary, "run", "--resync=100ms"}, args...)...)
	await(t, "the agent is ready", func() bool { return r.Exec(shipped.Binary, "status").Exit == 0 })
	if log := s.Output(); strings.Contains(log, `"msg":"change"`) {
		t.Errorf("the agent found something to write:\n%s", log)
	}
	s.Stop()
}

// TestDryRunSaysWhatKeepsIt: what cannot be known is no script.
func TestDryRunSaysWhatKeepsIt(t *testing.T) {
	r := rig.New(t, rig.Options{})
	missing := filepath.Join(r.Dir, "shoot.yaml")
	for name, c := range map[string]struct {
		args []string
		exit int
		word string
	}{
		"no source":         {nil, 2, "no source of node networks"},
		"bad network":       {[]string{"--node-networks=10.250.0.0"}, 2, "10.250.0.0"},
		"file not there":    {[]string{"--shoot-file=" + missing}, 1, missing},
		"API not reachable": {[]string{"--shoot=cluster/one", "--kubeconfig=" + missing}, 1, missing},
		"no interface":      {[]string{bothNetworks, "--fence-interfaces=eth7"}, 0, "# warning: no interface matches --fence-interfaces"},
	} {
		got := r.Exec(append([]string{shipped.Binary, "init", "--dry-run"}, c.args...)...)
		if got.Exit != c.exit || !strings.Contains(got.Stdout+got.Stderr, c.word) {
			t.Errorf("%s: exit code %d, want %d and the word %q:\n%s%s", name, got.Exit, c.exit, c.word, got.Stdout, got.Stderr)
		}
		if c.exit != 0 && got.Stdout != "" {
			t.Errorf("%s: there is something to paste all the same:\n%s", name, got.Stdout)
		}
	}
	got := r.Exec("setpriv", "--bounding-set=-net_admin", "--inh-caps=-net_admin", shipped.Binary, "run", "--dry-run", bothNetworks)
	if got.Exit != 1 || got.Stdout != "" || !strings.Contains(got.Stderr, "needs NET_ADMIN") {
		t.Errorf("without NET_ADMIN: exit code %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
}
