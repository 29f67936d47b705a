package fence

import (
	"slices"
	"strings"

	"github.com/routefence/routefence/test/rig"
)

// act is one way in which somebody else takes a part of the fence away.
type act struct {
	name, script string
	// opens says that sockets bound to eth0 get out until the firewall is repaired.
	opens bool
	// family is the one it is about, "" for both; clears is where foreign rules or routes go, too.
	family, clears string
}

// actsFor lists the acts, in both families, for the backend in use. The scripts speak of $ipt and $v, the program and
// the family.
func actsFor(backend string) []act {
	var out []act
	for _, family := range families {
		for _, a := range familyActs {
			a.name, a.family = a.name+", IPv"+family, family
			a.script = "ipt='" + program(family, backend) + " -w 5'; v=-" + family + "\n" + a.script
			out = append(out, a)
		}
	}
	for _, a := range commonActs {
		if a.name != "flush the ruleset" || backend == "nft" {
			out = append(out, a)
		}
	}
	return out
}

var familyActs = []act{
	{name: "flush filter", script: "$ipt -F", clears: "filter"},
	{name: "flush filter OUTPUT", script: "$ipt -F OUTPUT", clears: "filter"},
	{name: "flush our chain in mangle", script: "$ipt -t mangle -F ROUTEFENCE"},
	{name: "delete the jump", script: strings.ReplaceAll(unjump, "CHAIN", "OUTPUT")},
	{name: "delete the jump in FORWARD", script: strings.ReplaceAll(unjump, "CHAIN", "FORWARD")},
	{name: "move the jump to the second place", script: strings.ReplaceAll(unjump, "CHAIN", "OUTPUT") +
		"; $ipt -I OUTPUT 2 -m comment --comment routefence -j ROUTEFENCE"},
	{name: "delete one rule", script: "$ipt -D ROUTEFENCE 1"},
	{name: "delete our rules", script: "ip $v rule del pref 96 proto 96; ip $v rule del pref 97 proto 96"},
	{name: "delete one ip rule", script: "ip $v rule del pref 97 proto 96"},
	{name: "flush our routes in table 9604", script: "ip $v route flush table 9604 proto 96"},
	{name: "delete one blackhole", script: "ip $v route del blackhole $(ip $v route show table 9604 proto 96 | cut -d' ' -f2 | head -1) table 9604"},
}

var commonActs = []act{
	{name: "flush the ruleset", script: "nft flush ruleset", opens: true, clears: "all"},
	{name: "reset the link group", script: "ip link set eth0 group default"},
	{name: "lo down and up", script: "ip link set lo down; ip link set lo up", clears: "lo"},
}

// firewallActs are those that touch the firewall.
func firewallActs(acts []act) []act {
	return slices.DeleteFunc(slices.Clone(acts), func(a act) bool { return !strings.Contains(a.script, "$ipt ") })
}

// unjump deletes our jump from CHAIN by its number; "-S" begins with a line for the policy.
const unjump = `$ipt -D CHAIN $(($($ipt -S CHAIN | grep -n -- '-j ROUTEFENCE' | cut -d: -f1) - 1))`

// tamper carries an act out in the pod's namespace.
func tamper(r *rig.Rig, a act) rig.Result { return r.Pod.Exec("sh", "-ec", a.script) }

// plantAgain puts back what an act took of foreign rules.
func plantAgain(r *rig.Rig, a act, backend string) {
	switch a.clears {
	case "":
	case "lo":
		r.Pod.Run("ip " + foreignBlackhole6)
	case "all":
		plantRules(r, backend)
		r.Pod.Feed(foreignTable, "nft -f -")
	default:
		plantTable(r, backend, a.family, a.clears)
	}
}
