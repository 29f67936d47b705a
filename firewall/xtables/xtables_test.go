package xtables

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/test/netns"
)

// variant is one of the four combinations that everything must hold for.
type variant struct {
	backend string
	family  policy.Family
}

func variants() []variant {
	var out []variant
	for _, b := range []string{firewall.NFT, firewall.Legacy} {
		for _, f := range policy.Families {
			out = append(out, variant{b, f})
		}
	}
	return out
}

func (v variant) String() string { return v.backend + " " + v.family.String() }

func (v variant) network() string {
	return map[policy.Family]string{policy.IPv4: "10.1.0.0/16", policy.IPv6: "fd00:1::/32"}[v.family]
}

// foreign returns an address that has nothing to do with the fence.
func (v variant) foreign() string {
	return map[policy.Family]string{policy.IPv4: "192.0.2.0/24", policy.IPv6: "2001:db8::/32"}[v.family]
}

func (v variant) policy() policy.Policy { return policyOf(v.network()) }

func policyOf(networks ...string) policy.Policy {
	var prefixes []netip.Prefix
	for _, n := range networks {
		prefixes = append(prefixes, netip.MustParsePrefix(n))
	}
	return policy.New(prefixes, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun0"})
}

// run runs the variant's iptables.
func (v variant) run(t testing.TB, line string) {
	t.Helper()
	netns.Run(t, firewall.Program(v.family, v.backend, "")+" "+line)
}

var changing = regexp.MustCompile(`(?m)^# (Generated|Completed|Warning).*\n`)

// everything returns all that anybody can list in the namespace.
func everything(t testing.TB) string {
	t.Helper()
	out := "nft:\n" + netns.Run(t, "nft list ruleset")
	for _, v := range variants() {
		out += v.String() + ":\n" + netns.Run(t, firewall.Program(v.family, v.backend, "save"))
	}
	return changing.ReplaceAllString(out+netns.Run(t, "ipset list"), "")
}

func newKernel(choice string) *Kernel { return New(choice, nfnetlink.Conn{}, zap.NewNop()) }

func list(t testing.TB, k *Kernel) firewall.Snapshot {
	t.Helper()
	s, err := k.List()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func desired(p policy.Policy, s firewall.Snapshot) firewall.Ruleset {
	return firewall.Desired(p, firewall.Options{Lacks: s.Lacks, Translations: s.Translations(p)})
}

// converge applies what is missing once, and demands that nothing is missing then and nothing passes. It returns the changes.
func converge(t testing.TB, k *Kernel, p policy.Policy) []firewall.Change {
	t.Helper()
	s := list(t, k)
	changes := firewall.Diff(desired(p, s), s)
	if err := k.Apply(changes); err != nil {
		// The first write may be refused; the next list finds out what is lacking.
		s = list(t, k)
		if err := k.Apply(firewall.Diff(desired(p, s), s)); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, k, p)
	return changes
}

func settled(t testing.TB, k *Kernel, p policy.Policy) {
	t.Helper()
	s := list(t, k)
	if err := s.Err(p); err != nil {
		t.Error(err)
	}
	if again := firewall.Diff(desired(p, s), s); len(again) != 0 {
		t.Errorf("does not come to rest:\n%v", again)
	}
	for _, f := range policy.Families {
		if got := s.Passing(f, "eth0", ranges.Of(p.Networks...)); len(got) != 0 {
			t.Errorf("passes: %s", got[0].Cause)
		}
	}
}

func remove(t testing.TB, k *Kernel) []firewall.Change {
	t.Helper()
	s, err := k.Read()
	if err != nil {
		t.Fatal(err)
	}
	changes := firewall.Remove(s)
	if err := k.Apply(changes); err != nil {
		t.Fatal(err)
	}
	return changes
}

// furnish puts foreign rules, sets and tables into the namespace.
func (v variant) furnish(t testing.TB) {
	t.Helper()
	v.run(t, "-A OUTPUT -d "+v.foreign()+" -j DROP")
	v.run(t, "-A FORWARD -m comment --comment foreign -j ACCEPT")
	v.run(t, "-t mangle -A POSTROUTING -d "+v.foreign()+" -j MARK --set-mark 1")
	v.run(t, "-t nat -A POSTROUTING -s "+v.foreign()+" -j MASQUERADE")
	netns.Run(t, "nft add table inet foreign")
	netns.Run(t, "nft add chain inet foreign c { type filter hook output priority 5 ; policy accept ; }")
	netns.Run(t, "ipset create foreign hash:ip")
}

// load makes the legacy tables. They come with the first look at them and stay until the namespace goes, so no cleanup can leave
// a namespace as it was before they were used.
func (v variant) load(t testing.TB) {
	t.Helper()
	if v.backend == firewall.Legacy {
		for _, f := range policy.Families {
			for _, table := range []string{"filter", "mangle"} {
				variant{v.backend, f}.run(t, "-t "+table+" -S")
			}
		}
	}
}

// surroundings are what may be in a namespace before the fence. The last two concern nft only: legacy tables are never empty.
var surroundings = []struct {
	name    string
	nftOnly bool
	prepare func(testing.TB, variant)
}{
	{"nothing", false, func(testing.TB, variant) {}},
	{"foreign rules", false, func(t testing.TB, v variant) { v.furnish(t) }},
	{"empty tables", true, func(t testing.TB, _ variant) {
		netns.Run(t, "nft add table ip filter")
		netns.Run(t, "nft add table ip6 mangle")
	}},
	{"empty chain", true, func(t testing.TB, v variant) {
		v.run(t, "-A OUTPUT -j ACCEPT")
		v.run(t, "-D OUTPUT 1")
	}},
}

func TestRemovalLeavesNoTrace(t *testing.T) {
	for _, v := range variants() {
		for _, around := range surroundings {
			if around.nftOnly && v.backend != firewall.NFT {
				continue
			}
			t.Run(v.String()+" "+around.name, func(t *testing.T) {
				netns.Enter(t)
				v.load(t)
				around.prepare(t, v)
				before := everything(t)
				k := newKernel(v.backend)
				for range 2 {
					if changes := converge(t, k, v.policy()); len(changes) == 0 {
						t.Fatal("nothing was installed")
					}
					remove(t, k)
					if after := everything(t); after != before {
						t.Fatalf("before\n%s\nafter\n%s", before, after)
					}
				}
				if more := remove(t, newKernel(v.backend)); len(more) != 0 {
					t.Errorf("a second removal does %v", more)
				}
			})
		}
	}
}

// tampers are what other programs do to us, as lines for the variant's iptables or other programs.
var tampers = map[string][]string{
	"flush OUTPUT":      {"-F OUTPUT"},
	"delete the jump":   {"-D OUTPUT 1"},
	"move the jump":     {"-I OUTPUT 1 -p udp -j ACCEPT"},
	"double the jump":   {"-A OUTPUT -j ROUTEFENCE"},
	"delete one rule":   {"-D ROUTEFENCE 2"},
	"delete the chain":  {"-F OUTPUT", "-F FORWARD", "-F ROUTEFENCE", "-X ROUTEFENCE"},
	"flush mangle":      {"-t mangle -F"},
	"flush everything":  {"-F", "-X", "-t mangle -F", "-t mangle -X"},
	"rule in our chain": {"-I ROUTEFENCE 1 -m mark --mark 7 -j ACCEPT"},
	"rule between ours": {"-I ROUTEFENCE 2 -j ACCEPT"},
	"accept in mangle":  {"-t mangle -I POSTROUTING 1 -j ACCEPT"},
}

func TestTamperingIsRepaired(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.String(), func(t *testing.T) {
			netns.Enter(t)
			k := newKernel(v.backend)
			converge(t, k, v.policy())
			for name, lines := range tampers {
				for _, line := range lines {
					v.run(t, line)
				}
				foreign := foreignLines(t, v)
				if changes := converge(t, k, v.policy()); len(changes) == 0 {
					t.Errorf("%s goes unseen", name)
				}
				if after := foreignLines(t, v); !slices.Equal(after, foreign) {
					t.Errorf("%s: foreign rules were\n%s\nand are\n%s", name, strings.Join(foreign, "\n"), strings.Join(after, "\n"))
				}
			}
			if v.backend == firewall.NFT {
				netns.Run(t, "nft flush ruleset")
				converge(t, k, v.policy())
			}
		})
	}
}

