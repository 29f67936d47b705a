package sockets

import (
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/test/netns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// entry is a tracked connection: who asked whom, and who answers whom after nat.
type entry struct {
	from, to, answers string
	forgotten         bool
}

var entries = []entry{
	{"10.99.0.2", "10.250.0.7", "10.250.0.7", true},
	{"fd00:99::2", "fd00:250::7", "fd00:250::7", true},
	{"10.99.0.2", "10.8.8.8", "10.250.0.7", true},    // translated to the node
	{"10.99.0.2", "10.250.0.8", "242.0.0.8", true},   // translated away from it
	{"10.99.0.2", "10.251.0.7", "10.251.0.7", false}, // another network
	{"10.250.0.7", "10.1.178.85", "10.1.178.85", false},
	{"fd00:250::7", "fd00:10:1::85", "fd00:10:1::85", false},
}

// TestForget: connections to the peers go, whatever nat makes of them; those that come from there stay, and all others.
func TestForget(t *testing.T) {
	netns.Enter(t)
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	to := ranges.Of(netip.MustParsePrefix("10.250.0.0/16"), netip.MustParsePrefix("fd00:250::/48"))
	if n, err := k.Forget(to.Contains); n != 0 || err != nil {
		t.Errorf("nothing is tracked: forgot %d, %v", n, err)
	}
	want := 0
	for i, e := range entries {
		if err := netlink.ConntrackCreate(netlink.ConntrackTable, e.family(), e.flow(uint16(4000+i))); err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		if e.forgotten {
			want++
		}
	}
	if n, err := k.Forget(to.Contains); n != want || err != nil {
		t.Errorf("forgot %d (%v), want %d", n, err, want)
	}
	for i, e := range entries {
		if got := tracked(t, e, uint16(4000+i)); got == e.forgotten {
			t.Errorf("%+v: tracked: %v", e, got)
		}
	}
}

func (e entry) family() netlink.InetFamily {
	if netip.MustParseAddr(e.from).Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func (e entry) flow(port uint16) *netlink.ConntrackFlow {
	return &netlink.ConntrackFlow{
		FamilyType: uint8(e.family()), TimeOut: 60,
		Forward: netlink.IPTuple{SrcIP: ip(e.from), DstIP: ip(e.to), SrcPort: port, DstPort: 10250, Protocol: unix.IPPROTO_UDP},
		Reverse: netlink.IPTuple{SrcIP: ip(e.answers), DstIP: ip(e.from), SrcPort: 10250, DstPort: port, Protocol: unix.IPPROTO_UDP},
	}
}

func ip(s string) net.IP { return netip.MustParseAddr(s).AsSlice() }

func tracked(t *testing.T, e entry, port uint16) bool {
	t.Helper()
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, e.family())
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(flows, func(f *netlink.ConntrackFlow) bool { return f.Forward.SrcPort == port })
}
