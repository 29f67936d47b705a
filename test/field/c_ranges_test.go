package field

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// TestFR22: host bits are set. Everywhere there is one canonical value, and one warning.
func TestFR22HostBits(t *testing.T) {
	eachBackend(t, func(t *testing.T, r *rig.Rig, backend string) {
		file := newShootFile(t, r)
		file.put(`apiVersion: core.gardener.cloud/v1beta1
kind: Shoot
metadata:
  name: bits
spec:
  networking:
    nodes: 10.250.2.3/16
status:
  networking:
    nodes: [10.250.0.0/16, "fd00:250::1/48"]
`)
		s := start(t, r, "--shoot-file="+file.path, "--firewall="+backend, "--resync=100ms")
		if d := s.AwaitReady(); d.CIDRs() != "10.250.0.0/16 fd00:250::/48" {
			t.Errorf("networks %s", d.CIDRs())
		}
		lines := s.Changes()
		s.AwaitPasses(10)
		if s.Changes() != lines {
			t.Errorf("later passes wrote %d times", s.Changes()-lines)
		}
		_, metrics := s.Get("/metrics")
		everything := metrics + snapshot(r) // the state words the warning
		for _, raw := range []string{"10.250.2.3", "fd00:250::1/"} {
			if strings.Contains(everything, raw) {
				t.Errorf("%s is somewhere in the metrics or the kernel", raw)
			}
			if n := strings.Count(s.Output(), raw); n != 1 {
				t.Errorf("%d warnings about %s, want one:\n%s", n, raw, s.Tail())
			}
		}
		if n := strings.Count(r.Pod.Run("ip route show table 9604"), "blackhole"); n != 1 {
			t.Errorf("%d blackholes of IPv4", n)
		}
		expectFenced(t, r, "host bits")
	})
}

// untidy is a list as people write it: with other separators, empty items, a tab, CRLF, a byte order mark, a blank that does not
// break, and repeats.
const untidy = "\ufeff 10.250.0.0/16, ,10.251.0.0/16;\r\n10.250.0.0/16,10.250.128.0/17,\tfd00:250::/48,\u00a0\r\n"

// TestFR25: nothing of an untidy list is lost, neither from a file nor from the environment; and a bad item is named while the good
// ones are fenced. Neighbours are merged, so two /16 and a /17 make one /15.
func TestFR25UntidyLists(t *testing.T) {
	const want = "10.250.0.0/15 fd00:250::/48"
	const bad = "10.300.0.0/16"
	for _, from := range []string{"file", "environment"} {
		t.Run(from, func(t *testing.T) {
			r := bench(t)
			file := newShootFile(t, r)
			run := func(text string) *sidecar {
				if from == "file" {
					file.put(text)
					return start(t, r, "--shoot-file="+file.path, "--firewall=nft", "--resync=1s")
				}
				return startWith(t, r, []string{"env", "SHOOT_NODE_NETWORKS=" + text}, "--firewall=nft", "--resync=1s")
			}
			s := run(untidy)
			if d := s.AwaitReady(); d.CIDRs() != want {
				t.Errorf("networks %s, want %s", d.CIDRs(), want)
			}
			expectFenced(t, r, "untidy", append(addresses, netip.MustParseAddr("10.251.0.7"))...)
			s.Stop()
			s = run(bad + "," + strings.TrimPrefix(untidy, "\ufeff"))
			d := s.Await("the item is named", func(d document) bool { return d.Reason == "InvalidNetwork" && d.CIDRs() != "" })
			if d.Ready || d.CIDRs() != want || !strings.Contains(d.Message, bad) {
				t.Errorf("ready %v, networks %s: %s", d.Ready, d.CIDRs(), d.Message)
			}
			expectFenced(t, r, "with a bad item")
		})
	}
}

// refusedRanges are those that the pod itself lives by, or that mean nothing as node networks.
var refusedRanges = []string{"0.0.0.0/0", "::/0", "127.0.0.0/8", "::1/128", "169.254.0.0/16", "169.254.1.1/32", "fe80::/10", "224.0.0.0/4", "ff00::/8"}

// TestFR26: a range that is everything, or needed by every pod, is refused by name; the others stay fenced.
func TestFR26RefusedRanges(t *testing.T) {
	r := bench(t)
	file := newShootFile(t, r)
	file.write("10.250.0.0/16", "fd00:250::/48")
	s := start(t, r, "--shoot-file="+file.path, "--firewall=nft", "--resync=1s")
	s.AwaitReady()
	for _, refused := range refusedRanges {
		file.write("10.250.0.0/16", "fd00:250::/48", refused)
		d := s.Await(refused+" is named", func(d document) bool { return !d.Ready && strings.Contains(d.Message, refused) })
		if d.Reason != "InvalidNetwork" || d.CIDRs() != "10.250.0.0/16 fd00:250::/48" {
			t.Errorf("%s: %s, networks %s", refused, d.Reason, d.CIDRs())
		}
		expectAnswer(t, r, refused, netip.MustParseAddr("169.254.1.1"), rig.AnswerNet) // the pod's gateway
	}
	expectFenced(t, r, "beside refused ranges")
}

