// Package selftest decides which addresses a test of the fence tries to reach, and what came of it: for each attempt, whether the
// layer that had to stop it did so.
//
// It is pure: package dial makes the attempts.
package selftest

import (
	"net/netip"

	"github.com/routefence/routefence/policy"
)

// Layer is a layer of the fence.
type Layer string

// The two layers. Routes must stop a socket that leaves the choice of the way to the kernel, or send it into a tunnel. A socket that is
// bound to a fenced interface goes there whatever routing says, so that is the firewall's to stop: for IPv4 a failed look-up means
// "then it is on-link", and for IPv6 routes of other interfaces, which a blackhole's lo is, do not count.
const (
	Routes   Layer = "routes"
	Firewall Layer = "firewall"
)

// Protocol is a transport protocol.
type Protocol string

// The protocols that are tried.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Port returns where the attempts of a protocol go: to the kubelet, as a kube-apiserver's do, and to a port of traceroute's, where
// nobody listens.
func (p Protocol) Port() uint16 {
	if p == TCP {
		return 10250
	}
	return 33434
}

// Attempt is one try to reach an address: a TCP connection, or one UDP datagram.
type Attempt struct {
	Addr     netip.Addr
	Protocol Protocol
	// Interface is what the socket is bound to, "" for nothing.
	Interface string
}

// Layer returns the layer that the attempt is up against.
func (a Attempt) Layer() Layer {
	if a.Interface == "" {
		return Routes
	}
	return Firewall
}

// Attempts returns all that is tried for an address, in their order.
func Attempts(addr netip.Addr, fenced []string) []Attempt {
	var out []Attempt
	for _, link := range append([]string{""}, fenced...) {
		for _, p := range []Protocol{TCP, UDP} {
			out = append(out, Attempt{Addr: addr, Protocol: p, Interface: link})
		}
	}
	return out
}

// Step is how far an attempt got.
type Step uint8

const (
	// Untried: there was no socket to try with.
	Untried Step = iota
	// Unrouted: the kernel refused when it looked for a route. Nothing was sent.
	Unrouted
	// Refused: a route was found, and an error came after that.
	Refused
	// Unanswered: a TCP connection did not come about in time.
	Unanswered
	// Sent: the kernel took a UDP datagram.
	Sent
	// Connected: the TCP connection was established.
	Connected
)

// Outcome is what the kernel said to an attempt.
type Outcome struct {
	Step Step
	// Error is the name of the error, such as "EINVAL", where there was one.
	Error string
	// Source is the address that the kernel chose for the socket, once there was a route.
	Source netip.Addr
}

// Evidence is all that is known about an attempt that was made.
type Evidence struct {
	Attempt
	Outcome
	// Egress is the interface that the kernel's routing has for the packet, "" for none, and Role what that is to the fence.
	Egress string
	Role   policy.Role
	// TranslatedTo is what nat OUTPUT makes of the address, if it does.
	TranslatedTo netip.Addr
	// Stopped is by how much our own REJECT and DROP rules for the address on fenced interfaces counted on meanwhile: on Interface,
	// or on any where that is "". Sunk is the same for lo, where translated networks have their sink.
	Stopped, Sunk uint64
	// Open is why the rules, as read back, would let the packet out by Interface; "" if they would not.
	Open string
}

// Result is what an attempt, or all of them, proved.
type Result string

// The results. Inconclusive is neither good nor bad: the attempt did not get as far as the layer it was up against.
const (
	Pass         Result = "pass"
	Fail         Result = "fail"
	Inconclusive Result = "inconclusive"
)
