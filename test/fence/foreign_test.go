package fence

import (
	"fmt"
	"strings"

	"github.com/routefence/routefence/test/rig"
)

// foreignBlackhole6 goes with lo, as every IPv6 blackhole does.
const foreignBlackhole6 = "-6 route add blackhole fd00:99:1::/64 table 9604 proto static"

// foreignIP are rules and routes of somebody else, some of them in the very places that routefence uses.
var foreignIP = []string{
	"rule add pref 96 from 10.9.9.9 lookup 100",
	"rule add pref 97 fwmark 5 lookup 101",
	"-6 rule add pref 96 from fd00:9::9 lookup 100",
	"route add blackhole 10.99.1.0/24 table 9604 proto static",
	foreignBlackhole6,
	"route add 10.77.0.0/16 via 169.254.1.1 dev eth0 proto 12",
	"-6 route add fd00:77::/48 via fe80::1 dev eth0 proto 12",
	"route add 10.78.0.0/16 via 169.254.1.1 dev eth0 table 100",
}

// foreignRules are rules and chains of somebody else, by table, in iptables-restore's words.
var foreignRules = map[string]string{
	"filter": `*filter
:FOREIGN - [0:0]
-A OUTPUT -p tcp -m tcp --dport 9 -m comment --comment "somebody else" -j ACCEPT
-A OUTPUT -p udp -m udp --dport 9 -j FOREIGN
-A FOREIGN -j RETURN
COMMIT
`,
	"mangle": `*mangle
:FOREIGN - [0:0]
-A POSTROUTING -p udp -m udp --dport 9 -j FOREIGN
-A FOREIGN -j MARK --set-xmark 0x7/0xff
COMMIT
`,
}

// foreignTable is a table that iptables does not know.
const foreignTable = `table inet foreign {
	chain out {
		type filter hook output priority 10; policy accept;
		udp dport 9 counter
	}
}
`

// plantForeign puts foreign objects of every kind into the pod's namespace.
func plantForeign(r *rig.Rig) {
	ip(r, foreignIP)
	for _, backend := range backends {
		plantRules(r, backend)
	}
	r.Pod.Feed(foreignTable, "nft -f -")
}

// plantRules puts the foreign rules of both families into both tables of a backend.
func plantRules(r *rig.Rig, backend string) {
	for _, family := range families {
		for _, table := range []string{"filter", "mangle"} {
			plantTable(r, backend, family, table)
		}
	}
}

func plantTable(r *rig.Rig, backend, family, table string) {
	r.Pod.Feed(foreignRules[table], program(family, backend)+"-restore --noflush -w 5")
}

// loadLegacy makes the tables of the legacy backend. They come with their first use and stay as long as the namespace, so
// "as it was before" can only mean: with them.
func loadLegacy(r *rig.Rig) {
	for _, family := range families {
		for _, table := range []string{"filter", "mangle"} {
			r.Pod.Run(fmt.Sprintf("%s -w 5 -t %s -S", program(family, "legacy"), table))
		}
	}
}

var families = []string{"4", "6"}

// program is the iptables of a family and a backend.
func program(family, backend string) string {
	return strings.Replace("ip"+family+"tables-", "4", "", 1) + backend
}
