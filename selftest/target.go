package selftest

import (
	"net/netip"

	"github.com/routefence/routefence/ranges"
	"go4.org/netipx"
)

// MaxNetworks bounds how many networks are tried when no addresses are given, MaxAddrs how many addresses may be given: a test
// must stay short, and it may leak.
const (
	MaxNetworks = 16
	MaxAddrs    = 32
)

// Target is an address to be tried, with the node network that it is in.
type Target struct {
	Network netip.Prefix
	Addr    netip.Addr
}

// Sample returns up to most of all, evenly chosen, the first and the last among them.
func Sample[T any](all []T, most int) []T {
	if len(all) <= most {
		return all
	}
	out := make([]T, most)
	for i := range out {
		out[i] = all[i*(len(all)-1)/(most-1)]
	}
	return out
}

// Addresses returns which addresses of a network are to be tried: one in its middle and, if part of the network is known to fare
// worse than the rest, one in the first such part. They are the same every time. None is barred, or the first or last of the network.
func Addresses(n netip.Prefix, barred ranges.Set, weak []netip.Prefix) []netip.Addr {
	usable := ranges.Of(n).Minus(barred)
	if n.Bits() < n.Addr().BitLen()-1 {
		usable = usable.Minus(ranges.Of(single(n.Masked().Addr()), single(netipx.PrefixLastIP(n))))
	}
	if usable.Empty() {
		return nil
	}
	out := []netip.Addr{from(usable, middle(n))}
	for _, w := range weak {
		part := usable.Intersect(ranges.Of(w))
		if part.Empty() {
			continue
		}
		if a := from(part, middle(w)); a != out[0] {
			return append(out, a)
		}
	}
	return out
}

// from returns the first address of a set that is not before a, or else the very first.
func from(s ranges.Set, a netip.Addr) netip.Addr {
	for _, r := range s {
		if r.Contains(a) {
			return a
		}
		if a.Less(r.From()) {
			return r.From()
		}
	}
	return s[0].From()
}

// middle returns the first host address of a network's upper half.
func middle(n netip.Prefix) netip.Addr {
	base := n.Masked().Addr()
	if n.Bits() == base.BitLen() {
		return base
	}
	bytes := base.AsSlice()
	bytes[n.Bits()/8] |= 0x80 >> (n.Bits() % 8)
	upper, _ := netip.AddrFromSlice(bytes)
	if next := upper.Next(); n.Contains(next) {
		return next
	}
	return upper
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
