package rig

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Port is the kubelet's; HammerPort takes what needs no answer, BoundPort the same from bound sockets.
const (
	Port       = 10250
	HammerPort = 10251
	BoundPort  = 10252
)

// What the two sides answer, so that one connection tells which way its packets went.
const (
	AnswerNet = "NET"
	AnswerVPN = "VPN"
)

// listen answers on Port in a namespace, by TCP and UDP, and takes UDP on HammerPort and BoundPort without a word.
func (r *Rig) listen(n *Namespace, answer string) {
	r.t.Helper()
	var l net.Listener
	r.own(n, func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", Port))
		return err
	})
	r.t.Cleanup(func() { l.Close() })
	go answerTCP(l, answer)
	// One socket per address: the answer has to come from the address that was asked.
	for _, a := range []netip.Addr{Node4, Node6, TranslatedNode} {
		c := r.packetSocket(n, netip.AddrPortFrom(a, Port).String())
		go answerUDP(c, answer)
	}
	// Nobody reads here. The kernel drops what does not fit, and sends no "port unreachable" either.
	r.packetSocket(n, fmt.Sprintf(":%d", HammerPort))
	r.packetSocket(n, fmt.Sprintf(":%d", BoundPort))
}

func (r *Rig) packetSocket(n *Namespace, address string) net.PacketConn {
	r.t.Helper()
	var c net.PacketConn
	r.own(n, func() (err error) {
		c, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", address)
		return err
	})
	r.t.Cleanup(func() { c.Close() })
	return c
}

func (r *Rig) own(n *Namespace, open func() error) {
	r.t.Helper()
	if err := n.Do(open); err != nil {
		r.t.Fatalf("in %s: %v", n.Name, err)
	}
}

// answerTCP answers until the listener is closed.
func answerTCP(l net.Listener, answer string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		_, _ = c.Write([]byte(answer)) // a caller who has gone needs no answer
		c.Close()
	}
}

// answerUDP answers until the socket is closed.
func answerUDP(c net.PacketConn, answer string) {
	buffer := make([]byte, 64)
	for {
		_, from, err := c.ReadFrom(buffer)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte(answer), from)
	}
}

// sockaddr turns an address into what the socket calls take, and names the family of socket it needs. Mapped addresses
// need an IPv6 socket, as 4-in-6 is what they are to probe.
func sockaddr(a netip.Addr, port int) (unix.Sockaddr, int) {
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: port}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: port}, unix.AF_INET6
}
