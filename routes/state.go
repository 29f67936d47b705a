// Package routes decides what the routing fence consists of, how it differs from what the kernel has, and where the
// kernel's routing sends every address of a prefix.
//
// It is pure: package rtnl reads and writes the kernel.
package routes

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
)

// The marks by which an operator recognises the routing fence and cleanup finds it without memory.
const (
	// Table holds nothing but the fence: one blackhole per node network.
	Table uint32 = 9604
	// TableReplies holds the way back for connections that came in over a fenced interface.
	TableReplies uint32 = 9605
	// Group is the link group of every fenced interface.
	Group uint32 = 9604
	// Protocol is the origin of our routes and rules, as rtnetlink's RTPROT_* numbers go (96 is unassigned).
	Protocol uint8 = 96
	// PriorityReplies, PriorityMain and PriorityFence are the preferences of the rules.
	PriorityReplies uint32 = 95
	PriorityMain    uint32 = 96
	PriorityFence   uint32 = 97
	// MetricBlackhole is explicit because an IPv6 route added without a metric comes back with 1024, and a comparison
	// with what was asked for would then never match (nmstate/nmstate#3160, FR-16).
	MetricBlackhole uint32 = 2048
	// MetricTranslated is that of the blackhole for what node networks are translated to. It tells that range from a node network
	// when a later process adopts the fence.
	MetricTranslated uint32 = 3072
	// MetricSink is lower, so that a sink wins over the blackhole of the same network while it is there.
	MetricSink uint32 = 1024
)

// protocolKernel is the origin of the routes that the kernel makes for the addresses of an interface (RTPROT_KERNEL).
const protocolKernel uint8 = 2

// The kernel's numbers for its own tables.
const (
	TableDefault uint32 = 253
	TableMain    uint32 = 254
	TableLocal   uint32 = 255
)

// State is the routing of one network namespace as read back from the kernel.
type State struct {
	Links []Link
	// Rules are in the order in which the kernel consults them, IPv4 and IPv6 mixed.
	Rules []Rule
	// Routes are those of every table but the cache.
	Routes []Route
}

// Link is a network interface.
type Link struct {
	Index int
	Name  string
	Group uint32
	// Up says that the interface is administratively up and has a carrier: what is sent there leaves.
	Up bool
	// Saved is the group the link had before the fence took it, or nil. It is kept in the kernel as an alternative name of
	// the link, because cleanup has no other memory.
	Saved *uint32
	// Addrs are the interface's own addresses.
	Addrs []netip.Addr
	// Lower is the index of the link that this one sends by (a macvlan, a vlan, a tunnel), Master that of the bridge or bond that it is
	// a port of, or 0.
	Lower, Master int
	// Twin is the index of the other end of a veth pair, if that is in this namespace too: what is sent here comes in there.
	Twin int
	// Kind is the kernel's word for what the link is, such as macvlan.
	Kind string
	// Outer and Peer are the outer addresses of a tunnel, its own and that of its other end, where the kernel knows them.
	Outer, Peer netip.Addr
}

// Action is what a rule does with a packet it selects.
type Action uint8

// The kernel's actions (FR_ACT_*).
const (
	ActLookup      Action = 1
	ActGoto        Action = 2
	ActNop         Action = 3
	ActBlackhole   Action = 6
	ActUnreachable Action = 7
	ActProhibit    Action = 8
)

// Rule is a policy routing rule. It is comparable, and equal rules behave alike.
type Rule struct {
	Family   policy.Family
	Priority uint32
	Action   Action
	Table    uint32
	Goto     uint32
	// Src and Dst are zero where the rule has no such selector.
	Src, Dst   netip.Prefix
	IIF, OIF   string
	Mark, Mask uint32
	TOS        uint8
	Invert     bool
	// More names further selectors that the verdict need not understand, as ip prints them: "uidrange 1000-1000".
	More string
	// SuppressPrefix and SuppressGroup are one more than the kernel's value, so that zero means none.
	SuppressPrefix, SuppressGroup uint32
	Protocol                      uint8
}

