package firewall

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
)

func specs(rs Ruleset, table string) string {
	var lines []string
	for _, fence := range rs.Fences {
		if fence.Table.Name == table {
			for _, r := range fence.Rules {
				lines = append(lines, strings.ReplaceAll(r.Spec(), "-m comment --comment ", ""))
			}
		}
	}
	return strings.Join(lines, "\n")
}

// basesOf says from where each chain is jumped to.
var basesOf = map[string]string{
	"filter ROUTEFENCE": "OUTPUT FORWARD", "mangle ROUTEFENCE": "POSTROUTING", "mangle ROUTEFENCE-REPLY": "PREROUTING OUTPUT",
}

func TestDesired(t *testing.T) {
	p := policy.New(prefixes("10.1.0.0/16"), prefixes("10.1.2.0/24"), policy.Patterns{"eth0"}, policy.Patterns{"tun0"})
	expecting := testPolicy("10.1.0.0/16", "fd00::/8")
	expecting.Translated = prefixes("242.0.0.0/8")
	for _, c := range []struct {
		name           string
		policy         policy.Policy
		options        Options
		filter, mangle string
	}{
		{"plain", p, Options{},
			`-d 10.1.2.0/24 "routefence: allowed" -j RETURN
-d 10.1.0.0/16 -o eth0 -p tcp "routefence: node network" -j REJECT --reject-with tcp-reset
-d 10.1.0.0/16 -o eth0 "routefence: node network" -j REJECT --reject-with icmp-admin-prohibited`,
			`-d 10.1.2.0/24 "routefence: allowed" -j RETURN
-d 10.1.0.0/16 -o eth0 "routefence: node network" -j DROP`},
		{"translated", testPolicy("10.1.0.0/16"), Options{
			Translations: []policy.Translation{{From: netip.MustParsePrefix("10.1.0.0/16"), To: netip.MustParsePrefix("242.0.0.0/16")}},
			Local:        prefixes("10.1.0.9/32", "192.0.2.1/32")},
			`-m conntrack --ctstate DNAT "routefence: translated" -j RETURN
-d 10.1.0.9/32 -o lo "routefence: own address" -j RETURN
-d 10.1.0.0/16 -o lo -p tcp "routefence: translated" -j REJECT --reject-with tcp-reset
-d 10.1.0.0/16 -o lo "routefence: translated" -j REJECT --reject-with icmp-admin-prohibited
-d 10.1.0.0/16 -o eth0 -p tcp "routefence: node network" -j REJECT --reject-with tcp-reset
-d 10.1.0.0/16 -o eth0 "routefence: node network" -j REJECT --reject-with icmp-admin-prohibited`,
			`-d 10.1.0.0/16 -o eth0 "routefence: node network" -j DROP
-d 242.0.0.0/16 -o eth0 "routefence: translated" -j DROP`},
		{"expecting, translated inside and outside of that", expecting, Options{Lacks: map[policy.Family]Lacks{policy.IPv4: {Conntrack: true, Reject: true}, policy.IPv6: {Reject: true}},
			Translations: []policy.Translation{
				{From: netip.MustParsePrefix("10.1.0.0/17"), To: netip.MustParsePrefix("242.0.0.0/17")},
				{From: netip.MustParsePrefix("10.1.128.0/17"), To: netip.MustParsePrefix("240.0.0.0/17")}}},
			`-d 10.1.0.0/16 -o lo "routefence: translated" -j DROP
-d 10.1.0.0/16 -o eth0 "routefence: node network" -j DROP
-d fd00::/8 -o eth0 "routefence: node network" -j DROP`,
			`-d 10.1.0.0/16 -o eth0 "routefence: node network" -j DROP
-d 240.0.0.0/17 -o eth0 "routefence: translated" -j DROP
-d 242.0.0.0/8 -o eth0 "routefence: translated" -j DROP
-d fd00::/8 -o eth0 "routefence: node network" -j DROP`},
		{"lacking", testPolicy("fd00::/8"), Options{Lacks: map[policy.Family]Lacks{policy.IPv6: {Reject: true, Comment: true}}},
			`-d fd00::/8 -o eth0 -j DROP`, `-d fd00::/8 -o eth0 -j DROP`},
		{"answering", testPolicy("10.1.0.0/16", "10.3.0.0/16").Answer(func(n netip.Prefix) bool { return n.Addr().As4()[1] == 1 }),
			Options{Local: prefixes("10.1.0.9/32")},
			`-d 10.1.0.0/16 -m connmark --mark 0x9604/0xffff -m conntrack --ctdir REPLY "routefence: reply" -j RETURN
-d 10.1.0.9/32 -o lo "routefence: own address" -j RETURN
-d 10.1.0.0/16 -o lo -p tcp "routefence: reply" -j REJECT --reject-with tcp-reset
-d 10.1.0.0/16 -o lo "routefence: reply" -j REJECT --reject-with icmp-admin-prohibited
-d 10.1.0.0/16 -o eth0 -p tcp "routefence: node network" -j REJECT --reject-with tcp-reset
-d 10.1.0.0/16 -o eth0 "routefence: node network" -j REJECT --reject-with icmp-admin-prohibited
-d 10.3.0.0/16 -o eth0 -p tcp "routefence: node network" -j REJECT --reject-with tcp-reset
-d 10.3.0.0/16 -o eth0 "routefence: node network" -j REJECT --reject-with icmp-admin-prohibited`,
			`-d 10.1.0.0/16 -m connmark --mark 0x9604/0xffff -m conntrack --ctdir REPLY "routefence: reply" -j RETURN
-d 10.1.0.0/16 -o eth0 "routefence: node network" -j DROP
-d 10.3.0.0/16 -o eth0 "routefence: node network" -j DROP
-d 10.1.0.0/16 -m connmark --mark 0x9604/0xffff -m conntrack --ctdir REPLY "routefence: reply" -j CONNMARK --restore-mark --nfmask 0xffff --ctmask 0xffff
-p tcp -m tcp ! --tcp-flags ACK,FIN,RST,SYN SYN "routefence: reply" -j RETURN
-s 10.1.0.0/16 -i eth0 -m conntrack --ctstate NEW "routefence: reply" -j CONNMARK --set-xmark 0x9604/0xffff`},
		{"nothing", testPolicy(), Options{}, "", ""},
		{"half the world", testPolicy("0.0.0.0/1", "128.0.0.0/1"), Options{},
			`-o eth0 -p tcp "routefence: node network" -j REJECT --reject-with tcp-reset
-o eth0 "routefence: node network" -j REJECT --reject-with icmp-admin-prohibited`, `-o eth0 "routefence: node network" -j DROP`},
	} {
		got := Desired(c.policy, c.options)
		for _, f := range got.Fences {
			if want := basesOf[f.Table.Name+" "+f.Chain]; strings.Join(f.Bases, " ") != want {
				t.Errorf("%s: %s %s is jumped to from %v, want %s", c.name, f.Table, f.Chain, f.Bases, want)
			}
		}
		if filter := specs(got, "filter"); filter != c.filter {
			t.Errorf("%s: filter is\n%s\nwant\n%s", c.name, filter, c.filter)
		}
		if mangle := specs(got, "mangle"); mangle != c.mangle {
			t.Errorf("%s: mangle is\n%s\nwant\n%s", c.name, mangle, c.mangle)
		}
	}
}

