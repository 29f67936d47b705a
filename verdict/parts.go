package verdict

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"go4.org/netipx"
)

// split deals the aspects out to the networks, which are sorted and disjoint. Each aspect is gone through once, so ten thousand
// networks under one blackhole cost ten thousand steps, not their square.
func split(networks []netip.Prefix, aspects []aspect) [][]aspect {
	out := make([][]aspect, len(networks))
	// Most pieces are one range of one aspect: parts of two long lists are cheaper than as many short ones.
	var ranged []netipx.IPRange
	var single []aspect
	for _, a := range aspects {
		// An aspect has about as many pieces as ranges, or as networks if it has few.
		ranged, single = slices.Grow(ranged, len(a.to)), slices.Grow(single, len(a.to))
		i, last := 0, -1
		for _, r := range a.to {
			for i < len(networks) && netipx.PrefixLastIP(networks[i]).Less(r.From()) {
				i++
			}
			for j := i; j < len(networks) && !r.To().Less(networks[j].Addr()); j++ {
				part := clip(r, networks[j])
				if j == last {
					p := &out[j][len(out[j])-1]
					p.to = append(p.to, part)
					continue
				}
				last = j
				ranged = append(ranged, part)
				piece := a
				piece.to = ranges.Set(ranged[len(ranged)-1 : len(ranged) : len(ranged)])
				if len(out[j]) > 0 {
					out[j] = append(out[j], piece)
					continue
				}
				single = append(single, piece)
				out[j] = single[len(single)-1 : len(single) : len(single)]
			}
		}
	}
	return out
}

func clip(r netipx.IPRange, p netip.Prefix) netipx.IPRange {
	from, to := r.From(), r.To()
	if from.Less(p.Addr()) {
		from = p.Addr()
	}
	if last := netipx.PrefixLastIP(p); last.Less(to) {
		to = last
	}
	return netipx.IPRangeFrom(from, to)
}

// translate replaces, for networks that nat OUTPUT rewrites, what happens to the original address by what happens to the
// translated one: that is the address which is really dialled. What leaks without translation still counts.
func (j join) translate(aspects []aspect, all ranges.Set, translations []policy.Translation) []aspect {
	var from, to []netip.Prefix
	for _, t := range translations {
		if policy.FamilyOf(t.From) == j.family && all.Overlaps(t.From) {
			from, to = append(from, t.From), append(to, image(t.From, t))
		}
	}
	if len(from) == 0 {
		return aspects
	}
	replaced := ranges.Of(from...).Intersect(all)
	var out []aspect
	for _, a := range aspects {
		if a.state == Blocked || a.state == Tunneled {
			a.to = a.to.Minus(replaced)
		}
		if !a.to.Empty() {
			out = append(out, a)
		}
	}
	// Several networks, or several translations of one, may share where they lead: all images are asked about at once.
	images := j.aspects(ranges.Of(to...))
	for _, t := range translations {
		if policy.FamilyOf(t.From) != j.family || !all.Overlaps(t.From) {
			continue
		}
		from, to := ranges.Of(t.From).Intersect(all), ranges.Of(image(t.From, t))
		for _, a := range images {
			a.to = preimage(a.to.Intersect(to), t).Intersect(from)
			a.cause = "translated to " + t.To.String() + ": " + a.cause
			if !a.to.Empty() {
				out = append(out, a)
			}
		}
	}
	return out
}

// image returns what a translation makes of its part of a network. NETMAP keeps the host bits; with any other
// target every address may become any of To.
func image(n netip.Prefix, t policy.Translation) netip.Prefix {
	if n.Bits() <= t.From.Bits() || t.From.Bits() != t.To.Bits() {
		return t.To
	}
	return netip.PrefixFrom(move(n.Addr(), t.From, t.To), n.Bits()).Masked()
}

// preimage returns the addresses that a translation may turn into those of to.
func preimage(to ranges.Set, t policy.Translation) ranges.Set {
	if to.Empty() {
		return nil
	}
	if t.From.Bits() != t.To.Bits() {
		return ranges.Of(t.From)
	}
	var out []netip.Prefix
	for _, p := range to.Prefixes() {
		out = append(out, netip.PrefixFrom(move(p.Addr(), t.To, t.From), p.Bits()))
	}
	return ranges.Of(out...)
}

// move carries an address from one prefix into another of the same length, keeping its host bits.
func move(a netip.Addr, from, to netip.Prefix) netip.Addr {
	host, network := a.AsSlice(), to.Addr().AsSlice()
	for i := range host {
		bits := min(max(from.Bits()-8*i, 0), 8)
		mask := byte(0xff << (8 - bits))
		host[i] = network[i]&mask | host[i]&^mask
	}
	moved, _ := netip.AddrFromSlice(host)
	return moved
}