// Type is a route's type.
type Type uint8

// The kernel's route types (RTN_*).
const (
	Unicast     Type = 1
	Local       Type = 2
	Broadcast   Type = 3
	Anycast     Type = 4
	Multicast   Type = 5
	Blackhole   Type = 6
	Unreachable Type = 7
	Prohibit    Type = 8
	Throw       Type = 9
)

// Route is one route of one table.
type Route struct {
	Family policy.Family
	Table  uint32
	Dst    netip.Prefix
	Type   Type
	Metric uint32
	// Protocol is the route's origin (RTPROT_*).
	Protocol uint8
	TOS      uint8
	// From is the source prefix of a source-specific IPv6 route.
	From netip.Prefix
	// Src is the preferred source address.
	Src  netip.Addr
	Hops []Hop
}

// Hop is one of a route's next hops.
type Hop struct {
	// Link is an interface index, 0 where the kernel did not tell (a nexthop object without compatibility mode).
	Link    int
	Gateway netip.Addr
	// Dead hops are never chosen.
	Dead bool
}

// Ours reports whether the route is one that this program adds.
func (r *Route) Ours() bool {
	return (r.Table == Table || r.Table == TableReplies) && r.Protocol == Protocol
}

// Ours reports whether the rule is one that this program adds.
func (r Rule) Ours() bool {
	return r.Protocol == Protocol && r.Priority >= PriorityReplies && r.Priority <= PriorityFence
}

// Link returns the interface with the given index.
func (s State) Link(index int) (Link, bool) {
	for _, l := range s.Links {
		if l.Index == index {
			return l, true
		}
	}
	return Link{}, false
}

// Fenced returns the present interfaces that node traffic must not leave by: those the policy names, and those that are
// in the fence's link group although it no longer names them. A renamed eth0 stays fenced that way (FR-20: a firewall rule for a
// name goes quiet when the name changes). What is stacked on one of them, and is no tunnel, leaves by it and counts as well.
func (s State) Fenced(p policy.Policy) []Link {
	fenced := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, l := range s.Links {
			if !fenced[l.Index] && s.isFenced(p, l, fenced) {
				fenced[l.Index], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool { return !fenced[l.Index] })
}

// isFenced judges one link, given those that are known to be fenced.
func (s State) isFenced(p policy.Policy, l Link, known map[int]bool) bool {
	switch role := p.Role(l.Name); {
	case role != policy.Other || l.Name == "lo":
		return role == policy.Fenced
	case l.Group == Group:
		return true
	}
	return s.over(l, known)
}

// plain are the kinds of links that send packets as they are given. A tunnel wraps them up.
var plain = []string{"macvlan", "macvtap", "ipvlan", "ipvtap", "vlan", "bridge", "bond", "team"}

// over reports whether a link sends by one of those known: it is stacked on it, or has it as a port, or its packets come in at a port of it.
func (s State) over(l Link, known map[int]bool) bool {
	return known[l.Lower] || slices.ContainsFunc(s.Links, func(other Link) bool {
		return other.Master == l.Index && known[other.Index] || other.Index == l.Twin && known[other.Master]
	})
}

// Posing returns the links that count as tunnels by their names, and send by a fenced interface what they are given, as it is.
func (s State) Posing(p policy.Policy) []Link {
	fenced := map[int]bool{}
	for _, l := range s.Fenced(p) {
		fenced[l.Index] = true
	}
	return slices.DeleteFunc(slices.Clone(s.Links), func(l Link) bool {
		return p.Role(l.Name) != policy.Tunnel || !slices.Contains(plain, l.Kind) || !s.over(l, fenced)
	})
}

// Adopted returns the networks that the fence in the kernel holds: what an earlier process of ours left standing.
func (s State) Adopted() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range s.Routes {
		if r.Ours() && r.Type == Blackhole && r.Metric != MetricTranslated {
			out = append(out, r.Dst)
		}
	}
	return out
}

