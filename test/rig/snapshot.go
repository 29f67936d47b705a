package rig

import (
	"regexp"
	"strings"
)

// snapshotCommands show all that routefence or its neighbours may have written to the kernel.
var snapshotCommands = []string{
	"ip -d link",
	"ip -d rule",
	"ip -6 -d rule",
	"ip -d route show table all",
	"ip -6 -d route show table all",
	"iptables-nft-save",
	"ip6tables-nft-save",
	"iptables-legacy-save",
	"ip6tables-legacy-save",
	"nft -s list ruleset",
	"ipset save",
}

// moving is what differs between two looks at the same state: dates, counters, and a link's operational state, which the kernel makes
// UP out of UNKNOWN some time after the link is up. (Whether it is up is among its flags.)
var moving = regexp.MustCompile(`(?m)^# (Generated|Completed) .*\n|\[\d+:\d+\]|( expires \d+sec)| state (UNKNOWN|UP)\b`)

// Snapshot is the state of the namespace's network as text. Two snapshots are equal, byte for byte, if nothing was changed
// between them.
func (n *Namespace) Snapshot() string {
	var b strings.Builder
	for _, line := range snapshotCommands {
		out, err := n.Try(line)
		b.WriteString("### " + line + "\n" + moving.ReplaceAllString(out, ""))
		if err != nil {
			b.WriteString("unavailable: " + err.Error() + "\n")
		}
	}
	return b.String()
}

// Snapshot is the state of the pod's network.
func (r *Rig) Snapshot() string { return r.Pod.Snapshot() }
