package firewall

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go4.org/netipx"

	"github.com/routefence/routefence/policy"
)

var compareRules = cmp.Options{cmpopts.EquateComparable(netip.Prefix{}, netip.Addr{}, netipx.IPRange{}), cmpopts.IgnoreFields(Rule{}, "Text")}

func TestParseSave(t *testing.T) {
	for line, want := range map[string]Rule{
		`[7:99] -A C -d 10.0.0.0/8 -o eth0 -p tcp -m comment --comment "routefence: a \"b\"" -j REJECT --reject-with tcp-reset`: {
			Dst: Network{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, Out: Interface{Name: "eth0"}, Proto: "tcp",
			Comment: `routefence: a "b"`, Target: "REJECT", RejectWith: "tcp-reset", Packets: 7},
		`-A C -s 10.0.0.0/255.0.0.0 ! -d 10.1.2.3/32 ! -o lo -i eth+ -j DROP`: {
			Src: Network{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, Dst: Network{netip.MustParsePrefix("10.1.2.3/32"), true},
			Out: Interface{"lo", true}, In: Interface{Name: "eth+"}, Target: "DROP"},
		`-A C -m conntrack --ctstate RELATED,ESTABLISHED --ctdir REPLY -g D`: {
			CtState: "ESTABLISHED,RELATED", CtDir: "REPLY", Target: "D", Goto: true},
		`-A C -m set --match-set ROUTEFENCE4 dst -j DROP`:         {Set: "ROUTEFENCE4", Target: "DROP"},
		`-A C -m set --match-set X src -j DROP`:                   {Unknown: "--match-set X src", Target: "DROP"},
		`-A C -m set --match-set ROUTEFENCE4 src -j DROP`:         {SrcSet: "ROUTEFENCE4", Target: "DROP"},
		`-A C -m set --match-set X src,dst -j DROP`:               {Unknown: "--match-set X src,dst", Target: "DROP"},
		`-A C -m set ! --match-set X dst -j DROP`:                 {Unknown: "! --match-set X dst", Target: "DROP"},
		`-A C ! -p tcp -j DROP`:                                   {Unknown: "! -p tcp", Target: "DROP"},
		`-A C -m owner --gid-owner 31415 -j ACCEPT`:               {Unknown: "-m owner --gid-owner 31415", Target: "ACCEPT"},
		`-A C -m socket -j ACCEPT`:                                {Unknown: "-m socket", Target: "ACCEPT"},
		`-A C -p tcp -m tcp --dport 80 -j ACCEPT`:                 {Proto: "tcp", Unknown: "--dport 80", Target: "ACCEPT"},
		`-A C -d 0.0.0.0/0 -j ACCEPT`:                             {Target: "ACCEPT"},
		`-A C -d 10.0.0.1/255.0.255.0 -j ACCEPT`:                  {Unknown: "-d 10.0.0.1/255.0.255.0", Target: "ACCEPT"},
		`-A C -j NETMAP --to 242.0.0.0/8`:                         {Target: "NETMAP", To: span("242.0.0.0-242.255.255.255")},
		`-A C -p tcp -j DNAT --to-destination 1.2.3.4-1.2.3.9:80`: {Proto: "tcp", Target: "DNAT", To: span("1.2.3.4-1.2.3.9")},
		`-A C -d 10.0.0.0/8 -m connmark --mark 0x9604/0xffff -j CONNMARK --restore-mark --nfmask 0xffff --ctmask 0xff`: {
			Dst: Network{Prefix: netip.MustParsePrefix("10.0.0.0/8")}, CtMark: Mark{0x9604, 0xffff}, Target: "CONNMARK", Restore: Masks{0xff, 0xffff}},
		`-A C -j CONNMARK --set-xmark 0x1`:                             {Target: "CONNMARK", SetMark: Mark{1, 0xffffffff}},
		`-A C -j CONNMARK --save-mark`:                                 {Target: "CONNMARK", Unknown: "--save-mark"},
		`-A C -j CONNMARK --restore-mark`:                              {Target: "CONNMARK", Unknown: "--restore-mark"},
		`-A C -m connmark ! --mark 0x1 -j DROP`:                        {Unknown: "! --mark 0x1", Target: "DROP"},
		`-A C -m mark --mark 0x1 -j DROP`:                              {Unknown: "-m mark --mark 0x1", Target: "DROP"},
		`-A C -j MARK --set-xmark 0x1/0x1`:                             {Target: "MARK", Unknown: "--set-xmark 0x1/0x1"},
		`-A C -p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j DROP`: {Proto: "tcp", Flags: TCPFlags{"ACK,FIN,RST,SYN", "SYN", true}, Target: "DROP"},
		`-A C -p ipv6-icmp -m icmp6 --icmpv6-type 135 -j DROP`:         {Proto: "ipv6-icmp", ICMP: "135", Target: "DROP"},
		`-A C`: {},
	} {
		tables := save(t, policy.IPv4, "*filter\n:C - [0:0]\n"+line+"\nCOMMIT\n")
		if diff := cmp.Diff([]Rule{want}, tables[Table{policy.IPv4, "filter"}]["C"].Rules, compareRules); diff != "" {
			t.Errorf("%s: -want +got\n%s", line, diff)
		}
	}
}

func span(text string) netipx.IPRange { return netipx.MustParseIPRange(text) }

func TestParseSaveRefusesHalfATable(t *testing.T) {
	if _, err := ParseSave(policy.IPv4, []byte("*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j DROP\n")); err == nil {
		t.Error("output without COMMIT was taken for the whole")
	}
}

func FuzzParseSave(f *testing.F) {
	f.Add("*filter\n:OUTPUT ACCEPT [0:0]\n[1:2] -A OUTPUT ! -d 10.0.0.0/8 -m comment --comment \"a b\" -j DROP\nCOMMIT\n")
	f.Add("*nat\n-A OUTPUT -j DNAT --to-destination [fd00::1]:80\nCOMMIT\n")
	f.Fuzz(func(t *testing.T, saved string) {
		for _, family := range policy.Families {
			tables, err := ParseSave(family, []byte(saved))
			if err != nil {
				continue
			}
			s := Snapshot{Backend: NFT, Tables: tables}
			Diff(Desired(testPolicy("10.0.0.0/8", "fd00::/8"), Options{}), s)
			Remove(s)
			s.Translations(testPolicy("10.0.0.0/8", "fd00::/8"))
		}
	})
}

// TestSpecParsesBack: what we write must be what we understand, or Diff would never come to rest.
func TestSpecParsesBack(t *testing.T) {
	for _, f := range policy.Families {
		network := map[policy.Family]string{policy.IPv4: "10.0.0.0/8", policy.IPv6: "fd00::/8"}[f]
		for _, lacks := range []Lacks{{}, {Reject: true}, {Comment: true}, {Conntrack: true}} {
			options := Options{
				Lacks:        map[policy.Family]Lacks{f: lacks},
				Translations: []policy.Translation{{From: netip.MustParsePrefix(network), To: netip.MustParsePrefix("242.0.0.0/8")}},
				Local:        prefixes("10.1.1.1/32", "fd00::1/128"),
			}
			for _, fence := range Desired(testPolicy(network), options).Fences {
				for _, r := range fence.Rules {
					if _, got, _ := parseLine(f, "-A C "+r.Spec()); !got.Same(r) {
						t.Errorf("%s:\n%s", r.Spec(), cmp.Diff(r, got, compareRules))
					}
				}
			}
		}
	}
}
