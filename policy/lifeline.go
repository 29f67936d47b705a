package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/routefence/routefence/ranges"
)

// Lifeline is an address that the pod itself lives by: its own, its gateway, its DNS server, its API server, its VPN's other end.
type Lifeline struct {
	Addr netip.Addr
	// Name says what it is, as in "DNS server".
	Name string
}

func (l Lifeline) prefix() netip.Prefix { return netip.PrefixFrom(l.Addr, l.Addr.BitLen()) }

// Keep returns the policy that leaves exactly those lifelines reachable which lie inside its networks. A node network typed
// too wide must not cut the pod's DNS and everything with it (cilium/cilium#16147).
func (p Policy) Keep(lifelines []Lifeline) Policy {
	p.Lifelines = nil
	allowed := p.Allow
	for _, l := range lifelines {
		if contains(p.Networks, l.Addr) && !contains(allowed, l.Addr) && !slices.ContainsFunc(p.Lifelines, func(o Lifeline) bool { return o.Addr == l.Addr }) {
			p.Lifelines = append(p.Lifelines, l)
			p.Allow = append(p.Allow[:len(p.Allow):len(p.Allow)], l.prefix())
		}
	}
	p.Allow = ranges.Of(p.Allow...).Prefixes()
	return p
}

// contains reports whether an address is in one of the prefixes of a canonical list, of which there may be ten thousand.
func contains(canonical []netip.Prefix, a netip.Addr) bool {
	i, found := slices.BinarySearchFunc(canonical, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	return found || i > 0 && canonical[i-1].Contains(a)
}

// Refuse returns the policy without the networks that hold a lifeline, and an error for each of those.
func (p Policy) Refuse(lifelines []Lifeline) (Policy, []error) {
	var kept []netip.Prefix
	var refused []error
	for _, n := range p.Networks {
		var held []string
		for _, l := range lifelines {
			if what := l.Name + " " + l.Addr.String(); n.Contains(l.Addr) && !slices.Contains(held, what) {
				held = append(held, what)
			}
		}
		if len(held) == 0 {
			kept = append(kept, n)
			continue
		}
		refused = append(refused, &InvalidNetworkError{n.String(),
			fmt.Errorf("holds the pod's %s and is not fenced, as --lifelines=refuse asks", strings.Join(held, ", "))})
	}
	p.Networks = kept
	p.Allow = ranges.Of(p.Allow...).Intersect(ranges.Of(kept...)).Prefixes()
	return p, refused
}
