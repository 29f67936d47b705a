package firewall

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/routefence/routefence/policy"
)

// The comments of a jump remember, in the kernel itself, what did not exist before it: iptables-nft makes tables and base
// chains on demand, and cleaning up must leave the ruleset as it was. Nobody else can tell after a restart.
const (
	commentJump      = "routefence"
	commentMadeChain = "routefence: made chain"
	commentMadeTable = "routefence: made table"
)

// Diff returns the changes that lead from what the kernel has to what is wanted, in the order in which to apply them. It is
// empty if everything is in place, which means: our rules are exactly the head of our chains, the jumps are the first rules
// of their base chains, the sets are equal, and nothing of ours is left where it does not belong.
//
// Order: members are added to sets before the rules that need them come, and deleted after the rules that needed them went;
// our rules in the other backend go last. So an address that is fenced before and after is fenced all the time.
func Diff(want Ruleset, have Snapshot) []Change {
	grow, shrink := diffSets(want.Sets, have)
	var restores, removals []Change
	var tables []Table
	fences := map[Table][]Fence{}
	for _, f := range want.Fences {
		if fences[f.Table] = append(fences[f.Table], f); len(fences[f.Table]) == 1 {
			tables = append(tables, f.Table)
		}
	}
	for _, table := range tables {
		if lines := install(fences[table], have.Tables, have.Backend); len(lines) > 0 && have.writable(table) {
			restores = append(restores, Restore{have.Backend, table, lines})
		}
	}
	for _, table := range have.Tables.sorted() {
		if len(fences[table]) == 0 && have.writable(table) {
			removals = append(removals, remove(table, have.Tables, have.Backend)...)
		}
	}
	for _, table := range have.Other.sorted() {
		if have.writable(table) {
			removals = append(removals, remove(table, have.Other, otherBackend(have.Backend))...)
		}
	}
	removals = slices.DeleteFunc(removals, func(c Change) bool { _, remark := c.(Kept); return remark })
	return slices.Concat(grow, restores, removals, shrink)
}

// writable reports whether anything is known about a table, so that changes can be computed for it.
func (s Snapshot) writable(t Table) bool {
	return s.Unread[t.Family] == nil && !s.Absent[t.Family] && !s.Incompatible[t]
}

func otherBackend(backend string) string {
	if backend == NFT {
		return Legacy
	}
	return NFT
}

// diffSets returns what must happen to the sets before the rules change, and what after.
func diffSets(want map[string][]netip.Prefix, have Snapshot) (grow, shrink []Change) {
	for _, f := range policy.Families {
		name := SetNames[f]
		wanted, needed := want[name]
		members, exists := have.Sets[name]
		if have.Unread[f] != nil || have.Absent[f] {
			continue
		}
		if _, left := have.Sets[ProbeSets[f]]; left {
			shrink = append(shrink, SetDestroy{f, ProbeSets[f]})
		}
		if !needed {
			if exists {
				shrink = append(shrink, SetDestroy{f, name})
			}
			continue
		}
		add, remove := missing(wanted, members), missing(members, wanted)
		if !exists || len(add) > 0 {
			grow = append(grow, SetUpdate{Family: f, Name: name, Create: !exists, Add: add})
		}
		if len(remove) > 0 {
			shrink = append(shrink, SetUpdate{Family: f, Name: name, Delete: remove})
		}
	}
	return grow, shrink
}

