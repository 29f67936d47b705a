package routes_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
)

// namespace has a fenced eth0 and a tunnel bond0, and things stacked on both.
var namespace = routes.State{Links: []routes.Link{
	{Index: 9, Name: "mac0.7", Lower: 8}, // listed before what it is stacked on
	{Index: 1, Name: "lo"},
	{Index: 2, Name: "eth0", Master: 7, Addrs: []netip.Addr{netip.MustParseAddr("10.1.178.85")}},
	{Index: 3, Name: "bond0", Addrs: []netip.Addr{netip.MustParseAddr("fd8f::1")}},
	{Index: 4, Name: "bond0-ip6tnl0", Outer: netip.MustParseAddr("fd8f::1"), Peer: netip.MustParseAddr("fd8f::2")},
	{Index: 5, Name: "vlan5", Lower: 3},
	{Index: 6, Name: "eth1"},
	{Index: 7, Name: "br0"},
	{Index: 8, Name: "mac0", Lower: 2},
	{Index: 10, Name: "tun0", Lower: 2, Peer: netip.MustParseAddr("10.250.3.4")},
	{Index: 11, Name: "tun1", Outer: netip.MustParseAddr("10.1.178.85"), Peer: netip.MustParseAddr("10.250.3.5")},
	{Index: 13, Name: "tun2", Peer: netip.MustParseAddr("10.250.3.7")}, // over who knows what
	{Index: 14, Name: "tun3", Lower: 3, Outer: netip.MustParseAddr("10.1.178.85"), Peer: netip.MustParseAddr("10.250.3.8")},
	{Index: 15, Name: "port", Master: 7, Twin: 16},
	{Index: 16, Name: "behind", Twin: 15},
	{Index: 17, Name: "aside", Twin: 18}, {Index: 18, Name: "asides", Twin: 17},
	{Index: 19, Name: "tun4", Lower: 2, Kind: "macvlan"}, // a macvlan under a tunnel's name
	{Index: 20, Name: "bond0.5", Lower: 3, Kind: "vlan"},
	{Index: 12, Name: "vx0", Peer: netip.MustParseAddr("10.250.3.6")},
}}

var stacking = policy.New([]netip.Prefix{netip.MustParsePrefix("10.250.0.0/16")}, nil, policy.Patterns{"eth0"}, policy.Patterns{"tun*", "bond0*"})

// TestStackedOnFenced: what sends by a fenced interface is fenced, over any number of steps; the VPN's own devices never are.
func TestStackedOnFenced(t *testing.T) {
	var got []string
	for _, l := range namespace.Fenced(stacking) {
		got = append(got, l.Name)
	}
	if want := []string{"mac0.7", "eth0", "br0", "mac0", "behind"}; !slices.Equal(got, want) {
		t.Errorf("fenced %v, want %v", got, want)
	}
}

// TestPeersAreLifelines: the other ends of tunnels over eth0 are, but not of those in another tunnel, nor of what is no tunnel of the VPN.
func TestPeersAreLifelines(t *testing.T) {
	want := []policy.Lifeline{
		{Addr: netip.MustParseAddr("10.1.178.85"), Name: "own address on eth0"},
		{Addr: netip.MustParseAddr("10.250.3.4"), Name: "other end of tunnel tun0"},
		{Addr: netip.MustParseAddr("10.250.3.5"), Name: "other end of tunnel tun1"},
	}
	if got := namespace.Lifelines(stacking); !slices.Equal(got, want) {
		t.Errorf("lifelines %v, want %v", got, want)
	}
}

// TestPosing: a macvlan of eth0 is no tunnel whatever its name, a vlan in the VPN's bond is the VPN's.
func TestPosing(t *testing.T) {
	if got := namespace.Posing(stacking); len(got) != 1 || got[0].Name != "tun4" {
		t.Errorf("posing: %+v, want tun4", got)
	}
}
