package routes

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// answer adds to a fence what lets the answers through to connections that came in over a fenced interface.
//
// The sender of an answer looks up a route before the firewall can mark the packet, so a blackhole would end it: a sink lets that
// look-up pass. Once the packet is marked the kernel looks again, and rule 95 finds the way back. That is not table main, where the
// VPN may have a route to the very same address: an answer must leave where the question came in.
//
// Without an address for the sink's source the networks stay blackholed: that answers nobody and leaks nothing.
func (f *Fence) answer(p policy.Policy, family policy.Family, sink Route, s State) {
	replies := policy.Only(p.Replies, family)
	if len(replies) == 0 || !sink.Src.IsValid() {
		return
	}
	allowed := ranges.Of(policy.Only(p.Allow, family)...)
	for _, part := range replies {
		if !ranges.Of(part).Minus(allowed).Empty() { // else it would stand in the way of --allow
			r := sink
			r.Dst = part
			f.Routes = appendNew(f.Routes, r)
		}
	}
	f.Routes = append(f.Routes, s.wayBack(family, replies, f.Grouped)...)
	f.Rules = append(f.Rules, Rule{Family: family, Priority: PriorityReplies, Action: ActLookup, Table: TableReplies, Protocol: Protocol,
		Mark: policy.ReplyMark, Mask: policy.ReplyMask})
}

// wayBack returns the routes of table main over fenced interfaces, as far as they matter for the networks.
func (s State) wayBack(family policy.Family, networks []netip.Prefix, fenced []Link) []Route {
	best := map[netip.Prefix]uint32{}
	var out []Route
	for _, r := range s.Routes {
		if r.Family != family || r.Table != TableMain || r.TOS != 0 || r.From.IsValid() && r.From.Bits() > 0 ||
			!slices.ContainsFunc(networks, r.Dst.Overlaps) {
			continue
		}
		hop, found := r.hopBy(fenced)
		metric, seen := best[r.Dst]
		if !found || seen && metric <= r.Metric {
			continue
		}
		best[r.Dst] = r.Metric
		out = slices.DeleteFunc(out, func(o Route) bool { return o.Dst == r.Dst })
		out = append(out, Route{Family: family, Table: TableReplies, Dst: r.Dst, Type: Unicast, Metric: MetricSink, Protocol: Protocol,
			Hops: []Hop{{Link: hop.Link, Gateway: hop.Gateway}}})
	}
	return out
}

// hopBy returns the first next hop that leads by one of some links.
func (r Route) hopBy(links []Link) (Hop, bool) {
	if r.Type != Unicast {
		return Hop{}, false
	}
	for _, h := range r.Hops {
		if !h.Dead && slices.ContainsFunc(links, func(l Link) bool { return l.Index == h.Link }) {
			return h, true
		}
	}
	return Hop{}, false
}

// Answers reports whether the rule is ours for answers to connections that came in.
func (r Rule) Answers() bool { return r.Ours() && r.Priority == PriorityReplies }
