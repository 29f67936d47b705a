package firewall

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// SetThreshold is the number of networks of a family above which the rules use an IP set. Plain rules cost every packet of the
// pod a walk through all of them, 60 to 100 ns for a network; a set costs about 1 us, however many there are
// (BenchmarkPacket in firewall/xtables). Below, plain rules are easier to read and need nothing from the kernel.
const SetThreshold = 16

// SetCapacity is the maxelem of our sets; the default of 65536 is too close to what a large policy may hold.
const SetCapacity = 1 << 20

// SetNames are the names of our sets. An IP set holds one family only.
var SetNames = map[policy.Family]string{policy.IPv4: "ROUTEFENCE4", policy.IPv6: "ROUTEFENCE6"}

// ProbeSets are the sets of the proof of a backend. One that is there was left by a process that was killed.
var ProbeSets = map[policy.Family]string{policy.IPv4: "ROUTEFENCE-PROBE4", policy.IPv6: "ROUTEFENCE-PROBE6"}

// The comments mark our rules, for people and for Rule.Owned.
const (
	commentMark       = "routefence"
	commentNetwork    = "routefence: node network"
	commentTranslated = "routefence: translated"
	commentAllowed    = "routefence: allowed"
	commentOwn        = "routefence: own address"
	commentExempt     = "routefence: not fenced"
)

// Options is what the rules depend on besides the policy.
type Options struct {
	// Lacks is what the kernel does not have; take it from the Snapshot.
	Lacks map[policy.Family]Lacks
	// Translations are the rewritings of node addresses in nat OUTPUT, nil with --translation=off.
	Translations []policy.Translation
	// Local are the pod's own addresses. Those inside a node network stay reachable by lo when the network is translated.
	Local []netip.Prefix
	// Links are the names of the present links. iptables knows exact names and prefixes only; a shell pattern of another
	// form stands for those present links that match it, so the rules must be computed again when a link appears.
	Links []string
}

// Ruleset is what a policy needs in the kernel. Families without networks are not in it.
type Ruleset struct {
	Fences []Fence
	// Sets are the members of the IP sets that the rules refer to, sorted.
	Sets map[string][]netip.Prefix
	// Degraded says in words what the kernel's lacks cost.
	Degraded []string
}

// Fence is one chain of ours. A table may hold several; a base chain jumps to one at most.
type Fence struct {
	Table Table
	Chain string
	// Bases are the base chains whose first rule must be the jump to the chain.
	Bases []string
	// Rules are the rules at the head of the chain.
	Rules []Rule
	// Uncommented says that neither rules nor jumps can carry our mark.
	Uncommented bool
}

// Desired returns the rules that a policy needs.
func Desired(p policy.Policy, o Options) Ruleset {
	out := Ruleset{Sets: map[string][]netip.Prefix{}}
	for _, f := range policy.Families {
		if len(policy.Only(p.Networks, f)) == 0 {
			continue
		}
		d := newDesign(p, o, f)
		if d.set != "" {
			out.Sets[d.set] = d.networks
		}
		// mangle goes first: of what is translated or answered, filter leaves the judgement to it.
		out.Fences = append(out.Fences, d.fence("mangle", ChainName, []string{"POSTROUTING"}, d.mangle()))
		if len(d.replies) > 0 {
			out.Fences = append(out.Fences, d.fence("mangle", ReplyChain, []string{"PREROUTING", "OUTPUT"}, d.marking()))
		}
		out.Fences = append(out.Fences, d.fence("filter", ChainName, []string{"OUTPUT", "FORWARD"}, d.filter()))
		out.Degraded = append(out.Degraded, d.degraded()...)
		if len(d.replies) < len(policy.Only(p.Replies, f)) {
			out.Degraded = append(out.Degraded, f.String()+": no conntrack or connmark, connections that come in from node networks get no answer")
		}
	}
	return out
}

// design is the policy as one family's rules see it.
type design struct {
	family   policy.Family
	lacks    Lacks
	networks []netip.Prefix
	allow    []netip.Prefix
	// set is the name of the set that stands for the networks, or "".
	set string
	// from and to are the two sides of the translations, those that have not been read yet included; own are the pod's addresses inside the networks.
	from, to, own []netip.Prefix
	// replies are the networks whose connections are answered.
	replies []netip.Prefix
	// fenced and exempt are interface names as iptables writes them.
	fenced, exempt []string
}

func newDesign(p policy.Policy, o Options, f policy.Family) design {
	d := design{
		family:   f,
		lacks:    o.Lacks[f],
		networks: policy.Only(p.Networks, f),
		allow:    policy.Only(p.Allow, f),
		replies:  policy.Only(Answerable(p, o.Lacks).Replies, f),
	}
	if len(d.networks) > SetThreshold && !d.lacks.Sets {
		d.set = SetNames[f]
	}
	var from, to []netip.Prefix
	for _, t := range o.Translations {
		from, to = append(from, t.From), append(to, t.To)
	}
	d.from, d.own = within(d.networks, policy.Only(from, f)), within(d.networks, policy.Only(o.Local, f))
	read := policy.Only(to, f)
	d.to = ranges.Of(read...).Minus(ranges.Of(within(d.networks, read)...)).Union(ranges.Of(policy.Only(p.Translated, f)...)).Prefixes()
	d.fenced, d.exempt = interfaceNames(p, o.Links)
	return d
}

