package nfnetlink

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/netattr"
	"github.com/routefence/routefence/policy"
)

const setType = "hash:net"

// Sets returns our IP sets with their members, sorted. A set under one of our names that is not of the type that we make is
// not ours and not in the result; neither is a member with "nomatch", which means the opposite of a member.
func (Conn) Sets() (map[string][]netip.Prefix, error) {
	l, err := newLine()
	if err != nil {
		return nil, failed("list the IP sets", err)
	}
	defer l.Close()
	sets := map[string][]netip.Prefix{}
	for _, name := range []string{
		firewall.SetNames[policy.IPv4], firewall.SetNames[policy.IPv6],
		firewall.ProbeSets[policy.IPv4], firewall.ProbeSets[policy.IPv6],
	} {
		messages, err := retry(func() ([][]byte, error) { return l.execute(listing(name)) })
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
	size := 0
	for _, m := range messages {
		size += len(m)
	}
	ours = make([]netip.Prefix, 0, size/smallestMember)
	for _, m := range messages {
		a := attributes(m)
		if kind, first := a[nl.IPSET_ATTR_TYPENAME]; first && text(kind) != setType {
			return nil, false
		}
		ours = appendMembers(ours, a[nl.IPSET_ATTR_ADT])
	}
	slices.SortFunc(ours, netip.Prefix.Compare)
	return ours, len(messages) > 0
}

// smallestMember is how many bytes the kernel takes to tell a member: headers of an entry and of its address, four bytes of address,
// and the prefix length.
const smallestMember = 4 + 4 + 8 + 8

// listing asks for one set. netlink.IpsetList does not tell members with "nomatch" from others.
func listing(name string) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|nl.IPSET_CMD_LIST, unix.NLM_F_DUMP|unix.NLM_F_ACK)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(name)))
	return r
}

// digest returns a sum over what is in our sets. It is the same as long as nobody changes them. The error is that of the first set
// that cannot be listed for another reason than that it is not there.
func digest(s *nl.NetlinkSocket) (uint64, error) {
	sum := fnv.New64a()
	for _, f := range policy.Families {
		r := listing(firewall.SetNames[f])
		messages, err := line{&nl.SocketHandle{Socket: s, Seq: r.Seq}}.execute(r)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return 0, err
		}
		for _, m := range messages {
			sum.Write(attributes(m)[nl.IPSET_ATTR_ADT])
		}
		sum.Write([]byte{byte(f)})
	}
	return sum.Sum64(), nil
}

// appendMembers adds the members that a list of entries holds. There may be ten thousand: nothing is allocated for one.
func appendMembers(out []netip.Prefix, entries []byte) []netip.Prefix {
	for _, entry := range netattr.All(entries) {
		if p, ok := member(entry); ok {
			out = append(out, p)
		}
	}
	return out
}

func member(entry []byte) (p netip.Prefix, ok bool) {
	var addr netip.Addr
	bits := -1
	for kind, value := range netattr.All(entry) {
		switch {
		case kind == nl.IPSET_ATTR_CADT_FLAGS && len(value) == 4 && value[3]&nl.IPSET_FLAG_NOMATCH != 0:
			return p, false
		case kind == nl.IPSET_ATTR_IP:
			for _, address := range netattr.All(value) {
				addr, ok = netip.AddrFromSlice(address)
			}
		case kind == nl.IPSET_ATTR_CIDR && len(value) == 1:
			bits = int(value[0])
		}
	}
	if bits < 0 {
		bits = addr.BitLen()
	}
	return netip.PrefixFrom(addr, bits), ok
}

func updateSet(c firewall.SetUpdate) error {
	if c.Create {
		options := netlink.IpsetCreateOptions{Family: protocol(c.Family), MaxElements: firewall.SetCapacity}
		if err := netlink.IpsetCreate(c.Name, setType, options); err != nil {
			return failed("create IP set "+c.Name+" (if one of another type has this name, destroy it)", err)
		}
	}
	if err := changeMembers(nl.IPSET_CMD_ADD, c.Name, c.Add); err != nil {
		return err
	}
	return changeMembers(nl.IPSET_CMD_DEL, c.Name, c.Delete)
}

// batchSize is how many members one message carries. Their list is one attribute, which holds 64 KiB; a member takes up to 40 bytes.
const batchSize = 1000

// changeMembers adds or deletes members. Adding one that is there, or deleting one that is not, is no error.
func changeMembers(command int, set string, members []netip.Prefix) error {
	for chunk := range slices.Chunk(members, batchSize) {
		if changeMany(command, set, chunk) == nil {
			continue
		}
		// Which of them the kernel does not take, it tells in a way that is easy to read only of one.
		for i := range chunk {
			if err := changeMany(command, set, chunk[i:i+1]); err != nil {
				verb := map[int]string{nl.IPSET_CMD_ADD: "add %s to", nl.IPSET_CMD_DEL: "delete %s from"}[command]
				return failed(fmt.Sprintf(verb+" IP set %s", chunk[i], set), err)
			}
		}
	}
	return nil
}

// changeMany sends one message for many members.
func changeMany(command int, set string, members []netip.Prefix) error {
	const nested, bigEndian = unix.NLA_F_NESTED, unix.NLA_F_NET_BYTEORDER
	var list []byte
	for _, p := range members {
		kind := uint16(nl.IPSET_ATTR_IPADDR_IPV4)
		if p.Addr().Is6() {
			kind = nl.IPSET_ATTR_IPADDR_IPV6
		}
		addr := netattr.Append(nil, kind|bigEndian, p.Addr().AsSlice())
		entry := netattr.Append(netattr.Append(nil, nl.IPSET_ATTR_IP|nested, addr), nl.IPSET_ATTR_CIDR, []byte{byte(p.Bits())})
		list = netattr.Append(list, nl.IPSET_ATTR_DATA|nested, entry)
	}
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|command, unix.NLM_F_ACK)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(set)))
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_LINENO|bigEndian, make([]byte, 4))) // a list must come with one
	r.AddData(nl.NewRtAttr(nl.IPSET_ATTR_ADT|nested, list))
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	var errno syscall.Errno
	if errors.As(err, &errno) && errno >= nl.IPSET_ERR_PRIVATE {
		return nl.IPSetError(errno)
	}
	return err
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
