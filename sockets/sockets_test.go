package sockets

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/test/netns"
	"golang.org/x/sys/unix"
)

// TestSever ends exactly the connections whose peer is in the set: IPv4, IPv6, and IPv4 through an IPv6 socket.
func TestSever(t *testing.T) {
	netns.Enter(t)
	netns.Run(t, "ip addr add 10.250.0.7/32 dev lo")
	netns.Run(t, "ip addr add 10.9.9.9/32 dev lo")
	netns.Run(t, "ip addr add fd00:250::7/128 dev lo nodad")
	netns.AwaitLocal(t, func(line string) string { return netns.Run(t, line) }, "lo", "fd00:250::7")
	k, err := New()
	if err != nil {
		t.Fatal(err)
	}
	peers := map[string]bool{"10.250.0.7": true, "fd00:250::7": true, "::ffff:10.250.0.7": true, "10.9.9.9": false}
	ends := map[string]int{}
	for peer := range peers {
		ends[peer] = connect(t, netip.MustParseAddr(peer))
	}
	to := ranges.Of(netip.MustParsePrefix("10.250.0.0/16"), netip.MustParsePrefix("fd00:250::/48"))
	meant := func(peer netip.Addr, _ int, _ bool) bool { return to.Contains(peer) }
	came := 0
	if n, err := k.Sever(func(peer netip.Addr, link int, incoming bool) bool {
		if incoming {
			came++
		}
		return meant(peer, link, incoming) && link == 77
	}); n != 0 || err != nil {
		t.Errorf("bound to another interface: severed %d, %v", n, err)
	}
	if came != len(peers) {
		t.Errorf("%d connections came in, want one end of each of %d", came, len(peers))
	}
	n, err := k.Sever(meant)
	if err != nil || n != 3 {
		t.Errorf("severed %d connections (%v), want 3", n, err)
	}
	for peer, severed := range peers {
		_, err := unix.Write(ends[peer], []byte("x"))
		if severed != (err != nil) {
			t.Errorf("%s: write says %v", peer, err)
		}
	}
	if n, err := k.Sever(meant); n != 0 || err != nil {
		t.Errorf("again: severed %d, %v", n, err)
	}
}

// connect opens a connection within the namespace and returns the connecting socket. All sockets are made by this
// thread, which is the one in the namespace.
func connect(t *testing.T, peer netip.Addr) int {
	t.Helper()
	family := unix.AF_INET
	var at unix.Sockaddr
	if peer.Is4() {
		at = &unix.SockaddrInet4{Addr: peer.As4(), Port: 10250}
	} else {
		family = unix.AF_INET6
		at = &unix.SockaddrInet6{Addr: peer.As16(), Port: 10251}
	}
	l, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(l) })
	if err := errors.Join(unix.Bind(l, at), unix.Listen(l, 1)); err != nil {
		t.Fatal(err)
	}
	c, err := unix.Socket(family, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(c) })
	if err := unix.Connect(c, at); err != nil {
		t.Fatalf("connect to %s: %v", peer, err)
	}
	return c
}

// TestNone: a new namespace has no TCP socket; one of either family, connected or not, is some.
func TestNone(t *testing.T) {
	netns.Enter(t)
	if !none() {
		t.Error("a new namespace has sockets")
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		s, err := unix.Socket(family, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Listen(s, 1); err != nil {
			t.Fatal(err)
		}
		if none() {
			t.Errorf("family %d: a socket that listens is not seen", family)
		}
		unix.Close(s)
		if !none() {
			t.Errorf("family %d: a closed socket is still seen", family)
		}
	}
}
