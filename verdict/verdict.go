// Package verdict joins routing and firewall, as read back from the kernel, into what happens to each node network.
//
// It says nothing about what was written: only the two snapshots count.
package verdict

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
)

// State is what happens to packets for a network.
type State string

const (
	// Tunneled packets leave by a tunnel interface that is up.
	Tunneled State = "Tunneled"
	// Blocked packets go nowhere.
	Blocked State = "Blocked"
	// Leaking: some packet can leave by a fenced interface, or by one that is neither fenced nor a tunnel.
	Leaking State = "Leaking"
	// Bypassed: routing sends some packet to a fenced interface; only the firewall stops it.
	Bypassed State = "Bypassed"
	// Allowed parts are exempt by configuration.
	Allowed State = "Allowed"
)

// Exception is a part of a network that fares differently from the rest, or that someone else's route or rule threatens.
type Exception struct {
	CIDR      netip.Prefix
	State     State
	Interface string
	// Cause is the rule, route or firewall rule behind it, as the kernel's tools print it.
	Cause string
}

// Network is the verdict on one node network.
type Network struct {
	CIDR  netip.Prefix
	State State
	// Interface is the tunnel, for a network that is Tunneled.
	Interface string
	// Cause is what decides for the network as a whole.
	Cause string
	// TranslatedTo is what nat OUTPUT makes of the network: the addresses that really are dialled.
	TranslatedTo []netip.Prefix
	Exceptions   []Exception
	// Whole says that every address that is not Allowed leaves by a tunnel.
	Whole bool
	// Unstopped is the part that the firewall alone would let out by a fenced interface: what a socket bound to that interface can
	// reach whatever routing says.
	Unstopped []Exception
}

// Of returns the verdict on every network of the policy.
func Of(p policy.Policy, translations []policy.Translation, r routes.State, f firewall.Snapshot) []Network {
	out := make([]Network, 0, len(p.Networks))
	for _, family := range policy.Families {
		if networks := policy.Only(p.Networks, family); len(networks) > 0 {
			j := join{policy: p, family: family, routes: r, firewall: f, fenced: r.Fenced(p)}
			out = j.append(out, networks, translations)
		}
	}
	return out
}

// Dead returns the addresses whose packets go nowhere.
func Dead(networks []Network) ranges.Set {
	var dead, other []netip.Prefix
	for _, n := range networks {
		if n.State == Blocked {
			dead = append(dead, n.CIDR)
		}
		for _, e := range n.Exceptions {
			switch {
			case e.State != Blocked:
				other = append(other, e.CIDR)
			case n.State != Blocked:
				dead = append(dead, e.CIDR)
			}
		}
	}
	return ranges.Of(dead...).Minus(ranges.Of(other...))
}

// Unstopped returns the addresses of the policy's networks that the firewall alone would let out by some fenced interface.
func Unstopped(p policy.Policy, r routes.State, f firewall.Snapshot) ranges.Set {
	var out ranges.Set
	for _, family := range policy.Families {
		to := ranges.Of(policy.Only(p.Networks, family)...).Minus(ranges.Of(policy.Only(p.Allow, family)...))
		for _, l := range r.Fenced(p) {
			for _, pass := range f.Passing(family, l.Name, to) {
				out = out.Union(pass.Addrs)
			}
		}
	}
	return out
}

// aspect is one thing that happens to a set of addresses.
type aspect struct {
	to    ranges.Set
	state State
	link  string
	cause string
	// some: only some packets to these addresses fare so; the others, as another aspect says.
	some bool
	// shadow: the aspect is a route of someone else that is kept from being used.
	shadow bool
}

// join computes the aspects of one family.
type join struct {
	policy   policy.Policy
	family   policy.Family
	routes   routes.State
	firewall firewall.Snapshot
	fenced   []routes.Link
}

// append adds the verdicts on the networks of the family.
func (j join) append(out []Network, networks []netip.Prefix, translations []policy.Translation) []Network {
	allowed := ranges.Of(policy.Only(j.policy.Allow, j.family)...)
	all := ranges.Of(networks...).Minus(allowed)
	aspects := append(j.aspects(all), j.allowed(allowed)...)
	aspects = j.translate(aspects, all, translations)

	first := len(out)
	pieces := split(networks, aspects)
	for i, n := range networks {
		v := summarise(n, pieces[i])
		for _, t := range translations {
			if t.From.Overlaps(n) {
				v.TranslatedTo = append(v.TranslatedTo, image(n, t))
			}
		}
		out = append(out, v)
	}
	j.unstopped(out[first:], networks, all)
	return out
}

// allowed says why parts of networks are exempt.
func (j join) allowed(to ranges.Set) []aspect {
	var out []aspect
	for _, l := range j.policy.Lifelines {
		one := ranges.Of(netip.PrefixFrom(l.Addr, l.Addr.BitLen()))
		if !one.Intersect(to).Empty() {
			out = append(out, aspect{to: one, state: Allowed, cause: "kept as a lifeline of the pod: " + l.Name})
			to = to.Minus(one)
		}
	}
	return append(out, aspect{to: to, state: Allowed, cause: "--allow"})
}

