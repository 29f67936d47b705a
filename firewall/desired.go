package firewall

import (
	"net/netip"

	"github.com/routefence/routefence/policy"
)

// Options is what the rules depend on besides the policy.
type Options struct {
	// Lacks is what the kernel does not have; take it from the Snapshot.
	Lacks map[policy.Family]Lacks
	// Translations are the rewritings of node addresses in nat OUTPUT, nil with --translation=off.
	Translations []policy.Translation
	// Local are the pod's own addresses. Those inside a translated network stay reachable by lo.
	Local []netip.Prefix
	// Links are the names of the present links. iptables knows exact names and prefixes only; a shell pattern of another
	// form stands for those present links that match it, so the rules must be computed again when a link appears.
	Links []string
}

// Ruleset is what a policy needs in the kernel. Families without networks are not in it.
type Ruleset struct {
	Fences []Fence
	// Sets are the IP sets that the rules refer to.
	Sets map[string][]netip.Prefix
	// Degraded says in words what the kernel's lacks cost.
	Degraded []string
}

// Fence is our share of one table.
type Fence struct {
	Table Table
	// Bases are the base chains whose first rule must be the jump to our chain.
	Bases []string
	// Rules are the rules at the head of our chain.
	Rules []Rule
}

// Desired returns the rules that a policy needs.
func Desired(p policy.Policy, o Options) Ruleset { return Ruleset{} }

// Diff returns the changes that lead from what the kernel has to what is wanted, in the order in which to apply them. It is
// empty if everything is in place, which means: our rules are exactly the head of our chains, the jumps are the first rules
// of their base chains, the sets are equal, and nothing of ours is left where it does not belong.
func Diff(want Ruleset, have Snapshot) []Change { return nil }

// Remove returns the changes that take all that is ours away.
func Remove(have Snapshot) []Change { return nil }

// ParseSave reads the output of iptables-save -c.
func ParseSave(f policy.Family, saved []byte) (Tables, error) { return nil, nil }

// SetCapacity is the maxelem of our sets.
const SetCapacity = 1 << 20

const commentMark = "routefence"
