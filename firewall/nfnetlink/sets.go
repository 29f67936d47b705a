package nfnetlink

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
)

const setType = "hash:net"

// Sets returns our IP sets with their members, sorted. A set under one of our names that is not of the type that we make is
// not ours and not in the result; neither is a member with "nomatch", which means the opposite of a member.
func (Conn) Sets() (map[string][]netip.Prefix, error) {
	sets := map[string][]netip.Prefix{}
	for _, name := range []string{
		firewall.SetNames[policy.IPv4], firewall.SetNames[policy.IPv6],
		firewall.ProbeSets[policy.IPv4], firewall.ProbeSets[policy.IPv6],
	} {
		messages, err := retry(func() ([][]byte, error) { return listSet(name) })
		if unsupported(err) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, failed("list IP set "+name, err)
		}
		if ours, found := parseSet(messages); found {
			sets[name] = ours
		}
	}
	return sets, nil
}

// parseSet reads the messages of one set. Only the first of them names its type.
func parseSet(messages [][]byte) (ours []netip.Prefix, found bool) {
	for _, m := range messages {
		a := attributes(m)
		if kind, first := a[nl.IPSET_ATTR_TYPENAME]; first && text(kind) != setType {
			return nil, false
		}
		ours = append(ours, members(a[nl.IPSET_ATTR_ADT])...)
	}
	slices.SortFunc(ours, netip.Prefix.Compare)
	return ours, len(messages) > 0
}

// listSet dumps one set. netlink.IpsetList does not tell members with "nomatch" from others.
func listSet(name string) ([][]byte, error) {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, unix.NLM_F_DUMP|unix.NLM_F_ACK)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	return r.Execute(unix.NETLINK_NETFILTER, 0)
}

func members(data []byte) []netip.Prefix {
	var out []netip.Prefix
	for _, entry := range split(data) {
		a := nested(entry.value)
		flags := a[nl.IPSET_ATTR_CADT_FLAGS]
		if len(flags) == 4 && flags[3]&nl.IPSET_FLAG_NOMATCH != 0 {
			continue
		}
		for _, address := range nested(a[nl.IPSET_ATTR_IP]) {
			addr, ok := netip.AddrFromSlice(address)
			if !ok {
				continue
			}
			bits := addr.BitLen()
			if cidr := a[nl.IPSET_ATTR_CIDR]; len(cidr) == 1 {
				bits = int(cidr[0])
			}
			out = append(out, netip.PrefixFrom(addr, bits))
		}
	}
	return out
}

func updateSet(c firewall.SetUpdate) error {
	if c.Create {
		options := netlink.IpsetCreateOptions{Family: protocol(c.Family), MaxElements: firewall.SetCapacity}
		if err := netlink.IpsetCreate(c.Name, setType, options); err != nil {
			return failed("create IP set "+c.Name+" (if one of another type has this name, destroy it)", err)
		}
	}
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return failed("open netlink for IP set "+c.Name, err)
	}
	defer h.Close()
	for _, p := range c.Add {
		if err := h.IpsetAdd(c.Name, entry(p)); err != nil {
			return failed(fmt.Sprintf("add %s to IP set %s", p, c.Name), err)
		}
	}
	for _, p := range c.Delete {
		if err := h.IpsetDel(c.Name, entry(p)); err != nil {
			return failed(fmt.Sprintf("delete %s from IP set %s", p, c.Name), err)
		}
	}
	return nil
}

// entry asks for a member in a way that succeeds if it is there, or gone, already.
func entry(p netip.Prefix) *netlink.IPSetEntry {
	return &netlink.IPSetEntry{IP: net.IP(p.Addr().AsSlice()), CIDR: uint8(p.Bits()), Replace: true}
}

func destroySet(c firewall.SetDestroy) error {
	err := netlink.IpsetDestroy(c.Name)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return failed("destroy IP set "+c.Name+" (foreign rules that refer to it must go first)", err)
}

// unsupported reports whether the kernel has no ipset: nfnetlink answers EINVAL for a subsystem that it does not know.
func unsupported(err error) bool {
	return errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT)
}
