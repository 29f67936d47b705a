// Package sockets ends connections of the network namespace: TCP by destroying its sockets, forwarded ones by making conntrack forget
// them.
//
// A connection that ran over a fenced interface before the fence stood has no route left: its writes succeed into the buffer,
// then nothing happens for minutes. Its owner must learn at once (gardener/gardener#9604 restarts kube-apiserver pods for
// that reason).
package sockets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Kernel is the sockets of the network namespace in which New was called.
type Kernel struct {
	diag, tracker *nl.NetlinkSocket
}

// New opens netlink sockets in the calling thread's network namespace.
func New() (*Kernel, error) {
	s, err := nl.Subscribe(unix.NETLINK_INET_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open sock_diag socket: %w", err)
	}
	c, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("open netfilter socket: %w", err)
	}
	return &Kernel{diag: s, tracker: c}, nil
}

// The parts of struct inet_diag_sockid, which stands in the kernel's answers and in our requests alike.
const (
	idOffset    = 4
	idSize      = 48
	portSize    = 2
	remotePart  = 20
	linkPart    = 36
	stateListen = 10
	// listed are the states of sockets that have a peer, all but CLOSE and TIME_WAIT, and LISTEN, as bits.
	listed = 1<<1 | 1<<2 | 1<<3 | 1<<4 | 1<<5 | 1<<8 | 1<<9 | 1<<stateListen | 1<<11 | 1<<12
)

// request is a struct inet_diag_req_v2, which names one socket.
type request struct {
	family uint8
	id     [idSize]byte
}

// Len implements nl.NetlinkRequestData.
func (r *request) Len() int { return 8 + idSize }

// Serialize implements nl.NetlinkRequestData.
func (r *request) Serialize() []byte {
	b := append([]byte{r.family, unix.IPPROTO_TCP, 0, 0}, make([]byte, 4)...)
	return append(b, r.id[:]...)
}

// listing is the older struct inet_diag_req, which asks for the TCP sockets of both families at once. Its successor asks for one, and
// each time the kernel walks over the tables of all namespaces, which are large.
type listing struct{}

// getTCPSockets is the message for it (TCPDIAG_GETSOCK).
const getTCPSockets = 18

// Len implements nl.NetlinkRequestData.
func (listing) Len() int { return 4 + idSize + 8 }

// Serialize implements nl.NetlinkRequestData.
func (l listing) Serialize() []byte {
	b := make([]byte, l.Len())
	binary.NativeEndian.PutUint32(b[4+idSize:], listed)
	return b
}

// Sever ends the connections that are meant and returns how many. Meant is told the address of their peer, the interface that the
// socket is bound to, or 0, and whether they came in: their port is one that a socket of the namespace listens at. Listing sockets costs
// the most, as the kernel walks over the tables of all namespaces: it is done once.
func (k *Kernel) Sever(meant func(peer netip.Addr, link int, incoming bool) bool) (int, error) {
	if none() {
		return 0, nil
	}
	found, err := k.find(meant)
	if err != nil {
		return 0, fmt.Errorf("list TCP sockets: %w", err)
	}
	var ended int
	var errs []error
	for _, r := range found {
		switch err := k.execute(nl.SOCK_DESTROY, unix.NLM_F_ACK, r, nil); {
		case err == nil:
			ended++
		case errors.Is(err, unix.ENOENT): // it has ended by itself
		case errors.Is(err, unix.EOPNOTSUPP):
			return ended, fmt.Errorf("destroy TCP socket: %w (the kernel lacks CONFIG_INET_DIAG_DESTROY; connections to node networks time out by themselves)", err)
		default:
			errs = append(errs, fmt.Errorf("destroy TCP socket: %w (needs NET_ADMIN)", err))
		}
	}
	return ended, errors.Join(errs...)
}

// none reports whether the namespace of the calling thread has no TCP socket at all, as that of a pod that starts. The kernel counts them
// anyway, while listing them means a walk over the tables of all namespaces. What cannot be read counts as some.
func none() bool {
	for file, line := range map[string]string{"sockstat": "TCP: inuse 0 ", "sockstat6": "TCP6: inuse 0\n"} {
		data, err := os.ReadFile("/proc/thread-self/net/" + file)
		if errors.Is(err, fs.ErrNotExist) && file == "sockstat6" {
			continue // a kernel without IPv6
		}
		if err != nil || !strings.Contains(string(data), line) {
			return false
		}
	}
	return true
}

func (k *Kernel) find(meant func(netip.Addr, int, bool) bool) ([]*request, error) {
	var out []*request
	listening := map[[portSize]byte]bool{}
	err := k.execute(getTCPSockets, unix.NLM_F_DUMP, listing{}, func(m []byte) bool {
		if len(m) < idOffset+idSize {
			return true
		}
		id := m[idOffset : idOffset+idSize]
		port := [portSize]byte(id)
		if m[1] == stateListen {
			listening[port] = true // these come before all others (inet_diag_dump_icsk)
			return true
		}
		if meant(remote(m[0], id), int(binary.NativeEndian.Uint32(id[linkPart:])), listening[port]) {
			r := &request{family: m[0]}
			copy(r.id[:], id)
			out = append(out, r)
		}
		return true
	})
	return out, err
}

// remote returns the peer's address. An IPv6 socket may be connected to an IPv4 peer (::ffff:a.b.c.d).
func remote(family uint8, id []byte) netip.Addr {
	size := 4
	if family == unix.AF_INET6 {
		size = 16
	}
	a, _ := netip.AddrFromSlice(id[remotePart : remotePart+size])
	return a.Unmap()
}

func (k *Kernel) execute(kind, flags int, data nl.NetlinkRequestData, each func([]byte) bool) error {
	req := nl.NewNetlinkRequest(kind, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_INET_DIAG: {Socket: k.diag, Seq: req.Seq}}
	req.AddData(data)
	if each == nil {
		_, err := req.Execute(unix.NETLINK_INET_DIAG, 0)
		return err
	}
	return req.ExecuteIter(unix.NETLINK_INET_DIAG, uint16(kind), each)
}
