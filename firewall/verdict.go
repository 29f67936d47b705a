package firewall

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Pass is a set of addresses for which some packet may leave, and what lets it.
type Pass struct {
	Addrs ranges.Set
	Cause string
}

// Passing returns the part of `to` for which some packet, locally made or forwarded, may leave by interface out.
// Addresses are those on the wire, behind nat OUTPUT. The parts are disjoint; none means that all of `to` is fenced.
// Answers to connections that came in are no leaks and not spoken of: a rule for them alone matches nothing here. One for the other
// direction may match or not, as packets that conntrack does not track have no direction.
//
// A packet leaves if filter OUTPUT or filter FORWARD, and mangle POSTROUTING as well, let it pass. Where a rule asks for
// more than an interface and a destination, some packet may match it and some other may not; both are followed. Hooks that
// can only stop more are not looked at, nor are native nft tables: those can stop more as well, but one that rewrites an
// address behind mangle POSTROUTING goes unseen. The answer is as good as what
// iptables-save prints: 1.8.9 prints native nft rules in its own tables without their sets ("ip daddr { A, B } drop" as
// "-j DROP"). Behind our jump, where Diff wants them, no rule matters.
func (s Snapshot) Passing(f policy.Family, out string, to ranges.Set) []Pass {
	to = to.Intersect(everything(f))
	switch {
	case s.Absent[f] || to.Empty():
		return nil
	case s.Unread[f] != nil:
		return []Pass{{to, fmt.Sprintf("the rules could not be read: %v", s.Unread[f])}}
	}
	h := hooks{s, out, map[string]ranges.Set{}}
	for name, members := range s.Sets {
		h.sets[name] = to.Near(members)
	}
	early := s.rerouted(f, to)
	early = append(early, h.passing(Table{f, "filter"}, "OUTPUT", to.Minus(union(early)))...)
	early = append(early, h.passing(Table{f, "filter"}, "FORWARD", to.Minus(union(early)))...)
	late := h.passing(Table{f, "mangle"}, "POSTROUTING", union(early))
	var passing []Pass
	for _, a := range early {
		for _, b := range late {
			if both := a.Addrs.Intersect(b.Addrs); !both.Empty() {
				passing = addPass(passing, both, a.Cause+"; "+b.Cause)
			}
		}
	}
	return passing
}

// everything returns all the addresses of a family.
func everything(f policy.Family) ranges.Set {
	if f == policy.IPv4 {
		return ranges.Of(netip.PrefixFrom(netip.IPv4Unspecified(), 0))
	}
	return ranges.Of(netip.PrefixFrom(netip.IPv6Unspecified(), 0))
}

func union(passes []Pass) ranges.Set {
	var all ranges.Set
	for _, p := range passes {
		all = all.Union(p.Addrs)
	}
	return all
}

// addPass adds addresses under their cause.
func addPass(passes []Pass, addrs ranges.Set, cause string) []Pass {
	for i := range passes {
		if passes[i].Cause == cause {
			passes[i].Addrs = passes[i].Addrs.Union(addrs)
			return passes
		}
	}
	return append(passes, Pass{addrs, cause})
}

// rerouted returns the addresses of which filter OUTPUT cannot judge, as it sees the interface that was chosen before
// nat OUTPUT rewrote the packet, or before mangle OUTPUT marked it; the kernel then routes it again.
func (s Snapshot) rerouted(f policy.Family, to ranges.Set) []Pass {
	var out []Pass
	add := func(addrs ranges.Set, cause string) {
		if addrs = addrs.Intersect(to).Minus(union(out)); !addrs.Empty() {
			out = addPass(out, addrs, cause)
		}
	}
	for _, tables := range []Tables{s.Tables, s.Other} {
		for _, r := range reachable(tables[Table{f, "nat"}], "OUTPUT") {
			if r.To.IsValid() {
				add(ranges.Set{r.To}, "translated in nat by -A "+r.Text)
			}
		}
		for _, r := range reachable(tables[Table{f, "mangle"}], "OUTPUT") {
			if slices.Contains(reroutingTargets, r.Target) && !r.spares() && r.SetMark == (Mark{}) {
				add(to, "routed again in mangle by -A "+r.Text)
			}
		}
	}
	return out
}