// aspects returns what happens to packets for the addresses of to.
func (j join) aspects(to ranges.Set) []aspect {
	paths, shadows := j.routes.Paths(j.family, to)
	var out []aspect
	for _, p := range paths {
		if p.Fate == routes.Device {
			out = append(out, j.device(p)...)
		} else if p.Only == "" {
			out = append(out, aspect{to: p.To, state: Blocked, cause: p.Cause})
		}
	}
	for _, s := range shadows {
		out = append(out, aspect{to: s.To, state: Blocked, link: s.Link.Name, cause: s.Cause, shadow: true})
	}
	return out
}

// device judges a path that ends at an interface.
func (j join) device(p routes.Path) []aspect {
	a := aspect{to: p.To, link: p.Link.Name, cause: p.Cause, some: p.Only != ""}
	if a.some && p.Only != p.Cause {
		a.cause = p.Only + ": " + p.Cause
	}
	role := j.policy.Role(p.Link.Name)
	switch {
	case p.Link.Name == "lo":
		a.state = Blocked
	case role == policy.Tunnel && p.Link.Up:
		a.state = Tunneled
	case role == policy.Tunnel:
		a.state, a.cause = Blocked, a.cause+" ("+p.Link.Name+" is down)"
	case p.Reply:
		// Only the firewall marks packets so, and only answers. What it stops is no news; what it would let out, were it marked by
		// anybody else, is.
		return slices.DeleteFunc(j.judgeByFirewall(a), func(a aspect) bool { return a.state == Bypassed })
	default:
		return j.judgeByFirewall(a)
	}
	if a.some {
		return nil // some packets are safe as well: nothing to report
	}
	return []aspect{a}
}

// judgeByFirewall divides what routing sends to an interface that is no tunnel into what leaves there and what does not.
func (j join) judgeByFirewall(a aspect) []aspect {
	stopped := a
	stopped.state = Bypassed
	if !j.isFenced(a.link) {
		a.cause += " (" + name(a.link) + " is neither fenced nor a tunnel)"
	}
	var out []aspect
	for _, pass := range j.firewall.Passing(j.family, a.link, a.to) {
		leak := a
		leak.to, leak.state, leak.cause = pass.Addrs, Leaking, a.cause+"; firewall: "+pass.Cause
		out = append(out, leak)
		stopped.to = stopped.to.Minus(pass.Addrs)
	}
	if !stopped.to.Empty() {
		out = append(out, stopped)
	}
	return out
}

func name(link string) string {
	if link == "" {
		return "the interface"
	}
	return link
}

func (j join) isFenced(link string) bool {
	return slices.ContainsFunc(j.fenced, func(l routes.Link) bool { return l.Name == link })
}

// unstopped asks the firewall alone about every fenced interface.
func (j join) unstopped(out []Network, networks []netip.Prefix, all ranges.Set) {
	var aspects []aspect
	for _, l := range j.fenced {
		for _, pass := range j.firewall.Passing(j.family, l.Name, all) {
			aspects = append(aspects, aspect{to: pass.Addrs, state: Leaking, link: l.Name, cause: pass.Cause})
		}
	}
	for i, pieces := range split(networks, aspects) {
		for _, p := range pieces {
			out[i].Unstopped = append(out[i].Unstopped, p.exceptions()...)
		}
	}
}

// summarise makes one verdict of what happens to the parts of a network.
func summarise(n netip.Prefix, pieces []aspect) Network {
	out := Network{CIDR: n, State: Blocked}
	if len(pieces) == 1 && pieces[0].state == Blocked && !pieces[0].shadow {
		out.Cause = pieces[0].cause // so it is for ten thousand networks while the VPN is down
		return out
	}
	// rest is what no exception covers; tunneled and blocked are what packets that no special rule takes do.
	rest := ranges.Of(n)
	var tunneled, blocked ranges.Set
	var tunnels []aspect
	leaking, whole := false, true
	for _, a := range pieces {
		switch {
		case a.state == Tunneled:
			tunneled = tunneled.Union(a.to)
			tunnels = append(tunnels, a)
			continue
		case a.state == Blocked && !a.shadow:
			blocked = blocked.Union(a.to)
			out.Cause = a.cause
			whole = false
			continue
		}
		out.Exceptions = append(out.Exceptions, a.exceptions()...)
		leaking = leaking || a.state == Leaking
		if !a.some {
			rest = rest.Minus(a.to)
			whole = whole && a.state == Allowed
		}
	}
	switch {
	case leaking:
		out.State = Leaking
	case !rest.Empty() && rest.Minus(tunneled).Empty():
		out.State = Tunneled
	default:
		for _, t := range tunnels {
			out.Exceptions = append(out.Exceptions, t.exceptions()...)
		}
	}
	if out.State == Tunneled {
		out.Interface, out.Cause = through(tunnels), tunnels[0].cause
	}
	out.Whole = whole && out.State == Tunneled
	slices.SortStableFunc(out.Exceptions, func(a, b Exception) int { return a.CIDR.Compare(b.CIDR) })
	return out
}

// through names the tunnels that carry a network, each once.
func through(tunnels []aspect) string {
	var names []string
	for _, t := range tunnels {
		if !slices.Contains(names, t.link) {
			names = append(names, t.link)
		}
	}
	return strings.Join(names, ",")
}

func (a aspect) exceptions() []Exception {
	var out []Exception
	for _, p := range a.to.Prefixes() {
		out = append(out, Exception{CIDR: p, State: a.state, Interface: a.link, Cause: a.cause})
	}
	return out
}
