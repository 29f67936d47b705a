//go:build vm

package ha

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"golang.org/x/sys/unix"
)

// watch sees every frame that enters a namespace by a device, by a packet socket: it needs nothing of netfilter, and the
// few packets of these tests do not overrun it.
type watch struct {
	fd int

	mutex sync.Mutex
	seen  []netip.Addr
}

func watchEntry(t *testing.T, n *rig.Namespace, device string) *watch {
	t.Helper()
	w := new(watch)
	err := n.Do(func() (err error) {
		w.fd, err = packetSocket(device)
		return err
	})
	if err != nil {
		t.Fatalf("watch %s in %s: %v", device, n.Name, err)
	}
	var reading sync.WaitGroup
	stop := make(chan struct{})
	reading.Go(func() { w.read(stop) })
	t.Cleanup(func() {
		close(stop)
		reading.Wait()
		if s, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err != nil || s.Drops != 0 {
			t.Errorf("the watch has missed %v packets (%v)", s, err)
		}
		unix.Close(w.fd)
	})
	return w
}

// packetSocket runs on the namespace's thread.
func packetSocket(device string) (int, error) {
	protocol := int(binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return -1, err
	}
	link, err := interfaceIndex(fd, device)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(protocol), Ifindex: link})
	}
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000})
	}
	if err != nil {
		unix.Close(fd)
	}
	return fd, err
}

func interfaceIndex(fd int, device string) (int, error) {
	request, err := unix.NewIfreq(device)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	}
	if err != nil {
		return 0, err
	}
	return int(request.Uint32()), nil
}

func (w *watch) read(stop <-chan struct{}) {
	frame := make([]byte, 1<<16)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(w.fd, frame, 0)
		if err != nil {
			continue // the time limit, by which this loop sees its end
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if a := target(frame[:n]); a.IsValid() {
			w.mutex.Lock()
			w.seen = append(w.seen, a)
			w.mutex.Unlock()
		}
	}
}

// target is whom a frame is for: a packet's destination, or the address that a neighbour request asks for.
func target(frame []byte) netip.Addr {
	const ethernet = 14
	if len(frame) < ethernet+28 {
		return netip.Addr{}
	}
	kind, packet := binary.BigEndian.Uint16(frame[12:]), frame[ethernet:]
	var a []byte
	switch {
	case kind == unix.ETH_P_ARP:
		a = packet[24:28]
	case kind == unix.ETH_P_IP:
		a = packet[16:20]
	case kind == unix.ETH_P_IPV6 && len(packet) >= 64 && packet[6] == unix.IPPROTO_ICMPV6 && packet[40] == 135:
		a = packet[48:64]
	case kind == unix.ETH_P_IPV6 && len(packet) >= 40:
		a = packet[24:40]
	}
	address, _ := netip.AddrFromSlice(a)
	return address
}

// settle is ample for a packet that was sent to be read on the other side.
const settle = 300 * time.Millisecond

// to returns the node addresses and the addresses of bonds to which something went since the last call.
func (w *watch) to() (nodes, bonds []netip.Addr) {
	time.Sleep(settle)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, a := range w.seen {
		switch {
		case rig.Network4.Contains(a), rig.Network6.Contains(a):
			nodes = append(nodes, a)
		case transfer.Contains(a):
			bonds = append(bonds, a)
		}
	}
	w.seen = nil
	return nodes, bonds
}
