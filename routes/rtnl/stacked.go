package rtnl

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// lowerOf returns the index of the link of this namespace that a link sends by, or 0. What a veth or netkit device names is its peer.
func lowerOf(l netlink.Link) int {
	a := l.Attrs()
	if v, ok := l.(*netlink.Vxlan); ok {
		return v.VtepDevIndex
	}
	if a.NetNsID >= 0 || l.Type() == "veth" || l.Type() == "netkit" || a.ParentIndex == a.Index {
		return 0
	}
	return a.ParentIndex
}

// twinOf returns the index of the other end of a veth pair that is in this namespace too, or 0.
func twinOf(l netlink.Link) int {
	if a := l.Attrs(); a.NetNsID < 0 && (l.Type() == "veth" || l.Type() == "netkit") {
		return a.ParentIndex
	}
	return 0
}

// endsOf returns the outer addresses of a tunnel, its own and that of its other end. The kernel does not know those of a tun device: a
// process has them.
func endsOf(l netlink.Link) (own, peer netip.Addr) {
	switch l := l.(type) {
	case *netlink.Ip6tnl:
		return outer(l.Local), outer(l.Remote)
	case *netlink.Iptun:
		return outer(l.Local), outer(l.Remote)
	case *netlink.Sittun:
		return outer(l.Local), outer(l.Remote)
	case *netlink.Gretun:
		return outer(l.Local), outer(l.Remote)
	case *netlink.Gretap:
		return outer(l.Local), outer(l.Remote)
	case *netlink.Vti:
		return outer(l.Local), outer(l.Remote)
	case *netlink.Vxlan:
		return outer(l.SrcAddr), outer(l.Group)
	}
	return own, peer
}

// outer returns the address of one end, none where any will do.
func outer(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	if addr = addr.Unmap(); addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}
	}
	return addr
}
