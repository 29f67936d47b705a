package field

import (
	"fmt"
	"strings"
)

// mixedDamage is one way in which somebody else takes a part of the fence away.
type mixedDamage struct {
	kind, script string
	// opens says that sockets bound to eth0 get out until the firewall is repaired: both tables are empty.
	opens bool
	// cuts says that it cuts the VPN as well until it is repaired: without rule 96 the blackholes come before its routes, and with
	// lo go the sinks of translated networks.
	cuts bool
}

// damages lists them for the backend of the fence. $v is a family, $ipt its program.
func damages(fence string) []mixedDamage {
	out := []mixedDamage{
		{kind: "ruleset flushed", script: "nft flush ruleset", opens: fence == "nft"},
		{kind: "group reset", script: "ip link set eth0 group default"},
		{kind: "lo bounced", script: "ip link set lo down; ip link set lo up", cuts: true},
	}
	each := func(d mixedDamage) {
		for _, family := range families {
			d := d
			d.script = fmt.Sprintf("v=-%s; ipt='%s -w 5'\n%s", family, program(family, fence), d.script)
			out = append(out, d)
		}
	}
	each(mixedDamage{kind: "table flushed", script: "ip $v route flush table 9604"})
	each(mixedDamage{kind: "rule 97 deleted", script: "ip $v rule del pref 97"})
	each(mixedDamage{kind: "rule 96 deleted", script: "ip $v rule del pref 96", cuts: true})
	each(mixedDamage{kind: "both rules deleted", script: "ip $v rule del pref 97; ip $v rule del pref 96", cuts: true})
	each(mixedDamage{kind: "filter flushed", script: "$ipt -F"})
	each(mixedDamage{kind: "filter and mangle flushed", script: "$ipt -F; $ipt -t mangle -F", opens: true})
	return out
}

// damage takes something of the fence away, once it is whole: two layers at a time are more than any fence can lose.
func (m *mixed) damage() {
	m.whole()
	all := damages(m.fence)
	d := all[m.random.IntN(len(all))]
	flushed := m.netmap && m.nat == "nft" && d.kind == "ruleset flushed"
	if d.cuts || flushed {
		m.health.lost()
	}
	m.note(d.kind, strings.SplitN(d.script, ";", 2)[0])
	m.damaged, m.opened = true, d.opens
	if got := m.r.Pod.Exec("sh", "-ec", d.script); got.Err != nil {
		m.t.Fatalf("%s: %v\n%s", d.kind, got.Err, got.Stderr)
	}
	if flushed {
		m.netmap = false
	}
	if d.cuts || flushed {
		m.judge()
	}
}
