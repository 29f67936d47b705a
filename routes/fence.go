package routes

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Fence is the routing layer that should stand: the wanted part of a State.
type Fence struct {
	// Grouped are the interfaces that have to be in Group.
	Grouped []Link
	// Released are interfaces that are in Group and must not be: the VPN's routes would be suppressed.
	Released []Link
	Rules    []Rule
	Routes   []Route
}

// Desired returns the routing fence for a policy in a namespace that has these links.
//
// Per family, whatever the number of networks:
//
//	95: from all fwmark 0x9604/0xffff lookup 9605     only with Replies, see replies.go
//	96: from all lookup main suppress_prefixlength 0 suppress_ifgroup 9604
//	97: from all lookup 9604
//
// What table main sends anywhere but to a fenced interface goes there, so the VPN's route wins whether it is longer,
// equal or shorter than the node network; what is left of the node networks ends in table 9604; all else falls through. The link group catches
// longer routes over a fenced interface, suppress_prefixlength holds the default route even if someone resets the group.
//
// A network that nat OUTPUT translates gets a sink over its blackhole: a blackhole fails the sender's route look-up before nat
// runs (EINVAL), and so would cut the healthy VPN. A sink lets the look-up pass; nat translates and the kernel routes again.
func Desired(p policy.Policy, translations []policy.Translation, s State) Fence {
	var f Fence
	for _, l := range s.Links {
		if p.Role(l.Name) == policy.Tunnel && l.Group == Group {
			f.Released = append(f.Released, l)
		}
	}
	if len(p.Networks) == 0 {
		return f
	}
	f.Grouped = s.Fenced(p)
	for _, family := range policy.Families {
		networks := policy.Only(p.Networks, family)
		if len(networks) == 0 {
			continue
		}
		sink := s.sink(f.Grouped, family)
		f.Rules = append(f.Rules, rulesOf(family)...)
		f.Routes = appendRoutes(f.Routes, family, networks, policy.Only(p.Allow, family))
		f.Routes = append(f.Routes, translated(networks, policy.Only(p.Allow, family), translations, sink)...)
		f.answer(p, family, sink, s)
	}
	return f
}

func rulesOf(family policy.Family) []Rule {
	return []Rule{
		{Family: family, Priority: PriorityMain, Action: ActLookup, Table: TableMain, Protocol: Protocol,
			SuppressPrefix: 0 + 1, SuppressGroup: Group + 1},
		{Family: family, Priority: PriorityFence, Action: ActLookup, Table: Table, Protocol: Protocol},
	}
}

func appendRoutes(out []Route, family policy.Family, networks, allow []netip.Prefix) []Route {
	out = slices.Grow(out, len(networks)+len(allow))
	for _, n := range networks {
		out = append(out, Route{Family: family, Table: Table, Dst: n, Type: Blackhole, Metric: MetricBlackhole, Protocol: Protocol})
	}
	for _, a := range allow {
		out = append(out, Route{Family: family, Table: Table, Dst: a, Type: Throw, Metric: MetricSink, Protocol: Protocol})
	}
	return out
}

// translated returns sinks for the translated parts of the networks and blackholes for what they are translated to.
// Without an address for the sink's source the networks stay blackholed: that cuts the VPN but leaks nothing.
func translated(networks, allow []netip.Prefix, translations []policy.Translation, sink Route) []Route {
	var from, to []netip.Prefix
	for _, t := range translations {
		if policy.FamilyOf(t.From) == sink.Family {
			from, to = append(from, t.From), append(to, t.To)
		}
	}
	if len(from) == 0 {
		return nil
	}
	var out []Route
	// The sets also fold what several translations share. Where a whole part is allowed, its throw has the sink's place.
	for _, part := range ranges.Of(networks...).Intersect(ranges.Of(from...)).Prefixes() {
		if sink.Src.IsValid() && !slices.Contains(allow, part) {
			r := sink
			r.Dst = part
			out = append(out, r)
		}
	}
	for _, image := range ranges.Of(to...).Prefixes() {
		out = append(out, Route{Family: sink.Family, Table: Table, Dst: image, Type: Blackhole, Metric: MetricTranslated, Protocol: Protocol})
	}
	return out
}

// appendNew appends r unless a route with its key is there: an answered network may be translated as well.
func appendNew(routes []Route, r Route) []Route {
	if slices.ContainsFunc(routes, func(o Route) bool { return compare(&o, &r) == 0 }) {
		return routes
	}
	return append(routes, r)
}

// sink returns a route to lo that sends with an address of a fenced interface. Without an explicit source the kernel
// would choose 127.0.0.1, and the translated packet would leave with it.
func (s State) sink(fenced []Link, family policy.Family) Route {
	r := Route{Family: family, Table: Table, Type: Unicast, Metric: MetricSink, Protocol: Protocol}
	for _, l := range s.Links {
		if l.Name == "lo" {
			r.Hops = []Hop{{Link: l.Index}}
		}
	}
	for _, l := range fenced {
		for _, a := range l.Addrs {
			if !r.Src.IsValid() && a.Is4() == (family == policy.IPv4) && a.IsGlobalUnicast() {
				r.Src = a
			}
		}
	}
	return r
}
