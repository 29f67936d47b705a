package routes

import (
	"net/netip"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Exposed returns the addresses of node networks that routing sends, for some packets, to an interface which is neither a tunnel
// nor lo: what runs there now is a connection outside of the VPN. Answers to connections that came in are not meant.
func (s State) Exposed(p policy.Policy) ranges.Set {
	return s.sent(p.Networks, p.Allow, func(path Path) bool {
		return !path.Reply && path.Link.Name != "lo" && p.Role(path.Link.Name) != policy.Tunnel
	})
}

// Carried returns the addresses of node networks that routing sends to a tunnel, but for packets that some further condition
// sends elsewhere.
func (s State) Carried(p policy.Policy) ranges.Set {
	return s.sent(p.Networks, nil, func(path Path) bool { return path.Only == "" && p.Role(path.Link.Name) == policy.Tunnel })
}

// Reaching returns the addresses among some prefixes that routing sends, for some packets at least, to a tunnel that is up: by a mark or
// a source of theirs, or as the second of two hops.
func (s State) Reaching(prefixes []netip.Prefix, p policy.Policy) ranges.Set {
	return s.sent(prefixes, nil, func(path Path) bool { return path.Link.Up && p.Role(path.Link.Name) == policy.Tunnel })
}

// sent returns the addresses among prefixes, but for some, that paths to an interface lead from which are meant.
func (s State) sent(prefixes, but []netip.Prefix, meant func(Path) bool) ranges.Set {
	var out ranges.Set
	for _, f := range policy.Families {
		to := ranges.Of(policy.Only(prefixes, f)...).Minus(ranges.Of(policy.Only(but, f)...))
		if to.Empty() {
			continue
		}
		paths, _ := s.Paths(f, to)
		for _, path := range paths {
			if path.Fate == Device && meant(path) {
				out = out.Union(path.To)
			}
		}
	}
	return out
}
