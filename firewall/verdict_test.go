package firewall

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// outcomes follows one packet through a chain, both ways wherever a rule may match or not, and returns whether it can be
// accepted and whether it can come out at the end. It shares no code with walk.
func outcomes(chains map[string]Chain, rules []Rule, out string, a netip.Addr) (accepted, through bool) {
	if len(rules) == 0 {
		return false, true
	}
	r := rules[0]
	hitsOut := r.Out.Name == "" || strings.TrimSuffix(r.Out.Name, "+") == out ||
		strings.HasSuffix(r.Out.Name, "+") && strings.HasPrefix(out, strings.TrimSuffix(r.Out.Name, "+"))
	hitsDst := !r.Dst.Prefix.IsValid() || r.Dst.Prefix.Contains(a) != r.Dst.Not
	if (r.Out.Name != "" && hitsOut == r.Out.Not) || !hitsDst {
		return outcomes(chains, rules[1:], out, a)
	}
	switch r.Target {
	case "ACCEPT":
		accepted = true
	case "RETURN":
		through = true
	case "DROP":
	default:
		accepted, through = outcomes(chains, chains[r.Target].Rules, out, a)
		if through && !r.Goto {
			more := false
			more, through = outcomes(chains, rules[1:], out, a)
			accepted = accepted || more
		}
	}
	if r.Proto != "" || r.CtState != "" {
		a2, t2 := outcomes(chains, rules[1:], out, a)
		accepted, through = accepted || a2, through || t2
	}
	return accepted, through
}

func drawRule(t *rapid.T, targets []string) string {
	text := ""
	if rapid.Bool().Draw(t, "dst") {
		if rapid.IntRange(0, 3).Draw(t, "not") == 0 {
			text += "! "
		}
		text += fmt.Sprintf("-d 10.0.0.%d/%d ", rapid.IntRange(0, 15).Draw(t, "host"), rapid.IntRange(28, 32).Draw(t, "bits"))
	}
	text += rapid.SampledFrom([]string{"", "", "-o eth0 ", "-o eth+ ", "! -o eth0 ", "-o tun0 "}).Draw(t, "out")
	text += rapid.SampledFrom([]string{"", "", "-p tcp ", "-m conntrack --ctstate NEW "}).Draw(t, "when")
	return text + rapid.SampledFrom(targets).Draw(t, "target")
}

func drawTable(t *rapid.T, name, base string) string {
	text := fmt.Sprintf("*%s\n:%s %s [0:0]\n:A - [0:0]\n:B - [0:0]\n", name, base, rapid.SampledFrom([]string{"ACCEPT", "DROP"}).Draw(t, "policy"))
	plain := []string{"-j ACCEPT", "-j DROP", "-j DROP", "-j RETURN"}
	for chain, targets := range map[string][]string{base: append(plain, "-j A", "-g A", "-j B"), "A": append(plain, "-j B", "-g B"), "B": plain} {
		for range rapid.IntRange(0, 5).Draw(t, "rules of "+chain) {
			text += "-A " + chain + " " + drawRule(t, targets) + "\n"
		}
	}
	return text + "COMMIT\n"
}

func TestPassingAgreesWithSinglePackets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawTable(t, "filter", "OUTPUT") + drawTable(t, "mangle", "POSTROUTING")
		tables, err := ParseSave(policy.IPv4, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		filter, mangle := tables[Table{policy.IPv4, "filter"}], tables[Table{policy.IPv4, "mangle"}]
		filter["FORWARD"] = Chain{Policy: "DROP"}
		s := Snapshot{Backend: NFT, Tables: tables}
		out := rapid.SampledFrom([]string{"eth0", "eth1", "tun0"}).Draw(t, "interface")
		got := union(s.Passing(policy.IPv4, out, ranges.Of(netip.MustParsePrefix("10.0.0.0/27"))))
		for i := range 32 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			passes := func(chains map[string]Chain, base string) bool {
				accepted, through := outcomes(chains, chains[base].Rules, out, a)
				return accepted || through && chains[base].Policy == "ACCEPT"
			}
			if want := passes(filter, "OUTPUT") && passes(mangle, "POSTROUTING"); got.Contains(a) != want {
				t.Fatalf("%s by %s: passes %t, a packet would %t\n%s", a, out, got.Contains(a), want, text)
			}
		}
	})
}

