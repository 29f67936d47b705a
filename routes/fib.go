package routes

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"go4.org/netipx"
)

// fib is one routing table of one family, cut into the ranges that longest-prefix match tells apart.
type fib struct {
	segments []segment
	// special are routes that apply to some packets of their prefix only: by type of service or by source. Each stands
	// beside the table: it may win, or may not.
	special []*Route
}

// segment is a range of addresses for which the same routes win.
type segment struct {
	netipx.IPRange
	routes []*Route
}

// hit is the part of a looked-up set that one group of routes wins; it is empty of routes where none matches.
type hit struct {
	to     ranges.Set
	routes []*Route
	// many says that the routes are the first of several blackholes of ours: they are one answer, as there may be ten thousand.
	many bool
}

// newFib sorts the routes of a table, as far as they can matter for the addresses of to. A route whose next hops are all dead is not
// there for a look-up.
func newFib(s State, family policy.Family, table uint32, to ranges.Set) *fib {
	var f fib
	var sorted []*Route
	for i := range s.Routes {
		r := &s.Routes[i]
		switch {
		case r.Family != family || r.Table != table || r.dead() || !to.Spans(r.Dst):
		case r.TOS != 0 || r.From.IsValid() && r.From.Bits() > 0:
			f.special = append(f.special, r)
		default:
			sorted = append(sorted, r)
		}
	}
	byDst := func(a, b *Route) int {
		if c := a.Dst.Compare(b.Dst); c != 0 {
			return c
		}
		return cmp.Compare(a.Metric, b.Metric)
	}
	if !slices.IsSortedFunc(sorted, byDst) { // the kernel lists IPv4 tables in order
		slices.SortStableFunc(sorted, byDst)
	}
	f.segments = cut(sorted)
	return &f
}

func (r *Route) dead() bool {
	return len(r.Hops) > 0 && !slices.ContainsFunc(r.Hops, func(h Hop) bool { return !h.Dead })
}

// cut sweeps over routes in the order of their prefixes, which nest or are disjoint, and returns the ranges in which each
// prefix is the longest. Of the routes to one prefix those with the lowest metric count.
func cut(sorted []*Route) []segment {
	out := make([]segment, 0, len(sorted))
	var open [][]*Route
	var next netip.Addr // the first address not yet given to a segment
	emit := func(to netip.Addr, routes []*Route) {
		if next.IsValid() && !to.Less(next) {
			out = append(out, segment{netipx.IPRangeFrom(next, to), routes})
			next = to.Next()
		}
	}
	closeTop := func() {
		top := open[len(open)-1]
		emit(netipx.PrefixLastIP(top[0].Dst), top)
		open = open[:len(open)-1]
	}
	for len(sorted) > 0 {
		same, best := 1, 1
		for ; same < len(sorted) && sorted[same].Dst == sorted[0].Dst; same++ {
			if sorted[same].Metric == sorted[0].Metric {
				best = same + 1
			}
		}
		dst := sorted[0].Dst
		for len(open) > 0 && !open[len(open)-1][0].Dst.Contains(dst.Addr()) {
			closeTop()
		}
		if len(open) > 0 && next.Less(dst.Addr()) {
			emit(dst.Addr().Prev(), open[len(open)-1])
		}
		next = dst.Addr()
		open = append(open, sorted[:best])
		sorted = sorted[same:]
	}
	for len(open) > 0 {
		closeTop()
	}
	return out
}

// one is the answer where nothing divides the addresses of to: none or one of the segments, such as that of the default route, reaches
// from the first of them to the last.
func (f *fib) one(to ranges.Set) (hit, bool) {
	if to.Empty() {
		return hit{}, false
	}
	first, last := to[0].From(), to[len(to)-1].To()
	for _, seg := range f.segments {
		switch {
		case seg.To().Less(first):
		case last.Less(seg.From()):
			return hit{to: to}, true
		default:
			return hit{to: to, routes: seg.routes}, !first.Less(seg.From()) && !seg.To().Less(last)
		}
	}
	return hit{to: to}, true
}

// lookup returns which routes win for the addresses of to. The sets of the answer cover to exactly.
func (f *fib) lookup(to ranges.Set) []hit {
	if all, ok := f.one(to); ok {
		return []hit{all}
	}
	found := map[*Route]int{}
	var hits []hit
	add := func(r netipx.IPRange, routes []*Route) {
		key := routes[0]
		if key.Ours() && key.Type == Blackhole {
			key = nil
		}
		i, seen := found[key]
		if !seen {
			i = len(hits)
			found[key] = i
			hits = append(hits, hit{routes: routes})
			if key == nil {
				hits[i].to = make(ranges.Set, 0, len(to))
			}
		}
		hits[i].to = append(hits[i].to, r)
		hits[i].many = hits[i].many || routes[0] != hits[i].routes[0]
	}
	var rest []netipx.IPRange // what no route matches
	i := 0
	for _, want := range to {
		for i < len(f.segments) && f.segments[i].To().Less(want.From()) {
			i++
		}
		next, done := want.From(), false
		for j := i; !done && j < len(f.segments) && !want.To().Less(f.segments[j].From()); j++ {
			part := overlap(want, f.segments[j].IPRange)
			if next.Less(part.From()) {
				rest = append(rest, netipx.IPRangeFrom(next, part.From().Prev()))
			}
			add(part, f.segments[j].routes)
			done = part.To() == want.To()
			next = part.To().Next()
		}
		if !done {
			rest = append(rest, netipx.IPRangeFrom(next, want.To()))
		}
	}
	for i := range hits {
		hits[i].to = ranges.Join(hits[i].to)
	}
	if len(rest) > 0 {
		hits = append(hits, hit{to: ranges.Join(rest)})
	}
	return hits
}

func overlap(a, b netipx.IPRange) netipx.IPRange {
	from, to := a.From(), a.To()
	if from.Less(b.From()) {
		from = b.From()
	}
	if b.To().Less(to) {
		to = b.To()
	}
	return netipx.IPRangeFrom(from, to)
}
