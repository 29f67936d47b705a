package selftest_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/selftest"
)

func prefixes(text string) (out []netip.Prefix) {
	for _, s := range strings.Fields(text) {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct{ network, barred, weak, want string }{
		{"10.250.0.0/16", "", "", "[10.250.128.1]"},
		{"fd00:250::/48", "", "", "[fd00:250:0:8000::1]"},
		{"10.250.0.0/16", "10.250.128.1/32", "", "[10.250.128.2]"},
		{"10.250.0.0/16", "10.250.128.0/17", "", "[10.250.0.1]"},
		{"10.250.0.0/16", "10.250.0.0/16", "", "[]"},
		{"10.250.0.0/16", "", "10.250.7.0/24 10.250.8.0/24", "[10.250.128.1 10.250.7.129]"},
		{"10.250.0.0/16", "10.250.7.0/24", "10.250.7.0/24 10.250.8.0/24", "[10.250.128.1 10.250.8.129]"},
		{"10.250.0.0/16", "", "10.250.0.0/16 10.250.9.9/32", "[10.250.128.1 10.250.9.9]"},
		{"10.250.0.0/30", "", "", "[10.250.0.1]"},
		{"10.250.0.0/30", "10.250.0.1/32 10.250.0.2/32", "", "[]"},
		{"10.250.0.0/31", "", "", "[10.250.0.1]"},
		{"10.250.0.7/32", "", "", "[10.250.0.7]"},
		{"fd00:250::7/128", "", "fd00:250::7/128", "[fd00:250::7]"},
	} {
		got := selftest.Addresses(netip.MustParsePrefix(c.network), ranges.Of(prefixes(c.barred)...), prefixes(c.weak))
		if fmt.Sprint(got) != c.want {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// No address that is chosen is barred or outside of the network, and there are none only if there are none to choose.
func TestAddressesAreInTheNetwork(t *testing.T) {
	anyPrefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		b := rapid.SliceOfN(rapid.Byte(), 2, 2).Draw(t, "address")
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, b[0] & 1, b[1]}), rapid.IntRange(23, 32).Draw(t, "bits")).Masked()
	})
	rapid.Check(t, func(t *rapid.T) {
		n := anyPrefix.Draw(t, "network")
		barred := ranges.Of(rapid.SliceOf(anyPrefix).Draw(t, "barred")...)
		got := selftest.Addresses(n, barred, rapid.SliceOf(anyPrefix).Draw(t, "weak"))
		if len(got) > 2 || len(got) == 2 && got[0] == got[1] {
			t.Fatalf("chose %v", got)
		}
		for _, a := range got {
			if !n.Contains(a) || barred.Contains(a) || n.Bits() < 31 && a == n.Addr() {
				t.Fatalf("chose %v", a)
			}
		}
	})
}

func TestSample(t *testing.T) {
	var all []int
	for i := range 100 {
		all = append(all, i)
	}
	if got := selftest.Sample(all, 4); !slices.Equal(got, []int{0, 33, 66, 99}) {
		t.Errorf("4 of 100: %v", got)
	}
	if got := selftest.Sample(all[:3], 4); !slices.Equal(got, []int{0, 1, 2}) {
		t.Errorf("4 of 3: %v", got)
	}
}