func TestPassingNamesTheCause(t *testing.T) {
	const fenced = "*filter\n:OUTPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:ROUTEFENCE - [0:0]\n%s\n-A OUTPUT -j ROUTEFENCE\n" +
		"-A ROUTEFENCE -d 10.0.0.0/8 -o eth0 -p tcp -j REJECT\n-A ROUTEFENCE -d 10.0.0.0/8 -o eth0 -j REJECT\nCOMMIT\n"
	const bare = "*filter\n:OUTPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n"
	for _, c := range []struct{ name, saved, want string }{
		{"fenced", fmt.Sprintf(fenced, ""), ""},
		{"established", fmt.Sprintf(fenced, "-A OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT"),
			"-A OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT before -j ROUTEFENCE; no chain ROUTEFENCE in mangle"},
		{"nothing", bare, "no chain ROUTEFENCE in filter; no chain ROUTEFENCE in mangle"},
		{"no jump", strings.ReplaceAll(fmt.Sprintf(fenced, ""), "-A OUTPUT -j ROUTEFENCE\n", ""),
			"no jump to ROUTEFENCE in filter OUTPUT; no chain ROUTEFENCE in mangle"},
		{"mangle is enough", bare + "*mangle\n:POSTROUTING ACCEPT [0:0]\n:ROUTEFENCE - [0:0]\n-A POSTROUTING -j ROUTEFENCE\n" +
			"-A ROUTEFENCE -d 10.0.0.0/8 -o eth0 -j DROP\nCOMMIT\n", ""},
		{"marks", fmt.Sprintf(fenced, "") + "*mangle\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j MARK --set-xmark 0x1/0xffffffff\nCOMMIT\n",
			"routed again in mangle by -A OUTPUT -j MARK --set-xmark 0x1/0xffffffff; no chain ROUTEFENCE in mangle"},
		{"translated", fmt.Sprintf(fenced, "") + "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 9.9.9.9/32 -j DNAT --to-destination 10.1.1.1\nCOMMIT\n",
			"translated in nat by -A OUTPUT -d 9.9.9.9/32 -j DNAT --to-destination 10.1.1.1; no chain ROUTEFENCE in mangle"},
	} {
		s := Snapshot{Backend: NFT, Tables: save(t, policy.IPv4, c.saved)}
		var causes []string
		for _, p := range s.Passing(policy.IPv4, "eth0", ranges.Of(netip.MustParsePrefix("10.1.0.0/16"))) {
			causes = append(causes, p.Cause)
		}
		if got := strings.Join(causes, " | "); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestPassingOfWhatIsNotKnown(t *testing.T) {
	all := ranges.Of(netip.MustParsePrefix("10.0.0.0/8"))
	unread := Snapshot{Unread: map[policy.Family]error{policy.IPv4: fmt.Errorf("iptables-nft-save not found")}}
	if len(unread.Passing(policy.IPv4, "eth0", all)) == 0 {
		t.Error("rules that could not be read fence nothing")
	}
	absent := Snapshot{Absent: map[policy.Family]bool{policy.IPv4: true}}
	if got := absent.Passing(policy.IPv4, "eth0", all); len(got) != 0 {
		t.Errorf("no packet of an absent family can leave: %v", got)
	}
}

func TestTenThousandPlainRulesAreJudgedFast(t *testing.T) {
	p := policy.New(manyNetworks(10000), nil, policy.Patterns{"eth0"}, nil)
	want := Desired(p, Options{Lacks: map[policy.Family]Lacks{policy.IPv4: {Sets: true}}})
	s := apply(t, Snapshot{Backend: NFT}, Diff(want, Snapshot{Backend: NFT}))
	start := time.Now()
	if got := s.Passing(policy.IPv4, "eth0", ranges.Of(p.Networks...)); len(got) != 0 {
		t.Errorf("passes: %v", got[0].Cause)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("judging took %s", took)
	}
}

func manyNetworks(n int) []netip.Prefix {
	var out []netip.Prefix
	for i := range n {
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 7), byte(i << 1), 0}), 24))
	}
	return out
}

func TestTranslations(t *testing.T) {
	saved := "*nat\n:OUTPUT ACCEPT [0:0]\n:VPN - [0:0]\n-A OUTPUT -j VPN\n" +
		"-A VPN -d 10.1.0.0/17 -m owner --gid-owner 31415 -j NETMAP --to 242.1.0.0/17\n" +
		"-A VPN -d 10.2.0.0/16 -j NETMAP --to 243.0.0.0/8\n" +
		"-A VPN -d 10.3.0.0/16 -j DNAT --to-destination 1.2.3.4-1.2.3.5\n" +
		"-A VPN -d 10.3.1.7/32 -p tcp -m tcp --dport 10250 -j DNAT --to-destination 1.2.3.6\n" +
		// Redirections that catch nodes among others are none of theirs.
		"-A VPN -p tcp -m tcp --dport 80 -j DNAT --to-destination 100.64.0.1:3128\n" +
		"-A VPN -d 10.0.0.0/8 -p tcp -m tcp --dport 80 -j DNAT --to-destination 100.64.0.1:3128\n" +
		"-A VPN ! -d 192.0.2.0/24 -j DNAT --to-destination 100.64.0.1\n" +
		"-A VPN -d 100.64.0.0/10 -j NETMAP --to 244.0.0.0/10\nCOMMIT\n"
	s := Snapshot{Backend: NFT, Other: save(t, policy.IPv4, saved)}
	var got []string
	for _, tr := range s.Translations(testPolicy("10.1.0.0/16", "10.2.8.0/24", "10.3.1.0/24")) {
		got = append(got, tr.From.String()+" "+tr.To.String())
	}
	want := "10.1.0.0/17 242.1.0.0/17,10.2.8.0/24 243.2.8.0/24,10.3.1.0/24 1.2.3.4/31,10.3.1.7/32 1.2.3.6/32"
	if strings.Join(got, ",") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ","), want)
	}
}
