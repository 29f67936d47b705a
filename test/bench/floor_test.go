package bench

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/policy"
)

// plainRules is up to how many networks the floor uses one rule each; for more, an IP set is faster.
const plainRules = 16

// floor does with ip, ipset and iptables-restore what the fence consists of, each started once per family, and returns how
// long that took. It proves nothing, reads nothing back and could not repair.
func floor(b *testing.B, networks []netip.Prefix) time.Duration {
	b.Helper()
	var took time.Duration
	for _, f := range policy.Families {
		mine := policy.Only(networks, f)
		if len(mine) == 0 {
			continue
		}
		took += run(b, routesOf(mine), "ip", "-"+map[policy.Family]string{policy.IPv4: "4", policy.IPv6: "6"}[f], "-batch", "-")
		if len(mine) > plainRules {
			took += run(b, setOf(f, mine), "ipset", "restore")
		}
		took += run(b, rulesOf(f, mine), map[policy.Family]string{policy.IPv4: "iptables-nft-restore", policy.IPv6: "ip6tables-nft-restore"}[f], "--noflush")
	}
	return took
}

func routesOf(networks []netip.Prefix) string {
	var out strings.Builder
	for _, n := range networks {
		fmt.Fprintf(&out, "route add blackhole %s table 9604 proto 96\n", n)
	}
	out.WriteString("link set eth0 group 9604\n" +
		"rule add pref 96 lookup main suppress_prefixlength 0 suppress_ifgroup 9604\nrule add pref 97 lookup 9604\n")
	return out.String()
}

func setOf(f policy.Family, networks []netip.Prefix) string {
	var out strings.Builder
	fmt.Fprintf(&out, "create F%d hash:net family %s maxelem 1048576\n", f, map[policy.Family]string{policy.IPv4: "inet", policy.IPv6: "inet6"}[f])
	for _, n := range networks {
		fmt.Fprintf(&out, "add F%d %s\n", f, n)
	}
	return out.String()
}

func rulesOf(f policy.Family, networks []netip.Prefix) string {
	var filter, mangle strings.Builder
	match := func(what string) {
		fmt.Fprintf(&filter, "-A F %s -o eth0 -p tcp -j REJECT --reject-with tcp-reset\n-A F %s -o eth0 -j REJECT\n", what, what)
		fmt.Fprintf(&mangle, "-A F %s -o eth0 -j DROP\n", what)
	}
	if len(networks) > plainRules {
		match(fmt.Sprintf("-m set --match-set F%d dst", f))
	} else {
		for _, n := range networks {
			match("-d " + n.String())
		}
	}
	return "*filter\n:F -\n" + filter.String() + "-I OUTPUT -j F\n-I FORWARD -j F\nCOMMIT\n*mangle\n:F -\n" +
		mangle.String() + "-I POSTROUTING -j F\nCOMMIT\n"
}
