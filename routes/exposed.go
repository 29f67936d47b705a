package routes

import (
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Exposed returns the addresses of node networks that routing sends, for some packets, to an interface which is neither a tunnel
// nor lo: what runs there now is a connection outside of the VPN. Answers to connections that came in are not meant.
func (s State) Exposed(p policy.Policy) ranges.Set {
	var out ranges.Set
	for _, f := range policy.Families {
		to := ranges.Of(policy.Only(p.Networks, f)...).Minus(ranges.Of(policy.Only(p.Allow, f)...))
		if to.Empty() {
			continue
		}
		paths, _ := s.Paths(f, to)
		for _, path := range paths {
			if path.Fate == Device && !path.Reply && path.Link.Name != "lo" && p.Role(path.Link.Name) != policy.Tunnel {
				out = out.Union(path.To)
			}
		}
	}
	return out
}

// Carried returns the addresses of node networks that routing sends to a tunnel, but for packets that some further condition
// sends elsewhere.
func (s State) Carried(p policy.Policy) ranges.Set {
	var out ranges.Set
	for _, f := range policy.Families {
		to := ranges.Of(policy.Only(p.Networks, f)...)
		if to.Empty() {
			continue
		}
		paths, _ := s.Paths(f, to)
		for _, path := range paths {
			if path.Fate == Device && path.Only == "" && p.Role(path.Link.Name) == policy.Tunnel {
				out = out.Union(path.To)
			}
		}
	}
	return out
}
