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

var (
	fencedPatterns = policy.Patterns{"eth*"}
	tunnelPatterns = policy.Patterns{"tun*"}
)

// prefixes draws networks out of two small spaces, so that they nest, touch and repeat.
func prefixes(t *rapid.T, label string, least int) []netip.Prefix {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
		if rapid.Bool().Draw(t, "v4") {
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 250, 0, rapid.Byte().Draw(t, "host")}), rapid.IntRange(24, 32).Draw(t, "bits")).Masked()
		}
		a := netip.MustParseAddr("fd00:250::").As16()
		a[15] = rapid.Byte().Draw(t, "host")
		return netip.PrefixFrom(netip.AddrFrom16(a), rapid.IntRange(120, 128).Draw(t, "bits")).Masked()
	}), least, 6).Draw(t, label)
}

func drawPolicy(t *rapid.T, label string) policy.Policy {
	p := policy.New(prefixes(t, label, 1), prefixes(t, label+" allow", 0), fencedPatterns, tunnelPatterns)
	return p.Answer(func(n netip.Prefix) bool { return rapid.Bool().Draw(t, label+" answers "+n.String()) })
}

// meddle adds objects of others: longer routes, and things that look a little like ours.
func meddle(t *rapid.T, s State) State {
	seen := map[netip.Prefix]bool{}
	for _, p := range prefixes(t, "foreign routes", 0) {
		if seen[p] {
			continue // two hops to one network: the second one is for the firewall to stop
		}
		seen[p] = true
		s.Routes = append(s.Routes, via(p.String(), rapid.IntRange(2, 3).Draw(t, "device")))
	}
	if rapid.Bool().Draw(t, "foreign in our table") {
		s.Routes = append(s.Routes, Route{Family: policy.IPv4, Table: Table, Dst: netip.MustParsePrefix("10.99.0.0/16"), Type: Blackhole, Protocol: 4})
		s.Rules = append(s.Rules, Rule{Family: policy.IPv4, Priority: 40000, Action: ActLookup, Table: Table, Protocol: Protocol})
	}
	return s
}

// same reports whether two states have the same routes, rules and links, in whatever order routes are.
func same(a, b State) bool {
	byAll := func(x, y Route) int { return compare(&x, &y) }
	a.Routes, b.Routes = slices.SortedStableFunc(slices.Values(a.Routes), byAll), slices.SortedStableFunc(slices.Values(b.Routes), byAll)
	equalRoutes := slices.EqualFunc(a.Routes, b.Routes, func(x, y Route) bool { return x.Table == y.Table && compare(&x, &y) == 0 })
	equalLinks := slices.EqualFunc(a.Links, b.Links, func(x, y Link) bool { return x.Group == y.Group && (x.Saved == nil) == (y.Saved == nil) })
	return equalRoutes && equalLinks && slices.Equal(a.Rules, b.Rules)
}

// TestEveryStepOfAChangeKeepsTheFence checks invariants 2, 7, 8 and 9 of the design on random policies P and Q among foreign
// objects: while moving, an address of both stays fenced after every write; then nothing is left to write; foreign objects
// are as they were; and removal leaves what was there at first.
func TestEveryStepOfAChangeKeepsTheFence(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := meddle(t, bare())
		if rapid.Bool().Draw(t, "group in use") {
			start.Links[1].Group = 7
		}
		p, q := drawPolicy(t, "P"), drawPolicy(t, "Q")
		s := start
		for _, c := range Diff(Desired(p, nil, s), s) {
			s = s.apply(c)
		}
		if exposed := s.Exposed(p); !exposed.Empty() {
			t.Fatalf("exposed under P: %v", exposed.Prefixes())
		}
		both := policy.New(ranges.Of(p.Networks...).Intersect(ranges.Of(q.Networks...)).Prefixes(), append(p.Allow, q.Allow...), fencedPatterns, tunnelPatterns)
		for _, c := range Diff(Desired(q, nil, s), s) {
			s = s.apply(c)
			if exposed := s.Exposed(both); !exposed.Empty() {
				t.Fatalf("after %s: exposed %v", c, exposed.Prefixes())
			}
		}
		if again := Diff(Desired(q, nil, s), s); len(again) > 0 {
			t.Fatalf("not settled: %v", again)
		}
		if exposed := s.Exposed(q); !exposed.Empty() {
			t.Fatalf("exposed under Q: %v", exposed.Prefixes())
		}
		for _, c := range Remove(s) {
			s = s.apply(c)
		}
		if !same(s, start) {
			t.Fatalf("removal left\n%+v\nof\n%+v", s, start)
		}
	})
}

