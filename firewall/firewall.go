// Package firewall owns the netfilter half of the fence: it computes the rules that a policy needs, compares them with the
// rules that a kernel has, and tells which addresses those rules let through. It is pure: firewall/xtables reads and writes.
//
// The fence is chain ROUTEFENCE in table filter, jumped to first from OUTPUT and FORWARD, and chain ROUTEFENCE in table
// mangle, jumped to first from POSTROUTING. filter answers (REJECT), so that a caller fails at once. But filter OUTPUT sees
// the interface that was chosen before nat OUTPUT rewrote the packet; mangle POSTROUTING sees the one by which the packet
// really leaves. It can only DROP, and it has the last word.
//
// Where connections that come in from node networks are to be answered, chain ROUTEFENCE-REPLY in table mangle, jumped to first from
// PREROUTING and OUTPUT, marks them and their answers, and the other two chains let those pass.
package firewall

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"

	"github.com/routefence/routefence/policy"
)

// Our chains: ChainName denies, ReplyChain marks answers, ProbeChain is there while a backend is proven. All that start like the
// first are ours, so that a version cleans up after any other.
const (
	ChainName  = "ROUTEFENCE"
	ReplyChain = "ROUTEFENCE-REPLY"
	ProbeChain = "ROUTEFENCE-PROBE"
)

// isOwnChain reports whether a chain is ours. That of the probe is not meant: it is taken away as it is.
func isOwnChain(name string) bool {
	return name == ChainName || strings.HasPrefix(name, ChainName+"-") && name != ProbeChain
}

// The two backends of iptables. A packet passes the rules of both.
const (
	NFT    = "nft"
	Legacy = "legacy"
)

// Table names one table of one family, such as the IPv4 filter table.
type Table struct {
	Family policy.Family
	Name   string
}

func (t Table) String() string { return t.Family.String() + " " + t.Name }

func compareTables(a, b Table) int {
	return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name))
}

// Interface is what a rule asks of an interface name. A trailing "+" stands for any continuation. The zero value asks nothing.
type Interface struct {
	Name string
	Not  bool
}

// Network is what a rule asks of an address. The zero value asks nothing.
type Network struct {
	Prefix netip.Prefix
	Not    bool
}

// Rule is one rule of a chain. Two rules that do the same compare equal once Packets and Text are cleared (see Same), in
// whatever order and wording a version of iptables-save printed them.
type Rule struct {
	In, Out  Interface
	Src, Dst Network
	Proto    string
	// CtState is the sorted, comma-separated list of -m conntrack --ctstate, CtDir its --ctdir.
	CtState, CtDir string
	// CtMark is the --mark of -m connmark.
	CtMark Mark
	// Flags is the --tcp-flags of -m tcp, ICMP the --icmpv6-type of -m icmp6.
	Flags TCPFlags
	ICMP  string
	// Set is the name of -m set --match-set NAME dst, SrcSet that of --match-set NAME src.
	Set, SrcSet string
	Comment     string
	// Target is the target or the chain. Goto says that it was reached by -g.
	Target string
	Goto   bool
	// RejectWith is the --reject-with of REJECT, To the --to of NETMAP and the --to-destination of DNAT.
	RejectWith string
	To         netipx.IPRange
	// SetMark is the --set-xmark of CONNMARK, Restore its --restore-mark.
	SetMark Mark
	Restore Masks
	// Unknown holds the words that were not understood. A rule that has some may match a packet or not.
	Unknown string
	// Packets counts the packets that matched.
	Packets uint64
	// Text is the rule as it was saved, from the chain name on and without counters: what -A and -D take.
	Text string
}

// Same reports whether two rules match the same packets and do the same to them. It compares fields, never text: iptables
// reorders and rewords what it is given (/0 vanishes, REJECT gains its type), and differently in every version.
func (r Rule) Same(o Rule) bool {
	r.Packets, r.Text = 0, ""
	o.Packets, o.Text = 0, ""
	return r == o
}