// missing returns the prefixes of a that are not in b. Both are sorted.
func missing(a, b []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range a {
		for len(b) > 0 && b[0].Compare(p) < 0 {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != p {
			out = append(out, p)
		}
	}
	return out
}

// install returns the restore lines that put the fences of one table in place, none if they are.
func install(fences []Fence, tables Tables, backend string) []string {
	table := fences[0].Table
	chains := tables[table]
	var lines, jumps []string
	var stay []string
	mark := newMark(table, tables, backend)
	for _, fence := range fences {
		lines = append(lines, compose(fence, chains)...)
		stay = append(append(stay, fence.Chain), fence.Bases...)
		for _, base := range fence.Bases {
			jumps = append(jumps, jumpFirst(base, chains[base].Rules, Rule{Target: fence.Chain, Comment: mark(base)}, fence.Uncommented)...)
		}
	}
	rest := departing(chains, stay)
	lines = slices.Concat(lines, rest.strays, jumps, rest.ends)
	if backend == NFT {
		lines = append(lines, rest.emptied...)
	}
	return lines
}

// compose returns the lines that make our rules exactly the head of a chain of ours. Foreign rules in it stay, behind ours, where
// they cannot weaken them.
func compose(fence Fence, chains map[string]Chain) []string {
	chain, exists := chains[fence.Chain]
	ours := ownership(chains, fence.Chain, fence.Uncommented)
	var lines, foreign []string
	for _, r := range chain.Rules {
		if !ours(r) {
			foreign = append(foreign, r.Text)
		}
	}
	switch {
	case !exists:
		lines = append(lines, "-N "+fence.Chain)
	case len(foreign)+len(fence.Rules) == len(chain.Rules) && startsWith(chain.Rules, fence.Rules):
		return nil
	case len(foreign) == 0:
		lines = append(lines, "-F "+fence.Chain)
	default:
		for _, r := range chain.Rules {
			if ours(r) {
				lines = append(lines, "-D "+r.Text)
			}
		}
		for i, r := range fence.Rules {
			lines = append(lines, fmt.Sprintf("-I %s %d %s", fence.Chain, i+1, r.Spec()))
		}
		return lines
	}
	for _, r := range fence.Rules {
		lines = append(lines, "-A "+fence.Chain+" "+r.Spec())
	}
	return lines
}

func startsWith(rules, head []Rule) bool {
	return len(rules) >= len(head) && slices.EqualFunc(rules[:len(head)], head, Rule.Same)
}

// jumpFirst returns the lines that make a jump the first rule of a base chain, and the only one of ours.
func jumpFirst(base string, rules []Rule, jump Rule, uncommented bool) []string {
	var lines []string
	for _, r := range rules {
		if isJump(r) || r.Owned() {
			lines = append(lines, "-D "+r.Text)
			jump.Comment = stronger(jump.Comment, r.Comment)
		}
	}
	if len(lines) == 1 && isJump(rules[0]) && rules[0].Target == jump.Target && (uncommented || rules[0].Owned()) {
		return nil
	}
	if uncommented {
		jump.Comment = ""
	}
	return append(lines, fmt.Sprintf("-I %s 1 %s", base, jump.Spec()))
}

// isJump reports whether a rule sends every packet to a chain of ours. One without a comment counts as ours as well: a kernel
// without the comment match leaves us no other mark.
func isJump(r Rule) bool {
	return isOwnChain(r.Target) && (r.Comment == "" || r.Owned()) && r.Same(Rule{Target: r.Target, Comment: r.Comment})
}

// newMark returns a function from base chains to the comment that a new jump in them must carry. Where one jump is lost, another
// of the table may still know that none of its chains was there before us.
func newMark(table Table, tables Tables, backend string) func(base string) string {
	chains, exists := tables[table]
	exists = exists && !onlyProbe(chains)
	made := false
	for _, chain := range chains {
		made = made || slices.ContainsFunc(chain.Rules, func(r Rule) bool { return r.Comment == commentMadeTable })
	}
	return func(base string) string {
		switch _, present := chains[base]; {
		case made:
			return commentMadeTable
		case backend != NFT || present:
			// The tables of the legacy backend come with all of their base chains and cannot be unloaded.
			return commentJump
		case exists:
			return commentMadeChain
		}
		return commentMadeTable
	}
}

// stronger returns the mark that remembers more: a jump that is set anew inherits what the old one knew.
func stronger(a, b string) string {
	if a == commentMadeTable || b == commentMadeTable {
		return commentMadeTable
	}
	if a == commentMadeChain || b == commentMadeChain {
		return commentMadeChain
	}
	return a
}

// ownership returns how to tell our rules from foreign ones inside a chain of ours: by comment. A kernel without the comment match
// leaves only their form; a bare jump, or a fence that has no comments, shows that it is such a kernel.
func ownership(chains map[string]Chain, name string, uncommented bool) func(Rule) bool {
	bare := uncommented
	for _, chain := range chains {
		bare = bare || slices.ContainsFunc(chain.Rules, func(r Rule) bool { return isJump(r) && r.Comment == "" })
	}
	commented := slices.ContainsFunc(chains[name].Rules, Rule.Owned)
	return func(r Rule) bool { return r.Owned() || bare && !commented && ownForm(r) }
}

func ownForm(r Rule) bool {
	switch {
	case r.Comment != "" || r.Unknown != "" || r.Dst.Not || r.Src.Not || r.Goto:
		return false
	case r.Target == "CONNMARK":
		return r.SetMark == replyMark || r.CtMark == replyMark && r.CtDir == "REPLY"
	case r.Flags != TCPFlags{}:
		return r.Target == "RETURN" && r.Flags.Not
	}
	return r.Src == Network{} && slices.Contains([]string{"DROP", "REJECT", "RETURN"}, r.Target) &&
		(r.In == Interface{} || r.Target == "RETURN" && r.Dst == Network{})
}

func sortedChains(chains map[string]Chain) []string {
	var names []string
	for name := range chains {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}