func foreignLines(t testing.TB, v variant) []string {
	t.Helper()
	var out []string
	for _, line := range strings.Split(netns.Run(t, firewall.Program(v.family, v.backend, "save")), "\n") {
		if strings.HasPrefix(line, "-A") && !strings.Contains(line, "routefence") && !strings.HasSuffix(line, "-j ROUTEFENCE") {
			out = append(out, line)
		}
	}
	return out
}

func TestForeignRuleInOurChainIsKeptAndReported(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.String(), func(t *testing.T) {
			netns.Enter(t)
			k := newKernel(v.backend)
			converge(t, k, v.policy())
			v.run(t, "-A ROUTEFENCE -m mark --mark 7 -j ACCEPT")
			for range 2 {
				changes := remove(t, k)
				if !slices.ContainsFunc(changes, func(c firewall.Change) bool { _, kept := c.(firewall.Kept); return kept }) {
					t.Errorf("not reported: %v", changes)
				}
			}
			left := netns.Run(t, firewall.Program(v.family, v.backend, "save")+" -t filter")
			if strings.Count(left, "-A ROUTEFENCE") != 1 || !strings.Contains(left, "-j ROUTEFENCE") {
				t.Errorf("left:\n%s", left)
			}
		})
	}
}

func TestManyNetworksUseASet(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.String(), func(t *testing.T) {
			netns.Enter(t)
			v.load(t)
			before := everything(t)
			k := newKernel(v.backend)
			converge(t, k, v.policy())
			many := manyNetworks(v.family, map[policy.Family]int{policy.IPv4: 10000, policy.IPv6: 1000}[v.family])
			start := time.Now()
			converge(t, k, many)
			if passing := list(t, k).Passing(v.family, "eth0", ranges.Of(many.Networks...)); len(passing) != 0 {
				t.Errorf("the set lets through: %v", passing)
			}
			if took := time.Since(start); took > 5*time.Second {
				t.Errorf("%d networks took %s", len(many.Networks), took)
			}
			start = time.Now()
			settled(t, k, many)
			t.Logf("reading %d networks back took %s", len(many.Networks), time.Since(start))
			if saved := netns.Run(t, firewall.Program(v.family, v.backend, "save")); strings.Count(saved, "--match-set") != 3 {
				t.Errorf("rules:\n%s", saved)
			}
			name := firewall.SetNames[v.family]
			netns.Run(t, "ipset flush "+name)
			if s := list(t, k); len(s.Passing(v.family, "eth0", ranges.Of(many.Networks...))) == 0 {
				t.Error("an emptied set goes unseen")
			}
			converge(t, k, many)
			converge(t, k, v.policy())
			if listed := netns.Run(t, "ipset list"); listed != "" {
				t.Errorf("sets are left: %s", listed)
			}
			remove(t, k)
			if after := everything(t); after != before {
				t.Errorf("before\n%s\nafter\n%s", before, after)
			}
		})
	}
}