// within returns what some prefixes have of the networks. The prefixes are asked one by one: they may be few and far between.
func within(networks, prefixes []netip.Prefix) []netip.Prefix {
	var out ranges.Set
	for _, p := range prefixes {
		out = out.Union(ranges.Of(ranges.Overlapping(networks, p)...).Intersect(ranges.Of(p)))
	}
	return out.Prefixes()
}

func (d design) fence(table, chain string, bases []string, rules []Rule) Fence {
	if d.lacks.Comment {
		for i := range rules {
			rules[i].Comment = ""
		}
	}
	return Fence{Table{d.family, table}, chain, bases, rules, d.lacks.Comment}
}

// filter returns our chain in table filter. The order matters: what stays reachable comes before what does not.
func (d design) filter() []Rule {
	rules := append(d.pass(), d.answers()...)
	if len(d.from) > 0 && !d.lacks.Conntrack {
		// filter OUTPUT sees the interface that was chosen for the address before nat OUTPUT rewrote it. Of a rewritten
		// packet it cannot judge; mangle POSTROUTING can.
		rules = append(rules, Rule{CtState: "DNAT", Target: "RETURN", Comment: commentTranslated})
	}
	if len(d.from)+len(d.replies) > 0 {
		rules = append(rules, d.sinks()...)
	}
	rules = append(rules, d.exemptions()...)
	for _, name := range d.fenced {
		for _, r := range d.destinations() {
			r.Out.Name, r.Comment = name, commentNetwork
			rules = append(rules, d.reject(r)...)
		}
	}
	return rules
}

// mangle returns our chain in table mangle.
func (d design) mangle() []Rule {
	rules := slices.Concat(d.pass(), d.answers(), d.exemptions())
	for _, name := range d.fenced {
		for _, r := range d.destinations() {
			r.Out.Name, r.Comment, r.Target = name, commentNetwork, "DROP"
			rules = append(rules, r)
		}
		for _, r := range prefixRules(d.to) {
			r.Out.Name, r.Comment, r.Target = name, commentTranslated, "DROP"
			rules = append(rules, r)
		}
	}
	return rules
}

func (d design) pass() []Rule {
	rules := prefixRules(d.allow)
	for i := range rules {
		rules[i].Target, rules[i].Comment = "RETURN", commentAllowed
	}
	return rules
}

func (d design) exemptions() []Rule {
	var rules []Rule
	for _, name := range d.exempt {
		rules = append(rules, Rule{Out: Interface{Name: name}, Target: "RETURN", Comment: commentExempt})
	}
	return rules
}

// destinations returns a rule without target for each network, or the one for the set.
func (d design) destinations() []Rule {
	if d.set != "" {
		return []Rule{{Set: d.set}}
	}
	return prefixRules(d.networks)
}

// reject completes a rule. TCP is reset, since a caller takes an ICMP error for a passing trouble and tries again for minutes.
func (d design) reject(r Rule) []Rule {
	if d.lacks.Reject {
		r.Target = "DROP"
		return []Rule{r}
	}
	r.Target = "REJECT"
	tcp := r
	tcp.Proto, tcp.RejectWith = "tcp", "tcp-reset"
	r.RejectWith = "icmp-admin-prohibited"
	if d.family == policy.IPv6 {
		r.RejectWith = "icmp6-adm-prohibited"
	}
	return []Rule{tcp, r}
}

func (d design) degraded() []string {
	var out []string
	say := func(lacking bool, format string) {
		if lacking {
			out = append(out, d.family.String()+": "+format)
		}
	}
	say(d.lacks.Reject, "no REJECT target, packets are dropped without an answer")
	say(d.lacks.Comment, "no comment match, rules carry no mark")
	say(d.lacks.Conntrack && len(d.from) > 0, "no conntrack match, translated packets may be refused in filter OUTPUT")
	say(d.lacks.Sets && len(d.networks) > SetThreshold, fmt.Sprintf("no ipset, %d plain rules slow packets down", len(d.networks)))
	return out
}

func prefixRules(prefixes []netip.Prefix) []Rule {
	rules := make([]Rule, 0, len(prefixes))
	for _, p := range prefixes {
		rules = append(rules, Rule{Dst: network(p)})
	}
	return rules
}

// network asks for a prefix. /0 asks nothing, as iptables forgets it.
func network(p netip.Prefix) Network {
	if p.Bits() == 0 {
		return Network{}
	}
	return Network{Prefix: p}
}
