package firewall

import (
	"slices"
	"strings"

	"github.com/routefence/routefence/policy"
)

// Remove returns the changes that take away all that is ours, in both backends: table filter first, mangle, which has the
// last word, last, then the sets. Where foreign rules hold our chain in place there is a Kept among the changes.
func Remove(have Snapshot) []Change {
	var changes []Change
	for _, name := range builtinTables {
		for _, f := range policy.Families {
			table := Table{f, name}
			if have.writable(table) {
				changes = append(changes, remove(table, have.Tables, have.Backend)...)
				changes = append(changes, remove(table, have.Other, otherBackend(have.Backend))...)
			}
		}
	}
	_, destroy := diffSets(nil, have)
	return append(changes, destroy...)
}

// remove returns the changes that take away what is ours in one table of one backend.
func remove(table Table, tables Tables, backend string) []Change {
	chains := tables[table]
	d := departing(chains, nil)
	lines := slices.Concat(d.strays, d.ends)
	if backend == NFT {
		lines = append(lines, d.emptied...)
	}
	var changes []Change
	if len(lines) > 0 {
		changes = append(changes, Restore{backend, table, lines})
	}
	if backend == NFT && !d.held && (d.madeTable || onlyProbe(chains)) {
		changes = append(changes, TableDelete{table})
	}
	for _, k := range d.kept {
		changes = append(changes, Kept{backend, table, k.chain, k.rules})
	}
	return changes
}

// onlyProbe reports whether the chain of a proof that was killed half way is all that a table holds.
func onlyProbe(chains map[string]Chain) bool {
	_, exists := chains[ProbeChain]
	return exists && len(chains) == 1
}

// departure is what has to leave one table.
type departure struct {
	// strays are the lines that delete our rules in chains of others; they come before ends, which delete our chains, or just our
	// rules in them where others hold them in place; emptied are those that delete base chains which we made and nobody else uses.
	strays, ends, emptied []string
	madeTable             bool
	// kept are the chains that must stay; held says that foreign rules are in one of them.
	kept []keptChain
	held bool
}

// keptChain is a chain of ours with the foreign rules in it, or that lead to it.
type keptChain struct {
	chain string
	rules []string
}

// departing sorts out what is ours in a table and not in the chains that stay: chains of ours, and base chains that jump to those.
func departing(chains map[string]Chain, stay []string) departure {
	var d departure
	reached := map[string]bool{}
	for _, name := range sortedChains(chains) {
		if isOwnChain(name) && !slices.Contains(stay, name) {
			reached[name] = d.leave(name, chains)
		}
	}
	for _, name := range sortedChains(chains) {
		if !isOwnChain(name) && name != ProbeChain && !slices.Contains(stay, name) {
			d.clear(name, chains[name], reached, stay)
		}
	}
	if _, left := chains[ProbeChain]; left {
		d.ends = append(d.ends, "-F "+ProbeChain, "-X "+ProbeChain)
	}
	return d
}

// leave takes away one chain of ours, and reports whether it must stay in reach of our jumps: whatever foreign rules in it are for,
// that is how packets come to them.
func (d *departure) leave(name string, chains map[string]Chain) (reached bool) {
	ours := ownership(chains, name, false)
	var inside, foreign, leading []string
	for _, r := range chains[name].Rules {
		if ours(r) {
			inside = append(inside, "-D "+r.Text)
		} else {
			foreign = append(foreign, "-A "+r.Text)
		}
	}
	for _, other := range sortedChains(chains) {
		for _, r := range chains[other].Rules {
			if other != name && r.Target == name && !isJump(r) && !r.Owned() {
				leading = append(leading, "-A "+r.Text)
			}
		}
	}
	if kept := slices.Concat(foreign, leading); len(kept) > 0 {
		d.ends = append(d.ends, inside...)
		d.kept = append(d.kept, keptChain{name, kept})
	} else {
		// The whole chain goes.
		d.ends = append(d.ends, "-F "+name, "-X "+name)
	}
	d.held = d.held || len(foreign) > 0
	return len(foreign) > 0
}

// clear takes our rules out of a chain of others, except the jumps to chains that must be reached. A jump without our mark to a chain
// that stays may be somebody else's.
func (d *departure) clear(name string, chain Chain, reached map[string]bool, stay []string) {
	made, others := false, 0
	for _, r := range chain.Rules {
		jump := isJump(r)
		if jump && reached[r.Target] || !r.Owned() && (!jump || slices.Contains(stay, r.Target)) {
			others++
			continue
		}
		d.strays = append(d.strays, "-D "+r.Text)
		made = made || r.Comment == commentMadeChain || r.Comment == commentMadeTable
		d.madeTable = d.madeTable || r.Comment == commentMadeTable
	}
	if made && others == 0 && strings.EqualFold(chain.Policy, "ACCEPT") {
		d.emptied = append(d.emptied, "-X "+name)
	}
}
