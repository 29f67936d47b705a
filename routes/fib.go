package routes

import (
	"net/netip"
	"slices"
	"sort"

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
}

// newFib sorts the routes of a table. A route whose next hops are all dead is not there for a look-up.
func newFib(s State, family policy.Family, table uint32) *fib {
	var f fib
	best := map[netip.Prefix][]*Route{}
	for i := range s.Routes {
		r := &s.Routes[i]
		switch {
		case r.Family != family || r.Table != table || r.dead():
		case r.TOS != 0 || r.From.IsValid() && r.From.Bits() > 0:
			f.special = append(f.special, r)
		case len(best[r.Dst]) == 0 || r.Metric < best[r.Dst][0].Metric:
			best[r.Dst] = []*Route{r}
		case r.Metric == best[r.Dst][0].Metric:
			best[r.Dst] = append(best[r.Dst], r)
		}
	}
	prefixes := make([]netip.Prefix, 0, len(best))
	for p := range best {
		prefixes = append(prefixes, p)
	}
	f.segments = cut(prefixes, best)
	return &f
}

func (r Route) dead() bool {
	return len(r.Hops) > 0 && !slices.ContainsFunc(r.Hops, func(h Hop) bool { return !h.Dead })
}

// cut sweeps over prefixes, which nest or are disjoint, and returns the ranges in which each is the longest.
func cut(prefixes []netip.Prefix, routes map[netip.Prefix][]*Route) []segment {
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	var out []segment
	var open []netip.Prefix
	var next netip.Addr // the first address not yet given to a segment
	emit := func(to netip.Addr, p netip.Prefix) {
		if next.IsValid() && !to.Less(next) {
			out = append(out, segment{netipx.IPRangeFrom(next, to), routes[p]})
			next = to.Next()
		}
	}
	for _, p := range prefixes {
		for len(open) > 0 && !open[len(open)-1].Overlaps(p) {
			top := open[len(open)-1]
			emit(netipx.PrefixLastIP(top), top)
			open = open[:len(open)-1]
		}
		if len(open) > 0 && next.Less(p.Addr()) {
			emit(p.Addr().Prev(), open[len(open)-1])
		}
		next = p.Addr()
		open = append(open, p)
	}
	for i := len(open) - 1; i >= 0; i-- {
		emit(netipx.PrefixLastIP(open[i]), open[i])
	}
	return out
}

// lookup returns which routes win for the addresses of to. The sets of the answer cover to exactly.
func (f *fib) lookup(to ranges.Set) []hit {
	found := map[*Route]int{}
	var hits []hit
	var covered ranges.Set
	add := func(r netipx.IPRange, routes []*Route) {
		key := routes[0]
		if key.Ours() && key.Type == Blackhole {
			key = nil // all of our blackholes are one answer: there may be ten thousand
		}
		i, seen := found[key]
		if !seen {
			i = len(hits)
			found[key] = i
			hits = append(hits, hit{routes: routes})
		}
		hits[i].to = append(hits[i].to, r)
		covered = append(covered, r)
	}
	for _, want := range to {
		i := sort.Search(len(f.segments), func(i int) bool { return !f.segments[i].To().Less(want.From()) })
		for ; i < len(f.segments) && !want.To().Less(f.segments[i].From()); i++ {
			seg := f.segments[i]
			add(overlap(want, seg.IPRange), seg.routes)
		}
	}
	for i := range hits {
		hits[i].to = joined(hits[i].to)
	}
	if rest := to.Minus(joined(covered)); !rest.Empty() {
		hits = append(hits, hit{to: rest})
	}
	return hits
}

// joined makes a Set of sorted, disjoint ranges that may touch.
func joined(rs ranges.Set) ranges.Set { return ranges.Set(nil).Union(rs) }

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