var reroutingTargets = []string{"MARK", "CONNMARK", "TOS", "DSCP"}

// reachable returns the rules of a base chain and of the chains that it leads to.
func reachable(chains map[string]Chain, base string) []Rule {
	var rules []Rule
	seen := map[string]bool{}
	queue := []string{base}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		for _, r := range chains[name].Rules {
			rules = append(rules, r)
			if _, found := chains[r.Target]; found {
				queue = append(queue, r.Target)
			}
		}
	}
	return rules
}

// hooks are the hooks of a namespace on the way out by one interface.
type hooks struct {
	Snapshot
	out  string
	sets map[string]ranges.Set
}

// passing returns what passes one hook: it must pass both backends. The cause is told from the backend that holds our chain.
func (h hooks) passing(table Table, base string, to ranges.Set) []Pass {
	if h.Incompatible[table] {
		return []Pass{{to, fmt.Sprintf("table %s holds native nft objects and cannot be read", table)}}
	}
	other := h.walk(h.Other, table, base, to)
	return h.walk(h.Tables, table, base, union(other))
}

func (h hooks) walk(tables Tables, table Table, base string, to ranges.Set) []Pass {
	if to.Empty() {
		return nil
	}
	w := walk{chains: tables[table], sets: h.sets, table: table, base: base, out: h.out}
	rest := w.run(base, to, 0)
	if p := tables[table][base].Policy; p == "" || p == "ACCEPT" {
		w.explain(rest)
	}
	return w.passed
}

// Translations returns the rewritings of node addresses in nat OUTPUT, of both backends.
func (s Snapshot) Translations(p policy.Policy) []policy.Translation {
	var out []policy.Translation
	for _, f := range policy.Families {
		for _, tables := range []Tables{s.Tables, s.Other} {
			for _, r := range reachable(tables[Table{f, "nat"}], "OUTPUT") {
				if !r.To.IsValid() || !r.Dst.Prefix.IsValid() || r.Dst.Not {
					continue
				}
				to := ranges.Of(r.Dst.Prefix)
				if from := to.Intersect(to.Near(p.Networks)); r.aimsAt(from) {
					out = append(out, r.translations(from)...)
				}
			}
		}
	}
	return out
}

// aimsAt reports whether a rewriting of one prefix, some part of which is node networks, is one of node networks and not one that
// happens to catch them: a mesh or a transparent proxy redirects whatever goes to a port, and taking that for the way to the nodes would
// fence off the proxy.
func (r Rule) aimsAt(networks ranges.Set) bool {
	return r.Proto == "" || ranges.Of(r.Dst.Prefix).Minus(networks).Empty()
}

// destinations returns the addresses that a rule asks for.
func (r Rule) destinations(f policy.Family) ranges.Set {
	switch {
	case !r.Dst.Prefix.IsValid():
		return everything(f)
	case r.Dst.Not:
		return everything(f).Minus(ranges.Of(r.Dst.Prefix))
	}
	return ranges.Of(r.Dst.Prefix)
}

func (r Rule) translations(from ranges.Set) []policy.Translation {
	var out []policy.Translation
	for _, source := range from.Prefixes() {
		for _, target := range (ranges.Set{r.To}).Prefixes() {
			if r.Target == "NETMAP" {
				target = mapped(source, target)
			}
			out = append(out, policy.Translation{From: source, To: target, Rule: "-A " + r.Text})
		}
	}
	return out
}

// mapped returns where NETMAP sends a prefix: the network bits come from the target, the host bits stay.
func mapped(from, to netip.Prefix) netip.Prefix {
	if from.Bits() <= to.Bits() {
		return to
	}
	addr, host := to.Addr().AsSlice(), from.Addr().AsSlice()
	for i := to.Bits(); i < from.Bits(); i++ {
		addr[i/8] |= host[i/8] & (0x80 >> (i % 8))
	}
	moved, _ := netip.AddrFromSlice(addr)
	return netip.PrefixFrom(moved, from.Bits())
}
