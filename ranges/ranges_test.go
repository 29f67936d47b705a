package ranges_test

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/routefence/routefence/ranges"
)

// The model of a Set is a map of addresses. Its universe is small enough to ask about every address of it, and lies at the
// four ends of the two families, where arithmetic on addresses goes wrong.
const bits = 5

var universe = func() (all []netip.Addr) {
	for _, p := range []string{"0.0.0.0/27", "255.255.255.224/27", "::/123", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffe0/123"} {
		prefix := netip.MustParsePrefix(p)
		for a, n := prefix.Addr(), 0; n < 1<<bits; a, n = a.Next(), n+1 {
			all = append(all, a)
		}
	}
	return all
}()

type model map[netip.Addr]bool

func modelOf(prefixes []netip.Prefix) model {
	m := model{}
	for _, a := range universe {
		m[a] = slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return m
}

var somePrefixes = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) netip.Prefix {
	a := rapid.SampledFrom(universe).Draw(t, "address")
	return netip.PrefixFrom(a, a.BitLen()-rapid.IntRange(0, bits).Draw(t, "host bits"))
}), 0, 12)

func check(t *rapid.T, what string, s ranges.Set, want func(netip.Addr) bool) {
	any := false
	for _, a := range universe {
		any = any || want(a)
		if s.Contains(a) != want(a) {
			t.Fatalf("%s: %v contains %v: %v", what, s, a, s.Contains(a))
		}
	}
	if s.Empty() == any {
		t.Fatalf("%s: %v is empty: %v", what, s, s.Empty())
	}
	for i, r := range s {
		if !r.IsValid() || i > 0 && !s[i-1].To().Less(r.From()) {
			t.Fatalf("%s: %v is not sorted", what, s)
		}
		if i > 0 && s[i-1].To().Next() == r.From() && s[i-1].To().BitLen() == r.From().BitLen() {
			t.Fatalf("%s: %v has adjacent ranges", what, s)
		}
	}
	checkPrefixes(t, what, s)
}

func checkPrefixes(t *rapid.T, what string, s ranges.Set) {
	list := s.Prefixes()
	again := ranges.Of(list...)
	if !slices.Equal(again, s) {
		t.Fatalf("%s: %v became %v by way of %v", what, s, again, list)
	}
	for i, p := range list {
		if p != p.Masked() || i > 0 && list[i-1].Overlaps(p) {
			t.Fatalf("%s: prefixes %v", what, list)
		}
		// Shortest: no two neighbours are the halves of one prefix.
		if i > 0 && p.Bits() == list[i-1].Bits() && p.Bits() > 0 {
			if parent := netip.PrefixFrom(p.Addr(), p.Bits()-1).Masked(); parent.Contains(list[i-1].Addr()) {
				t.Fatalf("%s: %v and %v are one", what, list[i-1], p)
			}
		}
	}
}

func TestSetAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		as, bs := somePrefixes.Draw(t, "a"), somePrefixes.Draw(t, "b")
		a, b, ma, mb := ranges.Of(as...), ranges.Of(bs...), modelOf(as), modelOf(bs)
		check(t, "a or b", a.Union(b), func(x netip.Addr) bool { return ma[x] || mb[x] })
		check(t, "a and b", a.Intersect(b), func(x netip.Addr) bool { return ma[x] && mb[x] })
		check(t, "a without b", a.Minus(b), func(x netip.Addr) bool { return ma[x] && !mb[x] })
		probe := rapid.SampledFrom(append(as, netip.PrefixFrom(universe[3], universe[3].BitLen()))).Draw(t, "probe")
		if got, want := b.Overlaps(probe), slices.ContainsFunc(bs, probe.Overlaps); got != want {
			t.Fatalf("%v overlaps %v: %v", b, probe, got)
		}
		// Near may leave out what is outside of the span, and must leave out nothing inside.
		if near := b.Near(as); !slices.Equal(near.Intersect(b), a.Intersect(b)) || !near.Minus(a).Empty() {
			t.Fatalf("of %v near %v: %v", as, b, near)
		}
		canonical := a.Prefixes()
		var overlapping []netip.Prefix
		for _, p := range canonical {
			if p.Overlaps(probe) {
				overlapping = append(overlapping, p)
			}
		}
		if got := ranges.Overlapping(canonical, probe); !slices.Equal(got, overlapping) {
			t.Fatalf("of %v, %v overlap %v", canonical, got, probe)
		}
		// Last, so that it also sees an operation that changed its operands.
		check(t, "a", a, func(x netip.Addr) bool { return ma[x] })
		check(t, "b", b, func(x netip.Addr) bool { return mb[x] })
	})
}

func TestWholeFamilies(t *testing.T) {
	all := ranges.Of(netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"))
	ten := ranges.Of(netip.MustParsePrefix("10.0.0.0/8"))
	rest := all.Minus(ten)
	if rest.Contains(netip.MustParseAddr("10.0.0.0")) || !rest.Contains(netip.MustParseAddr("9.255.255.255")) ||
		!rest.Contains(netip.MustParseAddr("255.255.255.255")) || !rest.Contains(netip.MustParseAddr("::")) {
		t.Errorf("all without 10/8: %v", rest)
	}
	if got := rest.Union(ten); !slices.Equal(got, all) {
		t.Errorf("put together again: %v", got)
	}
	if got := all.Minus(all); !got.Empty() {
		t.Errorf("all without all: %v", got)
	}
	// An IPv4 address and its IPv4-mapped form are two addresses to the kernel's tables, and so they are here.
	if mapped := netip.MustParseAddr("::ffff:10.0.0.1"); ten.Contains(mapped) {
		t.Errorf("10/8 contains %v", mapped)
	}
}

// Ten thousand networks on either side are the size that must stay linear: a quadratic sweep needs minutes here.
func TestManyNetworks(t *testing.T) {
	var even, odd []netip.Prefix
	for i := range 1 << 16 {
		even = append(even, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 25))
		odd = append(odd, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 128}), 25))
	}
	a, b := ranges.Of(even...), ranges.Of(odd...)
	if got := a.Union(b).Prefixes(); len(got) != 1 || got[0].String() != "10.0.0.0/8" {
		t.Errorf("union has %d prefixes", len(got))
	}
	if got := a.Intersect(b); !got.Empty() {
		t.Errorf("intersection has %d ranges", len(got))
	}
	if got := ranges.Of(netip.MustParsePrefix("10.0.0.0/8")).Minus(a); !slices.Equal(got, b) {
		t.Errorf("difference has %d ranges", len(got))
	}
}
