package routes

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
)

// apply is what the kernel does with a change: the model that properties are checked on. That the kernel does the same is
// checked in test/fence, which makes the same changes one by one.
func (s State) apply(c Change) State {
	s.Links, s.Rules, s.Routes = slices.Clone(s.Links), slices.Clone(s.Rules), slices.Clone(s.Routes)
	switch c.Op {
	case AddRoute:
		s.Routes = append(s.Routes, c.Route)
	case ReplaceRoute:
		s.Routes = slices.DeleteFunc(s.Routes, func(r Route) bool {
			return placeOf(r) == placeOf(c.Route)
		})
		s.Routes = append(s.Routes, c.Route)
	case DelRoute:
		s.Routes = slices.DeleteFunc(s.Routes, func(r Route) bool { return r.Table == c.Route.Table && compare(&r, &c.Route) == 0 })
	case AddRule:
		s.Rules = append(s.Rules, c.Rule)
		slices.SortStableFunc(s.Rules, func(a, b Rule) int { return int(a.Priority) - int(b.Priority) })
	case DelRule:
		if i := slices.Index(s.Rules, c.Rule); i >= 0 {
			s.Rules = slices.Delete(s.Rules, i, i+1)
		}
	default:
		s.setLink(c)
	}
	return s
}

func (s *State) setLink(c Change) {
	i := slices.IndexFunc(s.Links, func(l Link) bool { return l.Index == c.Link.Index })
	switch c.Op {
	case SaveGroup:
		group := c.Group
		s.Links[i].Saved = &group
	case ForgetGroup:
		s.Links[i].Saved = nil
	case SetGroup:
		s.Links[i].Group = c.Group
	}
}

// bare is a pod without a fence: eth0 has the default routes.
func bare() State {
	s := State{Links: []Link{{Index: 1, Name: "lo", Up: true}, {Index: 2, Name: "eth0", Up: true}, {Index: 3, Name: "tun0", Up: true}}}
	s.Links[1].Addrs = []netip.Addr{netip.MustParseAddr("10.1.178.85"), netip.MustParseAddr("fd00:10:1::85")}
	for _, f := range policy.Families {
		s.Rules = append(s.Rules, Rule{Family: f, Action: ActLookup, Table: TableLocal})
		s.Rules = append(s.Rules, Rule{Family: f, Priority: 32766, Action: ActLookup, Table: TableMain})
	}
	slices.SortStableFunc(s.Rules, func(a, b Rule) int { return int(a.Priority) - int(b.Priority) })
	s.Routes = []Route{via("0.0.0.0/0", 2), via("::/0", 2)}
	return s
}

func via(dst string, link int) Route {
	p := netip.MustParsePrefix(dst)
	return Route{Family: policy.FamilyOf(p), Table: TableMain, Dst: p, Type: Unicast, Hops: []Hop{{Link: link}}}
}
