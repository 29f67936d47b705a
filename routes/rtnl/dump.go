package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/routefence/routefence/netattr"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Rules and routes are decoded here, not by the library: it knows neither a rule's action nor its VRF selector nor a route's
// nexthop object, and a verdict must not overlook what it does not know.

// dump runs one dump request on the kernel's own socket and hands every message's family header and attributes to f.
func (k *Kernel) dump(kind int, family policy.Family, f func(msg *nl.RtMsg, attrs []byte) error) error {
	req := nl.NewNetlinkRequest(kind, unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: k.dumps, Seq: req.Seq}}
	req.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(familyNumber(family))}})
	var bad error
	err := req.ExecuteIter(unix.NETLINK_ROUTE, 0, func(m []byte) bool {
		msg := nl.DeserializeRtMsg(m)
		if msg.Family == uint8(familyNumber(family)) {
			bad = f(msg, m[msg.Len():])
		}
		return bad == nil
	})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil // no such family in this kernel: it has no routes
	}
	return errors.Join(err, bad)
}

func u32(v []byte) uint32 {
	if len(v) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(v)
}

func addr(v []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(v)
	return a
}

func prefix(v []byte, bits uint8) netip.Prefix { return netip.PrefixFrom(addr(v), int(bits)) }

func (k *Kernel) dumpRules(f policy.Family, s *routes.State) error {
	return k.dump(unix.RTM_GETRULE, f, func(msg *nl.RtMsg, attrs []byte) error {
		// A rule's header is laid out like a route's: flags, action, TOS and prefix lengths stand in the same places.
		r := routes.Rule{Family: f, Action: routes.Action(msg.Type), Table: uint32(msg.Table), TOS: msg.Tos,
			Invert: msg.Flags&netlink.FibRuleInvert != 0}
		var more []string
		for kind, v := range netattr.All(attrs) {
			if !ruleAttribute(&r, msg, kind, v) {
				more = append(more, furtherSelector(kind, v))
			}
		}
		if r.Action != routes.ActLookup {
			r.Table = 0
		}
		r.More = strings.Join(more, " ")
		s.Rules = append(s.Rules, r)
		return netattr.Check(attrs)
	})
}

// ruleAttribute stores an attribute that the verdict understands, or that selects nothing.
func ruleAttribute(r *routes.Rule, msg *nl.RtMsg, kind uint16, v []byte) bool {
	switch kind {
	case nl.FRA_DST:
		r.Dst = prefix(v, msg.Dst_len)
	case nl.FRA_SRC:
		r.Src = prefix(v, msg.Src_len)
	case nl.FRA_IIFNAME:
		r.IIF = strings.TrimRight(string(v), "\x00")
	case nl.FRA_OIFNAME:
		r.OIF = strings.TrimRight(string(v), "\x00")
	case nl.FRA_GOTO:
		r.Goto = u32(v)
	case nl.FRA_PRIORITY:
		r.Priority = u32(v)
	case nl.FRA_FWMARK:
		r.Mark = u32(v)
	case nl.FRA_FWMASK:
		r.Mask = u32(v)
	case nl.FRA_TABLE:
		r.Table = u32(v)
	case nl.FRA_SUPPRESS_PREFIXLEN:
		r.SuppressPrefix = u32(v) + 1 // the kernel's "none" is -1
	case nl.FRA_SUPPRESS_IFGROUP:
		r.SuppressGroup = u32(v) + 1
	case nl.FRA_PROTOCOL:
		r.Protocol = v[0]
	case nl.FRA_FLOW, nl.FRA_PAD:
	default:
		return false
	}
	return true
}

// furtherSelector names a selector that the verdict treats as "may or may not match".
func furtherSelector(kind uint16, v []byte) string {
	switch {
	case kind == nl.FRA_UID_RANGE && len(v) >= 8:
		return fmt.Sprintf("uidrange %d-%d", u32(v), u32(v[4:]))
	case kind == nl.FRA_IP_PROTO && len(v) >= 1:
		return fmt.Sprintf("ipproto %d", v[0])
	case kind == nl.FRA_SPORT_RANGE && len(v) >= 4:
		return fmt.Sprintf("sport %d-%d", binary.NativeEndian.Uint16(v), binary.NativeEndian.Uint16(v[2:]))
	case kind == nl.FRA_DPORT_RANGE && len(v) >= 4:
		return fmt.Sprintf("dport %d-%d", binary.NativeEndian.Uint16(v), binary.NativeEndian.Uint16(v[2:]))
	case kind == nl.FRA_L3MDEV:
		return "l3mdev"
	case kind == nl.FRA_TUN_ID:
		return "tun_id"
	}
	return fmt.Sprintf("selector-%d", kind)
}

func (k *Kernel) dumpRoutes(f policy.Family, s *routes.State) error {
	return k.dump(unix.RTM_GETROUTE, f, func(msg *nl.RtMsg, attrs []byte) error {
		if msg.Flags&unix.RTM_F_CLONED != 0 {
			return nil
		}
		r := routes.Route{Family: f, Table: uint32(msg.Table), Type: routes.Type(msg.Type), Protocol: msg.Protocol, TOS: msg.Tos}
		hop := routes.Hop{Dead: msg.Flags&unix.RTNH_F_DEAD != 0}
		dst := netip.IPv4Unspecified()
		if f == policy.IPv6 {
			dst = netip.IPv6Unspecified()
		}
		var bad error
		for kind, v := range netattr.All(attrs) {
			switch kind {
			case unix.RTA_DST:
				dst = addr(v)
			case unix.RTA_SRC:
				r.From = prefix(v, msg.Src_len)
			case unix.RTA_PREFSRC:
				r.Src = addr(v)
			case unix.RTA_PRIORITY:
				r.Metric = u32(v)
			case unix.RTA_TABLE:
				r.Table = u32(v)
			case unix.RTA_OIF:
				hop.Link = int(u32(v))
			case unix.RTA_GATEWAY:
				hop.Gateway = addr(v)
			case unix.RTA_VIA:
				hop.Gateway = via(v)
			case unix.RTA_MULTIPATH:
				r.Hops, bad = multipath(v)
			}
		}
		r.Dst = netip.PrefixFrom(dst, int(msg.Dst_len))
		if hop.Link != 0 && len(r.Hops) == 0 {
			r.Hops = []routes.Hop{hop}
		}
		s.Routes = append(s.Routes, r)
		return errors.Join(netattr.Check(attrs), bad)
	})
}

// via reads a gateway of another family: two bytes of family, then the address.
func via(v []byte) netip.Addr {
	if len(v) < 2 {
		return netip.Addr{}
	}
	return addr(v[2:])
}

func multipath(b []byte) ([]routes.Hop, error) {
	var hops []routes.Hop
	for len(b) >= unix.SizeofRtNexthop {
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			return hops, fmt.Errorf("next hop of %d bytes in %d", size, len(b))
		}
		h := routes.Hop{Link: int(u32(b[4:])), Dead: b[2]&unix.RTNH_F_DEAD != 0}
		attrs := b[unix.SizeofRtNexthop:size]
		for kind, v := range netattr.All(attrs) {
			switch kind {
			case unix.RTA_GATEWAY:
				h.Gateway = addr(v)
			case unix.RTA_VIA:
				h.Gateway = via(v)
			}
		}
		if err := netattr.Check(attrs); err != nil {
			return hops, err
		}
		hops = append(hops, h)
		b = b[min(len(b), (size+3)&^3):]
	}
	return hops, nil
}
