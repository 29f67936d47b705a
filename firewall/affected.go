package firewall

import (
	"net/netip"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Affected returns the addresses whose packets changes may treat otherwise than before: members that come to a set, or else
// all of the family.
func Affected(changes []Change) ranges.Set {
	var out []netip.Prefix
	for _, c := range changes {
		update, ok := c.(SetUpdate)
		switch {
		case ok && !update.Create:
			out = append(out, update.Add...)
		case c.Of() == policy.IPv4:
			out = append(out, netip.PrefixFrom(netip.IPv4Unspecified(), 0))
		default:
			out = append(out, netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		}
	}
	return ranges.Of(out...)
}