// Owned reports whether the rule carries our mark, the comment.
func (r Rule) Owned() bool { return strings.HasPrefix(r.Comment, commentMark) }

// Chain is one chain: built-in chains have a policy, user chains have "".
type Chain struct {
	Policy string
	Rules  []Rule
}

// Tables is what one backend has. A table or a base chain that is not in the kernel is not in here, even where
// iptables-nft-save prints one.
type Tables map[Table]map[string]Chain

// Lacks is what a kernel, or its iptables, does not have for a family. The zero value lacks nothing.
type Lacks struct {
	// Sets: no ipset. Reject: no REJECT target. Comment: no comment match. Conntrack: no conntrack match. Connmark: no connmark
	// match or CONNMARK target.
	Sets, Reject, Comment, Conntrack, Connmark bool
}

// Snapshot is the firewall of a network namespace as it was read from the kernel.
type Snapshot struct {
	// Backend is the one that holds our rules, or will.
	Backend string
	// Tables are those of Backend. Other are those of the other backend: the VPN may have put its NETMAP rules there, and
	// an earlier version of us its chains.
	Tables, Other Tables
	// Sets are our IP sets and their members, sorted.
	Sets map[string][]netip.Prefix
	// Lacks says what is not available.
	Lacks map[policy.Family]Lacks
	// Absent are the families whose protocol stack this kernel does not have: no packet of theirs can exist.
	Absent map[policy.Family]bool
	// Unread are the families whose rules could not be read, and why. Nothing is known about them: Passing lets everything
	// through, Diff writes nothing, and it is for the caller to decide whether it matters; see Err.
	Unread map[policy.Family]error
	// Blind are the families of which the other backend could not be read, and why: a translation there would go unseen.
	Blind map[policy.Family]error
	// Incompatible are the tables that hold native nft objects which iptables-nft can neither show nor extend, and those that
	// are dormant: everything in them reads as usual and nothing works.
	Incompatible map[Table]bool
	// Unseen says what may be ours in either backend and cannot be read, or not be taken away. A fence can stand beside it; whoever
	// says that nothing is left must look at it.
	Unseen []error
}

// Err returns why the fence of a policy cannot be read back, or nil. A family without networks does not matter.
func (s Snapshot) Err(p policy.Policy) error {
	for _, f := range policy.Families {
		if len(policy.Only(p.Networks, f)) == 0 {
			continue
		}
		if err := s.Unread[f]; err != nil {
			return fmt.Errorf("%s firewall: %w", f, err)
		}
		for _, name := range []string{"filter", "mangle"} {
			if t := (Table{f, name}); s.Incompatible[t] {
				return fmt.Errorf("table %s holds native nft objects that iptables-nft cannot handle, or is dormant "+
					"(see nft list table; put that right, or use --firewall=legacy)", t)
			}
		}
	}
	return nil
}

// Broken reports whether a table that the policy needs is known to be beyond reading, unlike one that could not be read this time.
func (s Snapshot) Broken(p policy.Policy) bool {
	for t := range s.Incompatible {
		if (t.Name == "filter" || t.Name == "mangle") && len(policy.Only(p.Networks, t.Family)) > 0 {
			return true
		}
	}
	return false
}

// Rejected returns the packets counted at our own REJECT and DROP rules: those that tried to leave and did not.
func (s Snapshot) Rejected() map[policy.Family]uint64 {
	out := map[policy.Family]uint64{}
	for t, chains := range s.Tables {
		for _, r := range chains[ChainName].Rules {
			if (r.Owned() || ownForm(r)) && (r.Target == "REJECT" || r.Target == "DROP") {
				out[t.Family] += r.Packets
			}
		}
	}
	return out
}

// sortedTables returns the tables in a fixed order: by family, and filter before mangle before nat.
func (t Tables) sorted() []Table {
	var out []Table
	for table := range t {
		out = append(out, table)
	}
	slices.SortFunc(out, compareTables)
	return out
}
