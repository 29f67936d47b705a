package fence

import (
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// missingPrograms are a fence and a PATH in which one program is missing that would be needed to see it.
var missingPrograms = map[string]struct{ backend, missing string }{
	"nft, IPv4":         {"nft", "iptables-nft"},
	"nft, IPv6":         {"nft", "ip6tables-nft"},
	"legacy, IPv4":      {"legacy", "iptables-legacy"},
	"legacy, IPv6":      {"legacy", "ip6tables-legacy"},
	"the other backend": {"nft", "iptables-legacy"},
}

// TestCleanupThatCannotSee: what cannot be read may be ours. It is not taken for gone, and the routes stay with it.
func TestCleanupThatCannotSee(t *testing.T) {
	for name, c := range missingPrograms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{})
			loadLegacy(r)
			settleIn(t, r, c.backend, nodeNetworks...)
			fenced := snapshot(r)
			got := r.Exec(append(pathWithout(c.missing), shipped.Binary, "cleanup")...)
			if got.Exit != 1 || !strings.Contains(got.Stderr, c.missing+"-save") {
				t.Errorf("cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
			}
			expectSame(t, "after a cleanup that cannot see", fenced, snapshot(r))
		})
	}
}

func pathWithout(missing string) []string {
	var others []string
	for _, p := range []string{"iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		if p != missing {
			others = append(others, p)
		}
	}
	return pathWith(others...)
}

// TestCleanupBesideNativeRules: a table that nft switched off, or that holds what iptables-nft cannot show, matters if ours is in it.
func TestCleanupBesideNativeRules(t *testing.T) {
	for name, script := range map[string]string{
		"dormant":     "add table ip mangle { flags dormant ; }",
		"native rule": "add rule ip mangle POSTROUTING ct mark 1 accept",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.New(t, rig.Options{})
			settleIn(t, r, "nft", nodeNetworks...)
			r.Pod.Feed(script, "nft -f -")
			fenced := snapshot(r)
			if got := r.Exec(shipped.Binary, "cleanup"); got.Exit != 1 || !strings.Contains(got.Stderr, "ipv4 mangle") {
				t.Errorf("cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
			}
			expectSame(t, "after the cleanup", fenced, snapshot(r))
		})
	}
}

// TestCleanupNeedsNoProgramsForNothing: neither a backend that is not installed and holds nothing, nor native rules of others stop it.
func TestCleanupNeedsNoProgramsForNothing(t *testing.T) {
	r := rig.New(t, rig.Options{})
	settleIn(t, r, "nft", nodeNetworks...)
	if got := r.Exec(append(pathWith("iptables-nft", "ip6tables-nft"), shipped.Binary, "cleanup")...); got.Exit != 0 {
		t.Errorf("without the legacy programs cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
	r.Pod.Feed("table ip filter { chain OUTPUT { type filter hook output priority 0 ; meta skuid 5 accept ; } ; }", "nft -f -")
	settleIn(t, r, "auto", nodeNetworks...)
	if got := r.Exec(shipped.Binary, "cleanup"); got.Exit != 0 {
		t.Errorf("beside native rules of others cleanup exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
}

// TestHostBitsInAllow: one address was meant, and a hole as wide as its network must not come of it.
func TestHostBitsInAllow(t *testing.T) {
	r := rig.New(t, rig.Options{})
	for allow, write := range map[string]string{
		"10.250.3.7/16":                "10.250.0.0/16",
		"10.250.9.0/24,fd00:250::7/64": "fd00:250::/64",
		"::ffff:10.250.3.7/112":        "10.250.0.0/16",
		"10.250.9.0/24 10.250.3.7/16":  "10.250.0.0/16",
	} {
		got := r.Exec("timeout", "5", shipped.Binary, "run", bothNetworks, "--allow="+allow)
		if got.Exit != 2 || strings.Count(got.Stderr, "\n") != 1 || !strings.Contains(got.Stderr, "--allow") || !strings.Contains(got.Stderr, write) {
			t.Errorf("%s: exits with %d, want 2 and the advice to write %s: %s", allow, got.Exit, write, got.Stderr)
		}
	}
	if got := r.Exec(shipped.Binary, "init", bothNetworks, "--allow=10.250.9.0/24,::ffff:10.250.3.7/128"); got.Exit != 0 {
		t.Errorf("holes without host bits: exits with %d: %s", got.Exit, got.Stderr)
	}
}

// TestHostBitsOfNodeNetworksAreSaid: they widen the fence, which is safe, but not what was written.
func TestHostBitsOfNodeNetworksAreSaid(t *testing.T) {
	r := rig.New(t, rig.Options{})
	s := start(t, r, "--node-networks=10.250.3.7/16", "--firewall=nft")
	d := s.Await("ready", func(d document) bool { return d.Ready })
	const words = "10.250.3.7/16 has host bits set"
	if got := d.Sources[0].Message; !strings.Contains(got, words) || !d.Sources[0].Healthy {
		t.Errorf("the source says %q", got)
	}
	if n := strings.Count(s.Output(), words); n != 1 {
		t.Errorf("the log says it %d times:\n%s", n, s.Output())
	}
}

// inits are command lines of init, with its exit code and what it must say.
var inits = []struct {
	name, line, words string
	exit              int
}{
	{"no such interface", "init --node-networks=10.250.0.0/16 --fence-interfaces=ens5", "no interface matches", 1},
	{"a file that is not there", "init --node-networks=10.250.0.0/16 --shoot-file=/nonexistent", "source-shoot-file /nonexistent", 1},
	{"a bad item beside a good one", "SHOOT_NODE_NETWORKS=10.250.0.0/16,10.300.0.0/16 init", "10.300.0.0/16", 0},
	{"nothing but a bad item beside a good source", "SHOOT_NODE_NETWORKS=10.300.0.0/16 init --node-networks=10.250.0.0/16", "10.300.0.0/16", 0},
	{"the VPN is down", "init --node-networks=10.250.0.0/16 --ready-when=tunneled", "Blocked", 0},
}

// TestInitSaysWhetherTheFenceWorks: rules that stand and guard nothing are no fence.
func TestInitSaysWhetherTheFenceWorks(t *testing.T) {
	for _, c := range inits {
		t.Run(c.name, func(t *testing.T) {
			r := rig.New(t, rig.Options{})
			got := r.Exec(commandLine(c.line + " --timeout=1s --log-level=error")...)
			if got.Exit != c.exit {
				t.Errorf("%s: exits with %d, want %d: %s%s", c.line, got.Exit, c.exit, got.Stdout, got.Stderr)
			}
			for word := range strings.FieldsSeq(c.words) {
				if !strings.Contains(got.Stdout+got.Stderr, word) {
					t.Errorf("%s: no %q in: %s%s", c.line, word, got.Stdout, got.Stderr)
				}
			}
		})
	}
}
