package sockets

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/routefence/routefence/netattr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// trackedCount is how many connections the kernel tracks in this network namespace. The file is there once conntrack is loaded.
const trackedCount = "/proc/sys/net/netfilter/nf_conntrack_count"

// The attributes of an entry of conntrack that tell its two ends, and the size of the header before them (struct nfgenmsg).
const (
	headerSize  = 4
	tupleIP     = nl.CTA_TUPLE_IP
	destination = 2
	source      = 1
)

// Forget deletes the entries of conntrack for connections to peers that are meant, and returns how many: with its entry a forwarded
// connection loses what it was allowed, or translated to, when it began. Those that begin in this namespace lose theirs as well, which
// nobody notices; those that come in from a peer keep it.
func (k *Kernel) Forget(meant func(peer netip.Addr) bool) (int, error) {
	// Where nothing is tracked the question alone would load the kernel's module for it.
	if text, err := os.ReadFile(trackedCount); err != nil || strings.TrimSpace(string(text)) == "0" {
		return 0, nil
	}
	var forgotten int
	var errs []error
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		n, err := k.forget(family, meant)
		forgotten += n
		if err != nil {
			errs = append(errs, fmt.Errorf("%w (needs NET_ADMIN and CONFIG_NF_CT_NETLINK; the fence stops what is forwarded all the same)", err))
		}
	}
	return forgotten, errors.Join(errs...)
}

func (k *Kernel) forget(family uint8, meant func(netip.Addr) bool) (int, error) {
	var found [][]byte
	err := k.conntrack(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, family, nil, func(m []byte) bool {
		if peersOf(m).meet(meant) {
			found = append(found, slices.Clone(m[headerSize:]))
		}
		return true
	})
	if err != nil {
		return 0, fmt.Errorf("list tracked connections: %w", err)
	}
	var forgotten int
	var errs []error
	for _, entry := range found {
		switch err := k.conntrack(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, family, entry, nil); {
		case err == nil:
			forgotten++
		case errors.Is(err, unix.ENOENT): // it has ended by itself
		default:
			errs = append(errs, fmt.Errorf("forget tracked connection: %w", err))
		}
	}
	return forgotten, errors.Join(errs...)
}

func (k *Kernel) conntrack(kind, flags int, family uint8, entry []byte, each func([]byte) bool) error {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: k.tracker, Seq: req.Seq}}
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	req.AddRawData(entry)
	if each == nil {
		_, err := req.Execute(unix.NETLINK_NETFILTER, 0)
		return err
	}
	return req.ExecuteIter(unix.NETLINK_NETFILTER, 0, each)
}

// peers are to whom a connection goes: as it began, and as the packets are sent after nat.
type peers struct{ asked, reached netip.Addr }

func (p peers) meet(meant func(netip.Addr) bool) bool {
	return p.asked.IsValid() && meant(p.asked) || p.reached.IsValid() && meant(p.reached)
}

// peersOf reads an entry. What is not understood has no peers.
func peersOf(m []byte) (p peers) {
	if len(m) < headerSize {
		return p
	}
	for kind, tuple := range netattr.All(m[headerSize:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			p.asked = addressIn(tuple, destination)
		case nl.CTA_TUPLE_REPLY:
			p.reached = addressIn(tuple, source)
		}
	}
	return p
}

// addressIn returns one end of a tuple. IPv4's attributes are numbered 1 and 2, IPv6's 3 and 4.
func addressIn(tuple []byte, end uint16) (out netip.Addr) {
	for kind, ends := range netattr.All(tuple) {
		if kind != tupleIP {
			continue
		}
		for kind, addr := range netattr.All(ends) {
			if kind == end || kind == end+2 {
				out, _ = netip.AddrFromSlice(addr)
			}
		}
	}
	return out
}
