// Package ranges computes with sets of IP addresses held as sorted, disjoint ranges.
//
// The verdicts need exact answers for whole prefixes with ten thousand networks on either side, so every operation
// here is one linear sweep over both operands.
package ranges

import (
	"net/netip"
	"slices"
	"sort"

	"go4.org/netipx"
)

// Set is a set of addresses: ranges that are sorted, disjoint and never adjacent. IPv4 sorts before IPv6 and the two never
// share a range, so one Set can hold both. The zero value is the empty set. Sets are values: no operation changes its
// operands.
type Set []netipx.IPRange

// Of returns the addresses of all the prefixes. Host bits do not matter.
func Of(prefixes ...netip.Prefix) Set {
	all := make(Set, 0, len(prefixes))
	for _, p := range prefixes {
		all = append(all, netipx.RangeOfPrefix(p))
	}
	return normalise(all)
}

// Near is Of for those prefixes alone that reach into the span from the set's first address to its last: asked about one network of
// ten thousand, nobody needs the others.
func (s Set) Near(prefixes []netip.Prefix) Set {
	if s.Empty() {
		return nil
	}
	near := make(Set, 0, min(len(prefixes), len(s)))
	for _, p := range prefixes {
		if s.Spans(p) {
			near = append(near, netipx.RangeOfPrefix(p))
		}
	}
	return normalise(near)
}

// Spans reports whether some address of p lies between the set's first and its last.
func (s Set) Spans(p netip.Prefix) bool {
	return len(s) > 0 && !s[len(s)-1].To().Less(p.Masked().Addr()) && !netipx.PrefixLastIP(p).Less(s[0].From())
}

// Overlapping returns those prefixes of a sorted, disjoint list that have an address in common with p, as a part of the list itself.
func Overlapping(list []netip.Prefix, p netip.Prefix) []netip.Prefix {
	last := netipx.PrefixLastIP(p)
	from := sort.Search(len(list), func(i int) bool { return !netipx.PrefixLastIP(list[i]).Less(p.Masked().Addr()) })
	to := from
	for to < len(list) && !last.Less(list[to].Addr()) {
		to++
	}
	return list[from:to:to]
}

// Join returns the set of ranges that may be in any order, overlap or touch. It takes the slice over.
func Join(all []netipx.IPRange) Set { return normalise(all) }

// normalise sorts ranges and joins those that overlap or touch. Nearly always they are in order already.
func normalise(all Set) Set {
	byStart := func(a, b netipx.IPRange) int { return a.From().Compare(b.From()) }
	if !slices.IsSortedFunc(all, byStart) {
		slices.SortFunc(all, byStart)
	}
	out := all[:0]
	for _, r := range all {
		if n := len(out); n > 0 && touches(out[n-1], r) {
			if out[n-1].To().Less(r.To()) {
				out[n-1] = netipx.IPRangeFrom(out[n-1].From(), r.To())
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

// touches reports whether b, which does not start before a, overlaps a or follows it without a gap.
func touches(a, b netipx.IPRange) bool {
	if a.From().BitLen() != b.From().BitLen() {
		return false
	}
	return !a.To().Less(b.From()) || a.To().Next() == b.From()
}

// Empty reports whether the set has no address.
func (s Set) Empty() bool { return len(s) == 0 }

// Contains reports whether a is in the set.
func (s Set) Contains(a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(s, a, func(r netipx.IPRange, a netip.Addr) int { return r.From().Compare(a) })
	if found {
		return true
	}
	return i > 0 && s[i-1].Contains(a)
}

// Union returns the addresses that are in s or in t.
func (s Set) Union(t Set) Set {
	switch {
	case t.Empty():
		return s
	case s.Empty(), slices.Equal(s, t):
		return t
	}
	return normalise(slices.Concat(s, t))
}

// Intersect returns the addresses that are in both s and t.
func (s Set) Intersect(t Set) Set {
	switch {
	case t.covers(s), slices.Equal(s, t): // as the members of an IP set are the networks asked about
		return s
	case s.covers(t):
		return t
	}
	out := make(Set, 0, max(len(s), len(t)))
	for i, j := 0, 0; i < len(s) && j < len(t); {
		from, to := later(s[i].From(), t[j].From()), earlier(s[i].To(), t[j].To())
		if !to.Less(from) && from.BitLen() == to.BitLen() {
			out = append(out, netipx.IPRangeFrom(from, to))
		}
		if s[i].To().Less(t[j].To()) {
			i++
		} else {
			j++
		}
	}
	return out
}

// covers reports whether s is one range that holds all of t, as the selector of a rule nearly always does.
func (s Set) covers(t Set) bool {
	return len(s) == 1 && len(t) > 0 && s[0].Contains(t[0].From()) && s[0].Contains(t[len(t)-1].To())
}

// Minus returns the addresses that are in s but not in t.
func (s Set) Minus(t Set) Set {
	switch {
	case t.Empty():
		return s
	case slices.Equal(s, t):
		return nil
	}
	out := make(Set, 0, len(s))
	j := 0
	for _, r := range s {
		from, done := r.From(), false
		for j < len(t) && t[j].To().Less(from) {
			j++
		}
		for k := j; !done && k < len(t) && !r.To().Less(t[k].From()); k++ {
			if from.Less(t[k].From()) {
				out = append(out, netipx.IPRangeFrom(from, t[k].From().Prev()))
			}
			done = !t[k].To().Less(r.To())
			from = t[k].To().Next()
		}
		if !done {
			out = append(out, netipx.IPRangeFrom(from, r.To()))
		}
	}
	return out
}

// Prefixes returns the shortest list of prefixes that covers exactly the set, in order.
func (s Set) Prefixes() []netip.Prefix {
	out := make([]netip.Prefix, 0, len(s))
	for _, r := range s {
		// Most ranges are one prefix.
		if p, ok := r.Prefix(); ok {
			out = append(out, p)
		} else {
			out = r.AppendPrefixes(out)
		}
	}
	return out
}

func later(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return b
	}
	return a
}

func earlier(a, b netip.Addr) netip.Addr {
	if a.Less(b) {
		return a
	}
	return b
}

// Overlaps reports whether some address of p is in the set.
func (s Set) Overlaps(p netip.Prefix) bool {
	last := netipx.PrefixLastIP(p)
	i, _ := slices.BinarySearchFunc(s, p.Masked().Addr(), func(r netipx.IPRange, a netip.Addr) int { return r.To().Compare(a) })
	return i < len(s) && !last.Less(s[i].From())
}