func manyNetworks(f policy.Family, n int) policy.Policy {
	var out []string
	for i := range n {
		if f == policy.IPv4 {
			out = append(out, fmt.Sprintf("10.%d.%d.0/24", i>>7, i<<1&255))
		} else {
			out = append(out, fmt.Sprintf("fd00:1:%x::/48", i<<1))
		}
	}
	return policyOf(out...)
}

func TestTenThousandPlainRules(t *testing.T) {
	netns.Enter(t)
	k := newKernel(firewall.NFT)
	s := list(t, k)
	s.Lacks[policy.IPv4] = firewall.Lacks{Sets: true}
	p := manyNetworks(policy.IPv4, 10000)
	start := time.Now()
	if err := k.Apply(firewall.Diff(desired(p, s), s)); err != nil {
		t.Fatal(err)
	}
	written := time.Since(start)
	s = list(t, k)
	s.Lacks[policy.IPv4] = firewall.Lacks{Sets: true}
	if again := firewall.Diff(desired(p, s), s); len(again) != 0 {
		t.Error("does not come to rest")
	}
	if got := s.Passing(policy.IPv4, "eth0", ranges.Of(p.Networks...)); len(got) != 0 {
		t.Errorf("passes: %s", got[0].Cause)
	}
	t.Logf("writing took %s, reading and judging %s", written, time.Since(start)-written)
}
