package rig

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
)

// Count is what arrived at one side since the counters were last reset.
type Count struct {
	// Packets went to an address of a node network, of either family.
	Packets uint64
	// Neighbour are ARP and neighbour discovery requests that asked for such an address.
	Neighbour uint64
	// Translated went to the range that node networks may be translated to.
	Translated uint64
	// Bound are those of Packets and Translated that a hammer's bound sockets sent, as their port tells.
	Bound uint64
}

// Total is all that should not have come, on the seed network's side.
func (c Count) Total() uint64 { return c.Packets + c.Neighbour + c.Translated }

func (c Count) minus(d Count) Count {
	return Count{c.Packets - d.Packets, c.Neighbour - d.Neighbour, c.Translated - d.Translated, c.Bound - d.Bound}
}

// Free is what sockets sent that are bound to no device. Nothing asks for a neighbour on their behalf but a route.
func (c Count) Free() uint64 { return c.Packets + c.Translated - c.Bound }

// Counter is a set of nft counters in one namespace. They count in the kernel, so they miss nothing under load, as a
// packet socket would.
type Counter struct {
	at   *Namespace
	zero Count
}

// rulesFor lists counting rules for the networks. Neighbour discovery comes first and counts once: a request to a known
// neighbour goes to the node's own address.
func rulesFor(networks []netip.Prefix) string {
	var requests, packets strings.Builder
	for _, p := range networks {
		if p.Addr().Is4() {
			fmt.Fprintf(&packets, "ip daddr %s counter name to_nodes\n", p)
			continue
		}
		fmt.Fprintf(&requests, "icmpv6 type nd-neighbor-solicit %s counter name asked_for accept\n", targetIn(p))
		fmt.Fprintf(&packets, "ip6 daddr %s counter name to_nodes\n", p)
	}
	fmt.Fprintf(&packets, "ip daddr %s counter name to_translated\n", Translated)
	fmt.Fprintf(&packets, "th dport %d counter name from_bound\n", BoundPort)
	return requests.String() + packets.String()
}

// targetIn matches neighbour requests whose target is in a network. Older nft has no word for the target, so it is read
// as the bits that follow the first eight bytes of the message.
func targetIn(p netip.Prefix) string {
	bytes := p.Addr().As16()
	whole := (p.Bits() + 7) / 8
	hex := fmt.Sprintf("0x%x", bytes[:whole])
	if rest := whole*8 - p.Bits(); rest > 0 {
		return fmt.Sprintf("@th,64,%d & %s == %s", whole*8, mask(whole, rest), hex)
	}
	return fmt.Sprintf("@th,64,%d %s", p.Bits(), hex)
}

func mask(whole, rest int) string {
	return "0x" + strings.Repeat("ff", whole-1) + fmt.Sprintf("%02x", 0xff<<rest&0xff)
}

const namedCounters = "counter to_nodes {\n}\ncounter asked_for {\n}\ncounter to_translated {\n}\ncounter from_bound {\n}\n"

// CountEntry counts what enters the namespace by a device, before anything could drop it. A device that was deleted takes
// its chain along, so this may be called again for a new one; the counters go on from where they were. There is one
// Counter to a namespace.
func (n *Namespace) CountEntry(device string, networks []netip.Prefix) *Counter {
	n.lab.t.Helper()
	var arp strings.Builder
	for _, p := range networks {
		if p.Addr().Is4() {
			fmt.Fprintf(&arp, "arp daddr ip %s counter name asked_for\n", p)
		}
	}
	n.Feed("table netdev rf_count {\n"+namedCounters+
		"chain in {\ntype filter hook ingress device \""+device+"\" priority -500\n"+
		arp.String()+rulesFor(networks)+"}\n}\n", "nft -f -")
	return &Counter{at: n}
}

// countTunnels counts what comes out of any device but lo. Tunnels come and go, so it counts at prerouting.
func (n *Namespace) countTunnels(networks []netip.Prefix) *Counter {
	n.lab.t.Helper()
	n.Feed("table inet rf_count {\n"+namedCounters+
		"chain in {\ntype filter hook prerouting priority -450\niifname \"lo\" accept\n"+
		rulesFor(networks)+"}\n}\n", "nft -f -")
	return &Counter{at: n}
}

// total reads the counters.
func (c *Counter) total() Count {
	c.at.lab.t.Helper()
	var listing struct {
		Nftables []struct {
			Counter struct {
				Name    string
				Packets uint64
			}
		}
	}
	text := c.at.Run("nft -j list counters")
	if err := json.Unmarshal([]byte(text), &listing); err != nil {
		c.at.lab.t.Fatalf("in %s: read the counters from %q: %v", c.at.Name, text, err)
	}
	var sum Count
	for _, item := range listing.Nftables {
		switch item.Counter.Name {
		case "to_nodes":
			sum.Packets = item.Counter.Packets
		case "asked_for":
			sum.Neighbour = item.Counter.Packets
		case "to_translated":
			sum.Translated = item.Counter.Packets
		case "from_bound":
			sum.Bound = item.Counter.Packets
		}
	}
	return sum
}

// Read returns what was counted since the last Reset.
func (c *Counter) Read() Count {
	c.at.lab.t.Helper()
	return c.total().minus(c.zero)
}

// Reset starts counting at zero again.
func (c *Counter) Reset() {
	c.at.lab.t.Helper()
	c.zero = c.total()
}

// SeedCount is what the pod sent towards node networks over the seed network: the leak.
func (r *Rig) SeedCount() Count {
	r.t.Helper()
	return r.seed.Read()
}

// VPNCount is what came out of the tunnels.
func (r *Rig) VPNCount() Count {
	r.t.Helper()
	return r.far.Read()
}

// ResetCounters starts counting at zero again, on both sides.
func (r *Rig) ResetCounters() {
	r.t.Helper()
	r.seed.Reset()
	r.far.Reset()
}
