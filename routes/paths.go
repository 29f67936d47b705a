package routes

import (
	"fmt"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Fate is what routing does with a packet.
type Fate uint8

const (
	// Nowhere: no route, or one that rejects. A socket bound to an interface is sent there all the same ("then it must be
	// on-link"), which is why routing alone is no fence.
	Nowhere Fate = iota
	// Here: the address is one of the namespace's own.
	Here
	// Device: it is sent to an interface.
	Device
)

// Path is where routing sends packets for some addresses.
type Path struct {
	To   ranges.Set
	Fate Fate
	// Link is the interface of Fate Device; its Name is "" where the kernel did not tell.
	Link Link
	// Only names the rule or route that sends just some packets this way (those with a firewall mark, a source, ...); ""
	// where all packets that no such rule takes go this way.
	Only string
	// Rule is the rule that led here, Cause the route or rule that decides.
	Rule, Cause string
	// Reply says that our rule for answers leads here. Who is able to mark packets can take the same way.
	Reply bool
}

// Shadow is a route of someone else to a fenced interface that the fence keeps from being used.
type Shadow struct {
	To    ranges.Set
	Link  Link
	Cause string
}

// Paths returns where routing sends packets for the addresses of to, as rules, tables and links stand. The sets of
// paths without Only cover to exactly, once for every next hop; paths with Only come on top.
func (s State) Paths(f policy.Family, to ranges.Set) ([]Path, []Shadow) {
	w := walk{s: s, family: f, to: to, fibs: map[uint32]*fib{}}
	for _, r := range s.Rules {
		if r.Family == f {
			w.rules = append(w.rules, r)
		}
	}
	w.from(0, to, "")
	return w.paths, w.shadows
}

// walk is one traversal of a family's rules.
type walk struct {
	s       State
	family  policy.Family
	to      ranges.Set // all that is asked about
	rules   []Rule
	fibs    map[uint32]*fib
	paths   []Path
	shadows []Shadow
	gotos   int
}

// from walks the rules from the i-th on for packets to the addresses of to that meet the condition only.
func (w *walk) from(i int, to ranges.Set, only string) {
	for ; i < len(w.rules) && !to.Empty(); i++ {
		r := w.rules[i]
		match := to
		if r.Dst.IsValid() && !r.Invert {
			match = to.Intersect(ranges.Of(r.Dst))
		}
		if match.Empty() {
			continue
		}
		condition := only
		if r.conditional() {
			condition = "rule " + r.String()
		}
		before := len(w.paths)
		taken := w.apply(r, match, condition)
		for i := range w.paths[before:] {
			w.paths[before+i].Reply = w.paths[before+i].Reply || r.Answers()
		}
		if !r.conditional() {
			to = to.Minus(taken)
		}
	}
	if !to.Empty() {
		w.paths = append(w.paths, Path{To: to, Fate: Nowhere, Only: only, Cause: "no route"})
	}
}

// conditional reports whether the rule takes only some of the packets to an address. An inverted rule with a destination
// takes those to other addresses, which is not worked out here: it may take any.
func (r Rule) conditional() bool {
	return r.Src.IsValid() || r.IIF != "" || r.OIF != "" || r.Mark != 0 || r.Mask != 0 || r.TOS != 0 || r.More != "" || r.Invert
}

// apply lets a rule decide about packets to match and returns those it decided.
func (w *walk) apply(r Rule, match ranges.Set, only string) ranges.Set {
	switch r.Action {
	case ActLookup:
		return w.lookup(r, match, only)
	case ActGoto:
		return w.jump(r, match, only)
	case ActNop:
		return nil
	}
	w.paths = append(w.paths, Path{To: match, Fate: Nowhere, Only: only, Rule: r.String(), Cause: "rule " + r.String()})
	return match
}

// maxGotos bounds the walk: every conditional goto doubles it.
const maxGotos = 64

// jump goes on at the rule that a goto names. One whose target is missing does nothing, as in the kernel.
func (w *walk) jump(r Rule, match ranges.Set, only string) ranges.Set {
	i := slices.IndexFunc(w.rules, func(target Rule) bool { return target.Priority == r.Goto })
	if i < 0 || r.Goto <= r.Priority {
		return nil
	}
	if w.gotos++; w.gotos > maxGotos {
		w.paths = append(w.paths, Path{To: match, Fate: Device, Only: only, Cause: "rule " + r.String() + " (too many goto rules to follow)"})
		return match
	}
	w.from(i, match, only)
	return match
}

func (w *walk) lookup(r Rule, match ranges.Set, only string) ranges.Set {
	f := w.fibs[r.Table]
	if f == nil {
		f = newFib(w.s, w.family, r.Table, w.to)
		w.fibs[r.Table] = f
	}
	for _, special := range f.special {
		if part := match.Intersect(ranges.Of(special.Dst)); !part.Empty() {
			w.emit(r, hit{to: part, routes: []*Route{special}}, "route "+w.s.Describe(*special))
		}
	}
	var taken ranges.Set
	for _, h := range f.lookup(match) {
		if len(h.routes) > 0 && w.emit(r, h, only) {
			taken = taken.Union(h.to)
		}
	}
	return taken
}

// emit records where a rule's look-up sends packets, and reports false if they go on to the next rule.
func (w *walk) emit(r Rule, h hit, only string) bool {
	first := h.routes[0]
	if first.Type == Throw {
		return false
	}
	if w.family == policy.IPv6 && len(first.Hops) > 1 && w.someHopSuppressed(r, *first) {
		// IPv6 chooses a hop and then looks at that one: some packets go on to the next rule.
		w.shadow(r, h)
		return false
	}
	if w.suppressed(r, *first) {
		w.shadow(r, h)
		return false
	}
	before := len(w.paths)
	defer func() {
		for i := range w.paths[before:] {
			p := &w.paths[before+i]
			if p.Rule = r.String(); h.many {
				p.Cause = "blackhole routes of table " + tableName(first.Table)
			}
		}
	}()
	for i, route := range h.routes {
		if i > 0 && only == "" {
			only = "equal route " + w.s.Describe(*route)
		}
		w.record(*route, h.to, only)
	}
	return true
}

// suppressed tells whether the rule refuses the route it found. The kernel looks at the first next hop only (fib4_rule_suppress),
// so a multipath route whose second one is fenced gets through here; and a route that rejects is never suppressed.
func (w *walk) suppressed(r Rule, route Route) bool {
	if route.Type >= Blackhole {
		return false
	}
	if r.SuppressPrefix != 0 && route.Dst.Bits() <= int(r.SuppressPrefix-1) {
		return true
	}
	if r.SuppressGroup == 0 || len(route.Hops) == 0 {
		return false
	}
	link, ok := w.s.Link(route.Hops[0].Link)
	return ok && link.Group == r.SuppressGroup-1
}

// someHopSuppressed tells whether the rule refuses the route for the packets that get one of its hops.
func (w *walk) someHopSuppressed(r Rule, route Route) bool {
	for _, hop := range route.Hops {
		one := route
		one.Hops = []Hop{hop}
		if !hop.Dead && w.suppressed(r, one) {
			return true
		}
	}
	return false
}

// shadow notes a suppressed route, unless it is a default route: every namespace has one of those.
func (w *walk) shadow(r Rule, h hit) {
	for _, route := range h.routes {
		if route.Dst.Bits() == 0 || !r.Ours() || len(route.Hops) == 0 {
			continue
		}
		link, _ := w.s.Link(route.Hops[0].Link)
		w.shadows = append(w.shadows, Shadow{To: h.to, Link: link, Cause: "route " + w.s.Describe(*route)})
	}
}

func (w *walk) record(route Route, to ranges.Set, only string) {
	p := Path{To: to, Only: only, Cause: "route " + w.s.Describe(route)}
	switch {
	case route.Type == Local || route.Type == Anycast:
		p.Fate = Here
	case route.Type >= Blackhole && route.Type <= Throw: // it goes nowhere
	case len(route.Hops) == 0:
		// A route that names no device may use any: say so instead of guessing.
		p.Fate = Device
		p.Cause += " (its device is not known: a nexthop object without net.ipv4.nexthop_compat_mode)"
	default:
		w.recordHops(p, route)
		return
	}
	w.paths = append(w.paths, p)
}

func (w *walk) recordHops(p Path, route Route) {
	p.Fate = Device
	for i, h := range route.Hops {
		if h.Dead {
			continue
		}
		p.Link, _ = w.s.Link(h.Link)
		hop := p
		if len(route.Hops) > 1 && i > 0 && p.Only == "" {
			// Each flow takes one of the hops; the others are paths on top, or the set would be covered twice.
			hop.Only = fmt.Sprintf("next hop %d of %s", i+1, p.Cause)
		}
		w.paths = append(w.paths, hop)
	}
}
