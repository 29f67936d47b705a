// Package nfnetlink speaks to the kernel's netfilter over netlink, for what no iptables program can tell or do: the generation
// of the nft ruleset, the tables and chains that really exist, the events of both, and IP sets.
package nfnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/netattr"
	"github.com/routefence/routefence/policy"
)

// Conn is the netfilter of the network namespace that the calling thread is in. It holds nothing between calls.
type Conn struct{}

// Generation returns the number that the kernel changes with every change of the nft ruleset of the namespace.
func (Conn) Generation() (uint32, error) {
	messages, err := request(unix.NFT_MSG_GETGEN, unix.AF_UNSPEC, 0).Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil {
		return 0, failed("read the generation of the nft ruleset", err)
	}
	for _, m := range messages {
		if id := attributes(m)[unix.NFTA_GEN_ID]; len(id) == 4 {
			return binary.BigEndian.Uint32(id), nil
		}
	}
	return 0, errors.New("read the generation of the nft ruleset: the kernel answered without one")
}

// Tables returns the nft tables of both families with the names of their chains, and those that are switched off: their chains are listed
// like any others, and no packet meets them. A kernel without nft has none.
func (Conn) Tables() (tables map[firewall.Table][]string, dormant []firewall.Table, err error) {
	l, err := newLine()
	if err != nil {
		return nil, nil, failed("list the nft tables and chains", err)
	}
	defer l.Close()
	tables = map[firewall.Table][]string{}
	for _, f := range policy.Families {
		messages, err := l.dump(unix.NFT_MSG_GETTABLE, f)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range messages {
			a := attributes(m)
			t := firewall.Table{Family: f, Name: text(a[unix.NFTA_TABLE_NAME])}
			tables[t] = nil
			if flags := a[unix.NFTA_TABLE_FLAGS]; len(flags) == 4 && binary.BigEndian.Uint32(flags)&unix.NFT_TABLE_F_DORMANT != 0 {
				dormant = append(dormant, t)
			}
		}
		if messages, err = l.dump(unix.NFT_MSG_GETCHAIN, f); err != nil {
			return nil, nil, err
		}
		for _, m := range messages {
			a := attributes(m)
			t := firewall.Table{Family: f, Name: text(a[unix.NFTA_CHAIN_TABLE])}
			tables[t] = append(tables[t], text(a[unix.NFTA_CHAIN_NAME]))
		}
	}
	return tables, dormant, nil
}

// line is a socket for several requests, one after the other.
type line struct{ *nl.SocketHandle }

func newLine() (line, error) {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return line{}, err
	}
	if err := s.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		s.Close()
		return line{}, err
	}
	return line{&nl.SocketHandle{Socket: s}}, nil
}

func (l line) execute(r *nl.NetlinkRequest) ([][]byte, error) {
	r.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: l.SocketHandle}
	return r.Execute(unix.NETLINK_NETFILTER, 0)
}

// dump lists objects of one family. A dump that a change interrupted is not a list of anything, so it starts over.
func (l line) dump(message int, f policy.Family) ([][]byte, error) {
	messages, err := retry(func() ([][]byte, error) { return l.execute(request(message, protocol(f), unix.NLM_F_DUMP)) })
	// EINVAL is what nfnetlink answers for a subsystem that the kernel does not have.
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil
	}
	if err != nil {
		return nil, failed("list the nft tables and chains", err)
	}
	return messages, nil
}

// attempts bounds the repetition of interrupted dumps; a namespace that changes all the time is seen at the next pass.
const attempts = 10

func retry(dump func() ([][]byte, error)) (messages [][]byte, err error) {
	for range attempts {
		messages, err = dump()
		if !errors.Is(err, nl.ErrDumpInterrupted) {
			break
		}
	}
	return messages, err
}

// Apply makes a change that needs no iptables program: SetUpdate, SetDestroy or TableDelete.
func (c Conn) Apply(change firewall.Change) error {
	switch change := change.(type) {
	case firewall.SetUpdate:
		return updateSet(change)
	case firewall.SetDestroy:
		return destroySet(change)
	case firewall.TableDelete:
		return deleteTable(change.Table)
	}
	return fmt.Errorf("not a change that netlink can make: %s", change)
}

// deleteTable deletes a table if it is empty. NLM_F_NONREC leaves that check to the kernel, so nobody can get in between.
func deleteTable(t firewall.Table) error {
	del := request(unix.NFT_MSG_DELTABLE, protocol(t.Family), unix.NLM_F_ACK|unix.NLM_F_NONREC)
	del.AddData(nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(t.Name)))
	err := transact(del)
	if errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return failed("delete the empty nft table "+t.String(), err)
	}
	return nil
}

// transact sends a request as a batch of its own, the only form in which nft takes changes, and waits for its answer.
func transact(r *nl.NetlinkRequest) error {
	begin, end := batchMark(unix.NFNL_MSG_BATCH_BEGIN), batchMark(unix.NFNL_MSG_BATCH_END)
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.SetReceiveTimeout(&nl.SocketTimeoutTv); err != nil {
		return err
	}
	batch := slices.Concat(begin.Serialize(), r.Serialize(), end.Serialize())
	if err := unix.Sendto(s.GetFd(), batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for {
		messages, _, err := s.Receive()
		if err != nil {
			return err
		}
		for _, m := range messages {
			if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
				continue
			}
			// A refused batch is answered under the number of its begin as well.
			if errno := int32(nl.NativeEndian().Uint32(m.Data)); errno != 0 {
				return unix.Errno(-errno)
			}
			if m.Header.Seq == r.Seq {
				return nil
			}
		}
	}
}

func batchMark(message int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(message, 0)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0, ResId: nl.Swap16(unix.NFNL_SUBSYS_NFTABLES)})
	return r
}

func request(message int, family uint8, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
	r.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	return r
}

func protocol(f policy.Family) uint8 {
	if f == policy.IPv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attributes returns the attributes of a netfilter message, behind its four bytes of header.
func attributes(message []byte) map[uint16][]byte {
	if len(message) < nl.SizeofNfgenmsg {
		return nil
	}
	return nested(message[nl.SizeofNfgenmsg:])
}

// nested returns the attributes in data by their kind.
func nested(data []byte) map[uint16][]byte {
	return maps.Collect(netattr.All(data))
}

func text(value []byte) string { return strings.TrimRight(string(value), "\x00") }

// failed says what was tried, and what it takes if the kernel just refused.
func failed(what string, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: %w (needs NET_ADMIN)", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}