// TestStartAfterAnyInterruption: whatever part of a change was made, the next process converges to the same state.
func TestStartAfterAnyInterruption(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := meddle(t, bare())
		p := drawPolicy(t, "P")
		changes := Diff(Desired(p, nil, s), s)
		whole := s
		for _, c := range changes {
			whole = whole.apply(c)
		}
		for _, c := range changes[:rapid.IntRange(0, len(changes)).Draw(t, "interrupted after")] {
			s = s.apply(c)
		}
		for _, c := range Diff(Desired(p, nil, s), s) {
			s = s.apply(c)
		}
		if !same(s, whole) {
			t.Fatalf("converged to\n%+v\nnot\n%+v", s, whole)
		}
	})
}

// TestNoStepCutsTheTunnel: while the fence goes up or comes down, what table main sends to the tunnel goes there after every write.
func TestNoStepCutsTheTunnel(t *testing.T) {
	s := bare()
	s.Routes = append(s.Routes, via("10.250.0.0/16", 3), via("fd00:250::/32", 3))
	p := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16"), netip.MustParsePrefix("fd00:250::/48")}, nil, fencedPatterns, tunnelPatterns)
	tunneled := func(s State) bool {
		for _, n := range p.Networks {
			paths, _ := s.Paths(policy.FamilyOf(n), ranges.Of(n))
			if len(paths) != 1 || paths[0].Link.Name != "tun0" {
				return false
			}
		}
		return true
	}
	for _, c := range Diff(Desired(p, nil, s), s) {
		if s = s.apply(c); !tunneled(s) {
			t.Errorf("cut after %s", c)
		}
	}
	for _, c := range Remove(s) {
		if s = s.apply(c); !tunneled(s) {
			t.Errorf("cut after %s", c)
		}
	}
}

// TestChangesReadAsCommands: what --dry-run and the log print can be pasted.
func TestChangesReadAsCommands(t *testing.T) {
	s := bare()
	s.Links[1].Group = 7
	s.Links[1].Addrs = []netip.Addr{netip.MustParseAddr("10.1.178.85")}
	p := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16")}, []netip.Prefix{netip.MustParsePrefix("10.250.9.0/24")}, fencedPatterns, tunnelPatterns)
	ts := []policy.Translation{{From: netip.MustParsePrefix("10.250.0.0/16"), To: netip.MustParsePrefix("242.0.0.0/16")}}
	var got []string
	for _, c := range Diff(Desired(p, ts, s), s) {
		got = append(got, c.String())
	}
	want := []string{
		"ip -4 route add 10.250.0.0/16 dev lo table 9604 src 10.1.178.85 proto 96 metric 1024",
		"ip -4 route add blackhole 10.250.0.0/16 table 9604 proto 96 metric 2048",
		"ip -4 route add throw 10.250.9.0/24 table 9604 proto 96 metric 1024",
		"ip -4 route add blackhole 242.0.0.0/16 table 9604 proto 96 metric 3072",
		"ip link property add dev eth0 altname routefence-group-7",
		"ip link set dev eth0 group 9604",
		"ip -4 rule add pref 96 from all lookup main suppress_prefixlength 0 suppress_ifgroup 9604 protocol 96",
		"ip -4 rule add pref 97 from all lookup 9604 protocol 96",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestRenamedInterfaceStaysFenced is FR-20: the group outlives the name.
func TestRenamedInterfaceStaysFenced(t *testing.T) {
	s := bare()
	p := policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16")}, nil, policy.Patterns{"eth0"}, tunnelPatterns)
	for _, c := range Diff(Desired(p, nil, s), s) {
		s = s.apply(c)
	}
	s.Links[1].Name = "net0"
	if fenced := s.Fenced(p); len(fenced) != 1 || fenced[0].Name != "net0" {
		t.Errorf("fenced %v, want net0", fenced)
	}
	s.Links[1].Name = "tun7"
	if fence := Desired(p, nil, s); len(fence.Released) != 1 {
		t.Error("an interface that became a tunnel keeps the group that suppresses its routes")
	}
}