// TestFR26Lifelines: a network that holds what the pod lives by is fenced but for those addresses, which the state names; or it is
// refused, for whom that is safer.
func TestFR26Lifelines(t *testing.T) {
	r := bench(t)
	const apiServer = "10.250.0.7" // it is what answers in the seed network
	env := []string{"env", "KUBERNETES_SERVICE_HOST=" + apiServer}
	s := startWith(t, r, env, "--node-networks=10.0.0.0/8", "--firewall=nft", "--resync=1s")
	d := s.AwaitReady()
	for _, words := range []string{rig.Pod4.String(), "API server", apiServer} {
		if !strings.Contains(d.Causes(), words) {
			t.Errorf("the state has no word on %s: %s", words, d.Causes())
		}
	}
	expectAnswer(t, r, "lifeline", rig.Node4, rig.AnswerNet)
	r.ResetCounters()
	expectFenced(t, r, "beside the lifeline", netip.MustParseAddr("10.250.0.8"), netip.MustParseAddr("10.251.0.7"))
	s.Stop()
	clean(t, r)
	s = startWith(t, r, env, "--node-networks=10.0.0.0/8,fd00:250::/48", "--firewall=nft", "--resync=1s", "--lifelines=refuse")
	d = s.Await("the network is refused", func(d document) bool { return d.Reason == "InvalidNetwork" })
	if d.Ready || !strings.Contains(d.Message, "10.0.0.0/8") || !strings.Contains(d.Message, rig.Pod4.String()) {
		t.Errorf("ready %v: %s", d.Ready, d.Message)
	}
	expectFenced(t, r, "the other network", rig.Node6)
}

// lifelines are what a pod may live by and the kernel or the file system tells, all inside of the bench's node network.
var lifelines = map[string]string{
	"10.250.0.1": "gateway on eth0",
	"10.250.0.2": "DNS server",
	"10.250.0.3": "API server",
	"10.250.0.4": "other end of tunnel tun0",
	"10.250.0.5": "own address on eth0",
}

// TestFR26EveryLifeline: each is kept by name and exactly, and nothing beside it; or all are named as the reason of a refusal. The kernel
// knows the other end of a vxlan, not that of an OpenVPN (decision 13).
func TestFR26EveryLifeline(t *testing.T) {
	r := bench(t)
	resolv := filepath.Join(r.Dir, "resolv.conf")
	must(t, os.WriteFile(resolv, []byte("search svc\nnameserver 10.250.0.2\n"), 0o600))
	wrap := []string{"env", "KUBERNETES_SERVICE_HOST=10.250.0.3", "unshare", "-m", "sh", "-ec", `mount --bind "$1" /etc/resolv.conf; shift; exec "$@"`, "sh", resolv}
	r.Pod.IP("addr add 10.250.0.5/32 dev eth0", "route replace default via 10.250.0.1 dev eth0 onlink",
		"link add tun0 type vxlan id 4 dstport 4789 local 10.250.0.5 remote 10.250.0.4 dev eth0")
	s := startWith(t, r, wrap, "--node-networks=10.250.0.0/24", "--firewall=nft", "--resync=1s", "--replies=off")
	d := s.AwaitReady()
	exceptions := map[string]string{}
	for _, e := range d.Network("10.250.0.0/24").Exceptions {
		if e.State == "Allowed" {
			exceptions[strings.TrimSuffix(e.CIDR, "/32")] = e.Cause
		}
	}
	for addr, name := range lifelines {
		if !strings.Contains(exceptions[addr], name) {
			t.Errorf("%s is no lifeline called %s: %v", addr, name, exceptions)
		}
		if addr != "10.250.0.5" { // which is the pod itself
			expectAnswer(t, r, name, netip.MustParseAddr(addr), rig.AnswerNet)
		}
	}
	if len(exceptions) != len(lifelines) {
		t.Errorf("kept: %v", exceptions)
	}
	r.ResetCounters()
	expectFenced(t, r, "beside the lifelines", netip.MustParseAddr("10.250.0.6"), rig.Node4)
	s.Stop()
	clean(t, r)
	s = startWith(t, r, wrap, "--node-networks=10.250.0.0/24", "--firewall=nft", "--resync=1s", "--lifelines=refuse")
	d = s.Await("the network is refused", func(d document) bool { return strings.Contains(d.Message, "--lifelines=refuse") })
	if d.Ready || len(d.Networks) > 0 {
		t.Errorf("refused and ready %v, networks %s", d.Ready, d.CIDRs())
	}
	for addr, name := range lifelines {
		if !strings.Contains(d.Message, name) || !strings.Contains(d.Message, addr) {
			t.Errorf("the refusal does not name the %s %s: %s", name, addr, d.Message)
		}
	}
}

// TestFR28: families are told by the value, in whatever order; a bad item is named and harms no other.
func TestFR28MixedFamilies(t *testing.T) {
	r := bench(t)
	file := newShootFile(t, r)
	file.write("10.250.0.0/16") // something is known already
	s := start(t, r, "--shoot-file="+file.path, "--firewall=nft", "--resync=1s")
	s.AwaitReady()
	items := []string{"fd00:250::/48", "10.250.0.0/16", "fe80::/64", "fe80::1%eth0/64", "::1/128"}
	for i := range items {
		file.write(append(append([]string{}, items[i:]...), items[:i]...)...)
		d := s.Await("the bad items are named", func(d document) bool {
			return d.Reason == "InvalidNetwork" && strings.Contains(d.Message, "fe80::/64") && d.CIDRs() == "10.250.0.0/16 fd00:250::/48"
		})
		for _, item := range items[2:] {
			if !strings.Contains(d.Message, item) {
				t.Errorf("order %d: %s is not named: %s", i, item, d.Message)
			}
		}
		for _, family := range families {
			n := strings.Count(r.Pod.Run("ip -"+family+" route show table 9604"), "blackhole")
			if rules := r.Pod.Run(program(family, "nft") + "-save"); n != 1 || strings.Count(rules, `node network" -j DROP`) != 1 {
				t.Errorf("order %d: IPv%s: %d blackholes, rules\n%s", i, family, n, rules)
			}
		}
		file.write("10.250.0.0/16", "fd00:250::/48")
		s.Await("good again", func(d document) bool { return d.Ready })
	}
	expectFenced(t, r, fmt.Sprintf("after %d orders", len(items)))
}