func TestInterfaceNames(t *testing.T) {
	links := []string{"lo", "eth0", "eth1", "tun0", "bond0-ip6tnl0", "e*", "m[0"}
	for _, c := range []struct{ fenced, tunnels, want, exempt string }{
		{"eth0", "tun0,bond0*", "eth0", ""},
		{"eth*", "tun0", "eth+", ""},
		{"*", "tun0,bond0*", "", "lo,bond0+,tun0"},
		{"eth[01]", "tun0", "eth0,eth1", ""},
		{"?*", "tun?", "bond0-ip6tnl0,e*,eth0,eth1,m[0", ""},
		{"eth0", "eth*", "eth0", "eth+"},
		{policy.Exact("e*"), "tun0", "e*", ""},
		{policy.Exact("m[0"), "tun0", "m[0", ""},
		{"verylongname0123,verylongname012*,verylongname01*", "", "verylongname01+,verylongname012", ""},
	} {
		p := policy.New(nil, nil, strings.Split(c.fenced, ","), slices.DeleteFunc(strings.Split(c.tunnels, ","), func(s string) bool { return s == "" }))
		fenced, exempt := interfaceNames(p, links)
		if got := strings.Join(fenced, ","); got != c.want || len(fenced) == 0 {
			t.Errorf("%s is %q, want %q", c.fenced, got, c.want)
		}
		if got := strings.Join(exempt, ","); got != c.exempt {
			t.Errorf("%s before %s: exempt %q, want %q", c.tunnels, c.fenced, got, c.exempt)
		}
	}
}
