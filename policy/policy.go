// Package policy owns what "fenced" means: which networks must not be reached, which parts of them may, and what role
// each network interface plays. Everything here is a value; nothing touches the kernel.
package policy

import (
	"net/netip"
	"path"
	"slices"

	"github.com/routefence/routefence/ranges"
)

// Family is an address family, numbered as people say it.
type Family uint8

// The two families. All code takes the family as data; nothing is written twice.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families lists both in the order in which they are shown and written.
var Families = []Family{IPv4, IPv6}

func (f Family) String() string {
	if f == IPv4 {
		return "ipv4"
	}
	return "ipv6"
}

// FamilyOf returns the family of a prefix.
func FamilyOf(p netip.Prefix) Family {
	if p.Addr().Is4() {
		return IPv4
	}
	return IPv6
}

// Only returns the prefixes of one family, in their order. Canonical lists have IPv4 in front of IPv6: of those it returns a part
// of the list itself, as a copy of ten thousand for every question would cost more than the answers.
func Only(prefixes []netip.Prefix, f Family) []netip.Prefix {
	ours := func(p netip.Prefix) bool { return FamilyOf(p) == f }
	from := slices.IndexFunc(prefixes, ours)
	if from < 0 {
		return nil
	}
	to := from + 1
	for to < len(prefixes) && ours(prefixes[to]) {
		to++
	}
	if !slices.ContainsFunc(prefixes[to:], ours) {
		return prefixes[from:to:to]
	}
	var out []netip.Prefix
	for _, p := range prefixes {
		if FamilyOf(p) == f {
			out = append(out, p)
		}
	}
	return out
}

// Policy is what must hold in one network namespace. Its lists are canonical: masked, sorted, disjoint, adjacent
// prefixes merged. So equal policies compare equal, and every address is decided by at most one prefix.
type Policy struct {
	// Networks are the node networks. Traffic to them must not leave by a fenced interface.
	Networks []netip.Prefix
	// Allow are parts of Networks that stay reachable.
	Allow []netip.Prefix
	// Lifelines are those of Allow that are there for the pod's own sake; see Keep.
	Lifelines []Lifeline
	// Replies are parts of Networks: connections that come in from there over a fenced interface get their answers, while
	// those that begin here stay fenced. See Answer.
	Replies []netip.Prefix
	// Translated are ranges that nat OUTPUT may translate Networks into. Nothing may leave for there by a fenced interface, whether such
	// a translation has been seen or not. See Expect.
	Translated []netip.Prefix
	// Fenced and Tunnels say which interfaces are which; see Role.
	Fenced, Tunnels Patterns
}

// New returns the policy for the union of networks. What allow holds outside of networks has no meaning and is dropped.
func New(networks, allow []netip.Prefix, fenced, tunnels Patterns) Policy {
	n := ranges.Of(networks...)
	return Policy{
		Networks: n.Prefixes(),
		Allow:    ranges.Of(allow...).Intersect(n).Prefixes(),
		Fenced:   fenced,
		Tunnels:  tunnels,
	}
}

// Within returns the policy for that part of its networks that is in the set.
func (p Policy) Within(s ranges.Set) Policy {
	for _, list := range []*[]netip.Prefix{&p.Networks, &p.Allow, &p.Replies} {
		*list = s.Near(*list).Intersect(s).Prefixes()
	}
	return p
}

// Less returns the policy without what it says about a family.
func (p Policy) Less(f Family) Policy {
	for _, list := range []*[]netip.Prefix{&p.Networks, &p.Allow, &p.Replies, &p.Translated} {
		*list = Except(*list, f)
	}
	return p
}

// Patterns are shell patterns for interface names, as path.Match reads them. ParsePatterns makes them from configuration.
type Patterns []string

// Match reports whether any pattern matches the whole name. A malformed pattern matches nothing; ParsePatterns refuses it
// before it gets here.
func (p Patterns) Match(name string) bool {
	for _, pattern := range p {
		if ok, err := path.Match(pattern, name); err == nil && ok {
			return true
		}
	}
	return false
}

// Role is what an interface is to the fence.
type Role uint8

const (
	// Other interfaces are neither. Node traffic has no business there, and the verdict says so.
	Other Role = iota
	// Fenced interfaces are those by which node traffic must never leave.
	Fenced
	// Tunnel interfaces are the VPN's.
	Tunnel
)

// Role returns the role of an interface. A tunnel pattern beats a fence pattern, so that "--fence-interfaces=*" means all
// but the tunnel; the loopback interface is neither, as nothing leaves the namespace by it.
func (p Policy) Role(name string) Role {
	switch {
	case name == "lo":
		return Other
	case p.Tunnels.Match(name):
		return Tunnel
	case p.Fenced.Match(name):
		return Fenced
	}
	return Other
}

// Translation is one rewriting of node addresses that was found in nat OUTPUT: what is sent to From leaves as To.
type Translation struct {
	From, To netip.Prefix
	// Rule is the rule as the firewall saved it, for explanations.
	Rule string
}

// Except returns the prefixes of the other family, in their order.
func Except(prefixes []netip.Prefix, f Family) []netip.Prefix {
	if f == IPv4 {
		return Only(prefixes, IPv6)
	}
	return Only(prefixes, IPv4)
}