// Translating returns translations that the fence in the kernel is made for. Which network becomes which is not told there, only what all
// of them are and what they become, and nothing else matters to the routes.
func (s State) Translating() []policy.Translation {
	images := map[policy.Family][]netip.Prefix{}
	for _, r := range s.Routes {
		if r.Ours() && r.Type == Blackhole && r.Metric == MetricTranslated {
			images[r.Family] = append(images[r.Family], r.Dst)
		}
	}
	var out []policy.Translation
	for _, r := range s.Routes {
		if r.Ours() && r.Table == Table && r.Type == Unicast {
			for _, to := range images[r.Family] {
				out = append(out, policy.Translation{From: r.Dst, To: to})
			}
		}
	}
	return out
}

// Allowed returns the addresses that the fence in the kernel leaves out.
func (s State) Allowed() []netip.Prefix {
	var out []netip.Prefix
	for _, r := range s.Routes {
		if r.Ours() && r.Type == Throw {
			out = append(out, r.Dst)
		}
	}
	return out
}

// OnLink returns the networks that the fenced interfaces are on: those of their addresses, as the kernel made routes for them.
func (s State) OnLink(p policy.Policy) []netip.Prefix {
	fenced := s.Fenced(p)
	var out []netip.Prefix
	for _, r := range s.Routes {
		if r.Table == TableMain && r.Protocol == protocolKernel && r.Dst.Bits() > 0 {
			if _, on := r.hopBy(fenced); on {
				out = append(out, r.Dst)
			}
		}
	}
	return out
}

// DefaultLinks returns the names of the interfaces that default routes of table main leave by.
func (s State) DefaultLinks() []string {
	var out []string
	for _, r := range s.Routes {
		if r.Table != TableMain || r.Type != Unicast || r.Dst.Bits() != 0 {
			continue
		}
		for _, h := range r.Hops {
			if l, ok := s.Link(h.Link); ok && !slices.Contains(out, l.Name) {
				out = append(out, l.Name)
			}
		}
	}
	return out
}

// Lifelines returns what the pod lives by on its fenced interfaces: their addresses, the gateways of their default routes, and the
// other ends of tunnels that run over them. A gateway of some other route is no lifeline: a foreign route by a node's address must not
// open that node.
func (s State) Lifelines(p policy.Policy) []policy.Lifeline {
	var out []policy.Lifeline
	for _, l := range s.Fenced(p) {
		for _, a := range l.Addrs {
			out = append(out, policy.Lifeline{Addr: a, Name: "own address on " + l.Name})
		}
		for _, r := range s.Routes {
			for _, h := range r.Hops {
				if h.Link == l.Index && h.Gateway.IsValid() && r.Table == TableMain && r.Dst.Bits() == 0 {
					out = append(out, policy.Lifeline{Addr: h.Gateway, Name: "gateway on " + l.Name})
				}
			}
		}
	}
	return append(out, s.peers(p)...)
}

// peers returns the other ends of the VPN's tunnels that are known to run over fenced interfaces: by the link below, or by their own
// address. Those within another tunnel (bond0-ip6tnl0 over bond0) are reached through that, or not at all.
func (s State) peers(p policy.Policy) []policy.Lifeline {
	fenced := s.Fenced(p)
	var out []policy.Lifeline
	for _, l := range s.Links {
		over := func(f Link) bool {
			return f.Index == l.Lower || l.Lower == 0 && l.Outer.IsValid() && slices.Contains(f.Addrs, l.Outer)
		}
		if p.Role(l.Name) == policy.Tunnel && l.Peer.IsValid() && slices.ContainsFunc(fenced, over) {
			out = append(out, policy.Lifeline{Addr: l.Peer, Name: "other end of tunnel " + l.Name})
		}
	}
	return out
}
