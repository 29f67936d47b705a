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
	seen  []packet
}

// packet is whom a frame is for, and whom the packet inside is for if it is one of the tunnel's.
type packet struct{ to, inner netip.Addr }

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
	reading.Go(func() { w.listen(stop) })
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

func (w *watch) listen(stop <-chan struct{}) {
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
		if p := read(frame[:n]); p.to.IsValid() {
			w.mutex.Lock()
			w.seen = append(w.seen, p)
			w.mutex.Unlock()
		}
	}
}

// read takes a frame apart. A neighbour request is for the address that it asks for.
func read(frame []byte) packet {
	const ethernet, ipv6 = 14, 40
	if len(frame) < ethernet+28 {
		return packet{}
	}
	kind, p := binary.BigEndian.Uint16(frame[12:]), frame[ethernet:]
	switch {
	case kind == unix.ETH_P_ARP:
		return packet{to: address(p[24:28])}
	case kind == unix.ETH_P_IP:
		return packet{to: address(p[16:20])}
	case kind != unix.ETH_P_IPV6 || len(p) < ipv6+20:
		return packet{}
	}
	to, inside := address(p[24:40]), p[ipv6:]
	switch next := p[6]; {
	case next == unix.IPPROTO_ICMPV6 && inside[0] == 135 && len(inside) >= 24:
		return packet{to: address(inside[8:24])}
	case next == unix.IPPROTO_IPIP:
		return packet{to, address(inside[16:20])}
	case next == unix.IPPROTO_IPV6 && len(inside) >= ipv6:
		return packet{to, address(inside[24:40])}
	}
	return packet{to: to}
}

func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

// settle is ample for a packet that was sent to be read on the other side.
const settle = 300 * time.Millisecond

// to returns the node addresses to which something went since the last call, by itself and inside of the tunnel's packets.
// What a tunnel says of its own accord, to routers and groups, is neither.
func (w *watch) to() (bare, tunneled []netip.Addr) {
	time.Sleep(settle)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	node := func(a netip.Addr) bool { return rig.Network4.Contains(a) || rig.Network6.Contains(a) }
	for _, p := range w.seen {
		switch {
		case node(p.to):
			bare = append(bare, p.to)
		case node(p.inner):
			tunneled = append(tunneled, p.inner)
		}
	}
	w.seen = nil
	return bare, tunneled
}
