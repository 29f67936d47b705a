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
	r := removal{chains: chains, ours: ownership(chains, Fence{})}
	r.collect()
	kept := slices.Concat(r.foreign, r.leading)
	if len(r.foreign) > 0 {
		// Whatever those rules are for, they are reached through our jumps, and stay so.
		r.jumps = nil
	}
	lines := slices.Concat(r.jumps, r.inside)
	if _, exists := chains[ChainName]; exists && len(kept) == 0 {
		lines = append(lines, "-F "+ChainName, "-X "+ChainName)
	}
	if _, exists := chains[ProbeChain]; exists {
		lines = append(lines, "-F "+ProbeChain, "-X "+ProbeChain)
	}
	var changes []Change
	if len(r.foreign) == 0 && backend == NFT {
		lines = append(lines, r.emptied...)
	}
	if len(lines) > 0 {
		changes = append(changes, Restore{backend, table, lines})
	}
	if len(r.foreign) == 0 && backend == NFT && (r.madeTable || onlyProbe(chains)) {
		changes = append(changes, TableDelete{table})
	}
	if len(kept) > 0 {
		changes = append(changes, Kept{backend, table, ChainName, kept})
	}
	return changes
}

// onlyProbe reports whether the chain of a proof that was killed half way is all that a table holds.
func onlyProbe(chains map[string]Chain) bool {
	_, exists := chains[ProbeChain]
	return exists && len(chains) == 1
}

// removal sorts out one table.
type removal struct {
	chains map[string]Chain
	ours   func(Rule) bool
	// jumps and inside are the lines that delete our rules, elsewhere and in our chain; emptied those that delete base
	// chains which we made and which nobody else uses.
	jumps, inside, emptied []string
	// foreign are the foreign rules in our chain, leading those that lead to it.
	foreign, leading []string
	madeTable        bool
}

func (r *removal) collect() {
	for _, name := range sortedChains(r.chains) {
		switch chain := r.chains[name]; name {
		case ProbeChain:
		case ChainName:
			r.collectOwn(chain)
		default:
			r.collectOther(name, chain)
		}
	}
	if len(r.foreign) == 0 && len(r.leading) == 0 {
		// The whole chain goes, by -F and -X.
		r.inside = nil
	}
}

func (r *removal) collectOwn(chain Chain) {
	for _, rule := range chain.Rules {
		if r.ours(rule) {
			r.inside = append(r.inside, "-D "+rule.Text)
		} else {
			r.foreign = append(r.foreign, "-A "+rule.Text)
		}
	}
}

func (r *removal) collectOther(name string, chain Chain) {
	made, others := false, 0
	for _, rule := range chain.Rules {
		switch {
		case isJump(rule) || rule.Owned():
			r.jumps = append(r.jumps, "-D "+rule.Text)
			made = made || rule.Comment == commentMadeChain || rule.Comment == commentMadeTable
			r.madeTable = r.madeTable || rule.Comment == commentMadeTable
		case rule.Target == ChainName:
			r.leading = append(r.leading, "-A "+rule.Text)
			others++
		default:
			others++
		}
	}
	if made && others == 0 && strings.EqualFold(chain.Policy, "ACCEPT") {
		r.emptied = append(r.emptied, "-X "+name)
	}
}
