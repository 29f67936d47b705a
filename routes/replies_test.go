package routes

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"pgregory.net/rapid"
)

func all(netip.Prefix) bool { return true }

// answered returns the addresses to which packets with our mark leave by eth0.
func answered(s State, to []netip.Prefix) ranges.Set {
	var out ranges.Set
	for _, f := range policy.Families {
		paths, _ := s.Paths(f, ranges.Of(policy.Only(to, f)...))
		for _, p := range paths {
			if p.Reply && p.Fate == Device && p.Link.Name == "eth0" {
				out = out.Union(p.To)
			}
		}
	}
	return out
}

// looksUp returns the addresses to which the first look-up of an answer, which has no mark yet, finds a route.
func looksUp(s State, to []netip.Prefix) ranges.Set {
	var out ranges.Set
	for _, f := range policy.Families {
		paths, _ := s.Paths(f, ranges.Of(policy.Only(to, f)...))
		for _, p := range paths {
			if p.Only == "" && p.Fate != Nowhere {
				out = out.Union(p.To)
			}
		}
	}
	return out
}

// TestEveryStepKeepsTheWayBack: from one policy to another, whatever the VPN's routes are, what both answer is answered after every write;
// and what the new one does not answer has no way back in the end.
func TestEveryStepKeepsTheWayBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := meddle(t, bare())
		p, q := drawPolicy(t, "P"), drawPolicy(t, "Q")
		both := ranges.Of(p.Replies...).Intersect(ranges.Of(q.Replies...)).Prefixes()
		for _, c := range Diff(Desired(p, nil, s), s) {
			s = s.apply(c)
		}
		for _, c := range Diff(Desired(q, nil, s), s) {
			s = s.apply(c)
			if cut := ranges.Of(both...).Minus(answered(s, both)); !cut.Empty() {
				t.Fatalf("after %s: marked packets to %v do not leave by eth0", c, cut.Prefixes())
			}
			if cut := ranges.Of(both...).Minus(looksUp(s, both)); !cut.Empty() {
				t.Fatalf("after %s: no route to %v, so answers are never marked", c, cut.Prefixes())
			}
		}
		others := ranges.Of(q.Networks...).Minus(ranges.Of(q.Replies...)).Minus(ranges.Of(q.Allow...))
		if open := looksUp(s, others.Prefixes()).Minus(tunneled(s, others)); !open.Empty() {
			t.Fatalf("sinks where nothing is answered: %v", open.Prefixes())
		}
	})
}

func tunneled(s State, to ranges.Set) ranges.Set {
	var out ranges.Set
	for _, f := range policy.Families {
		paths, _ := s.Paths(f, ranges.Of(policy.Only(to.Prefixes(), f)...))
		for _, p := range paths {
			if p.Link.Name == "tun0" {
				out = out.Union(p.To)
			}
		}
	}
	return out
}

// TestRepliesCutNoTunnel is TestNoStepCutsTheTunnel for a fence that is put up, switched to answer and back, and removed.
func TestRepliesCutNoTunnel(t *testing.T) {
	s := bare()
	s.Routes = append(s.Routes, via("10.250.0.0/16", 3), via("fd00:250::/32", 3))
	start := s
	off := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16"), netip.MustParsePrefix("fd00:250::/48")}, nil, fencedPatterns, tunnelPatterns)
	through := func(changes []Change) {
		for _, c := range changes {
			s = s.apply(c)
			if cut := ranges.Of(off.Networks...).Minus(tunneled(s, ranges.Of(off.Networks...))); !cut.Empty() {
				t.Errorf("after %s: %v is cut", c, cut.Prefixes())
			}
		}
	}
	for _, p := range []policy.Policy{off.Answer(all), off, off.Answer(all)} {
		through(Diff(Desired(p, nil, s), s))
	}
	through(Remove(s))
	if !same(s, start) {
		t.Errorf("removal left\n%+v\nof\n%+v", s, start)
	}
}

func TestReplyChangesReadAsCommands(t *testing.T) {
	s := bare()
	s.Links[1].Group = Group
	s.Routes[0].Hops[0].Gateway = netip.MustParseAddr("169.254.1.1")
	worse := via("0.0.0.0/0", 2)
	worse.Metric = 100
	s.Routes = append(s.Routes, worse, via("192.0.2.0/24", 2), via("10.0.0.0/8", 3))
	off := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16"), netip.MustParsePrefix("10.251.0.1/32")},
		[]netip.Prefix{netip.MustParsePrefix("10.251.0.1/32")}, fencedPatterns, tunnelPatterns)
	for _, c := range Diff(Desired(off, nil, s), s) {
		s = s.apply(c)
	}
	on := off.Answer(all)
	want := []string{
		"ip -4 route X 10.250.0.0/16 dev lo table 9604 src 10.1.178.85 proto 96 metric 1024",
		"ip -4 route X default via 169.254.1.1 dev eth0 onlink table 9605 proto 96 metric 1024",
		"ip -4 rule X pref 95 from all fwmark 0x9604/0xffff lookup 9605 protocol 96",
	}
	expect := func(verb string, changes []Change) {
		t.Helper()
		var got []string
		for _, c := range changes {
			got = append(got, c.String())
			s = s.apply(c)
		}
		if text := strings.ReplaceAll(strings.Join(want, "\n"), " X ", verb); strings.Join(got, "\n") != text {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), text)
		}
	}
	expect(" add ", Diff(Desired(on, nil, s), s))
	want = []string{want[2], want[1], want[0]}
	expect(" del ", Diff(Desired(off, nil, s), s))
}

// TestWayBackFollowsTheGateway: another gateway in table main is another one for answers, the new before the old goes.
func TestWayBackFollowsTheGateway(t *testing.T) {
	s := bare()
	p := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16")}, nil, fencedPatterns, tunnelPatterns).Answer(all)
	for _, gateway := range []string{"169.254.1.1", "169.254.1.2"} {
		s.Routes[0].Hops = []Hop{{Link: 2, Gateway: netip.MustParseAddr(gateway)}}
		for _, c := range Diff(Desired(p, nil, s), s) {
			s = s.apply(c)
		}
		i := slices.IndexFunc(s.Routes, func(r Route) bool { return r.Table == TableReplies })
		if i < 0 || s.Routes[i].Hops[0].Gateway.String() != gateway {
			t.Errorf("the way back is %+v, want via %s", s.Routes, gateway)
		}
	}
}

// TestNoRepliesWithoutAnAddress: with nothing to send from the network stays blackholed.
func TestNoRepliesWithoutAnAddress(t *testing.T) {
	s := bare()
	s.Links[1].Addrs = nil
	p := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16")}, nil, fencedPatterns, tunnelPatterns)
	with, without := Desired(p.Answer(all), nil, s), Desired(p, nil, s)
	if len(with.Routes) != len(without.Routes) || len(with.Rules) != len(without.Rules) {
		t.Errorf("routes %+v, rules %+v", with.Routes, with.Rules)
	}
}

func TestOnLink(t *testing.T) {
	s := bare()
	connected := via("10.250.0.0/24", 2)
	connected.Protocol = protocolKernel
	tunnel := via("10.250.1.0/24", 3)
	tunnel.Protocol = protocolKernel
	s.Routes = append(s.Routes, connected, tunnel, via("10.250.2.0/24", 2))
	got := s.OnLink(policy.New(nil, nil, fencedPatterns, tunnelPatterns))
	if !slices.Equal(got, []netip.Prefix{connected.Dst}) {
		t.Errorf("on link: %v", got)
	}
}
