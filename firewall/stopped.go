package firewall

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
)

// Stopped returns how many packets of a protocol to an address, on their way out by a link, our own rules have stopped. A rule for
// more than this address has counted others too, so only the difference between two snapshots means something.
func (s Snapshot) Stopped(to netip.Addr, protocol, link string) uint64 {
	f := policy.FamilyOf(netip.PrefixFrom(to, to.BitLen()))
	var n uint64
	for _, name := range []string{"filter", "mangle"} {
		rules := s.Tables[Table{f, name}][ChainName].Rules
		i := slices.IndexFunc(rules, func(r Rule) bool {
			return (r.Owned() || ownForm(r)) && (r.Target == "REJECT" || r.Target == "DROP") &&
				r.Out.matches(link) && (r.Proto == "" || r.Proto == protocol) && s.asksFor(r, to)
		})
		if i >= 0 {
			n += rules[i].Packets
		}
	}
	return n
}

// asksFor reports whether a rule of ours is for an address.
func (s Snapshot) asksFor(r Rule, a netip.Addr) bool {
	if r.Set == "" {
		return !r.Dst.Prefix.IsValid() || r.Dst.Prefix.Contains(a)
	}
	return slices.ContainsFunc(s.Sets[r.Set], func(p netip.Prefix) bool { return p.Contains(a) })
}
