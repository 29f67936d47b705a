package policy_test

import (
	"net/netip"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func TestNewIsCanonical(t *testing.T) {
	p := policy.New(
		prefixes("fd00:250::/48", "10.250.128.0/17", "10.250.0.0/17", "10.250.7.0/24", "10.1.2.3/16", "10.250.0.0/17"),
		prefixes("10.250.9.9/24", "192.168.0.0/16", "10.0.0.0/15", "fd00:250:0:1::/64"), nil, nil)
	if diff := cmp.Diff([]string{"10.1.0.0/16", "10.250.0.0/16", "fd00:250::/48"}, texts(p.Networks)); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"10.1.0.0/16", "10.250.9.0/24", "fd00:250:0:1::/64"}, texts(p.Allow)); diff != "" {
		t.Errorf("allowed (-want +got):\n%s", diff)
	}
	if got := texts(policy.Only(p.Networks, policy.IPv6)); !slices.Equal(got, []string{"fd00:250::/48"}) {
		t.Errorf("IPv6 networks: %v", got)
	}
}

// Order, repetition and the way networks are cut into prefixes make no other policy.
func TestNewDependsOnAddressesOnly(t *testing.T) {
	anyPrefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		b := rapid.SliceOfN(rapid.Byte(), 2, 2).Draw(t, "address")
		if rapid.Bool().Draw(t, "IPv6") {
			return netip.PrefixFrom(netip.AddrFrom16([16]byte{0xfd, 14: b[0] & 3, 15: b[1]}), rapid.IntRange(117, 128).Draw(t, "bits"))
		}
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, b[0] & 3, b[1]}), rapid.IntRange(21, 32).Draw(t, "bits"))
	})
	rapid.Check(t, func(t *rapid.T) {
		networks := rapid.SliceOf(anyPrefix).Draw(t, "networks")
		allow := rapid.SliceOf(anyPrefix).Draw(t, "allow")
		p := policy.New(networks, allow, nil, nil)
		again := policy.New(rapid.Permutation(append(ranges.Of(networks...).Prefixes(), networks...)).Draw(t, "shuffled"),
			rapid.Permutation(append(allow, p.Allow...)).Draw(t, "allowed"), nil, nil)
		if diff := cmp.Diff(texts(p.Networks), texts(again.Networks)); diff != "" {
			t.Fatalf("networks:\n%s", diff)
		}
		if diff := cmp.Diff(texts(p.Allow), texts(again.Allow)); diff != "" {
			t.Fatalf("allowed:\n%s", diff)
		}
		if outside := ranges.Of(p.Allow...).Minus(ranges.Of(p.Networks...)); !outside.Empty() {
			t.Fatalf("allowed outside of networks: %v", outside)
		}
		for i, n := range p.Networks {
			if n != n.Masked() || i > 0 && (n.Overlaps(p.Networks[i-1]) || !p.Networks[i-1].Addr().Less(n.Addr())) {
				t.Fatalf("not canonical: %v", p.Networks)
			}
		}
	})
}

func TestRole(t *testing.T) {
	usual := policy.Policy{Fenced: policy.Patterns{"eth0"}, Tunnels: policy.Patterns{"tun0", "bond0*"}}
	every := policy.Policy{Fenced: policy.Patterns{"*"}, Tunnels: policy.Patterns{"tun0"}}
	for _, c := range []struct {
		policy policy.Policy
		name   string
		want   policy.Role
	}{
		{usual, "eth0", policy.Fenced}, {usual, "eth01", policy.Other}, {usual, "eth1", policy.Other},
		{usual, "tun0", policy.Tunnel}, {usual, "bond0", policy.Tunnel}, {usual, "bond0-ip6tnl1", policy.Tunnel},
		{usual, "lo", policy.Other}, {usual, "", policy.Other},
		{every, "eth0", policy.Fenced}, {every, "tun0", policy.Tunnel}, {every, "lo", policy.Other},
		{policy.Policy{Fenced: policy.Patterns{"["}}, "[", policy.Other},
	} {
		if got := c.policy.Role(c.name); got != c.want {
			t.Errorf("role of %q is %d, want %d", c.name, got, c.want)
		}
	}
}

func TestParsePatterns(t *testing.T) {
	good := []string{"eth0", "tun0", "bond0*", "*", "eth?", "veth[0-9a-f]*", "bond0-ip6tnl[01]", "eth[^1]", "a-fifteen-chars", "eth0", "eth0.100"}
	got, err := policy.ParsePatterns(good)
	if want := append(slices.Clone(good[:9]), "eth0.100"); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got, err := policy.ParsePatterns(nil); got != nil || err != nil {
		t.Errorf("no patterns: %q, %v", got, err)
	}
	for _, c := range []struct{ in, why string }{
		{"", "empty"},
		{" ", "blank"},
		{"eth0 ", "blank"},
		{"eth0\n", "blank"},
		{"eth\u00a00", "blank"},
		{"eth\x00", "blank"},
		{"net/eth0", "'/'"},
		{"/*", "'/'"},
		{"[", "malformed"},
		{"eth[0-", "malformed"},
		{"eth[]0", "malformed"},
		{`eth\`, "malformed"},
		{"tun+", "write tun*"},
		{"eth[!0]", "[^"},
		{"eth0:1", `"eth0"`},
		{"sixteen-chars-ab", "15 characters"},
	} {
		_, err := policy.ParsePatterns([]string{"eth0", c.in})
		if err == nil || !strings.Contains(err.Error(), c.why) || !strings.HasPrefix(err.Error(), `interface pattern "`) {
			t.Errorf("%q: error %v does not name the pattern and %q", c.in, err, c.why)
		}
	}
}

func FuzzParsePatterns(f *testing.F) {
	f.Add("eth0", "tun*")
	f.Add("eth[0-9", "bond0-ip6tnl[^a]")
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := policy.ParsePatterns([]string{a, b})
		if err != nil {
			if got != nil {
				t.Fatalf("both %q and %v", got, err)
			}
			return
		}
		for _, p := range got {
			if _, err := path.Match(p, "eth0"); err != nil || p == "" || strings.ContainsAny(p, "/ \t\r\n") {
				t.Fatalf("accepted %q (%v)", p, err)
			}
		}
		again, err := policy.ParsePatterns(got)
		if err != nil || !slices.Equal(again, got) {
			t.Fatalf("%q read again: %q, %v", got, again, err)
		}
	})
}
