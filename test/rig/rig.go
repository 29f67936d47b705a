package rig

import (
	"fmt"
	"net/netip"

	"github.com/routefence/routefence/test/netns"
)

// The addresses of the standard rig. The pod's are those of a Calico workload; the node's are owned both by the seed
// network, which is the leak, and by the far end of the VPN.
var (
	Pod4  = netip.MustParseAddr("10.1.178.85")
	Pod6  = netip.MustParseAddr("fd00:10:1::85")
	Node4 = netip.MustParseAddr("10.250.0.7")
	Node6 = netip.MustParseAddr("fd00:250::7")

	Network4 = netip.MustParsePrefix("10.250.0.0/16")
	Network6 = netip.MustParsePrefix("fd00:250::/48")

	// Translated is where Gardener maps node networks to (IPv4 only); see TranslatedNode.
	Translated = netip.MustParsePrefix("242.0.0.0/8")
	// TranslatedNode is Node4 after NETMAP of Network4 to 242.0.0.0/16.
	TranslatedNode = netip.MustParseAddr("242.0.0.7")

	Client4 = netip.MustParseAddr("10.99.0.2")
	Client6 = netip.MustParseAddr("fd00:99::2")
)

// Mapped is an IPv4 address as IPv6 sockets write it, ::ffff:a.b.c.d.
func Mapped(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }

// Options shape a rig. The zero value is the standard one.
type Options struct {
	// Networks are the node networks; all their addresses exist in the seed network and behind the VPN, and the counters
	// count what goes there. Default: Network4 and Network6.
	Networks []netip.Prefix
	// Forwarding adds the namespace Client behind the pod's second link eth1, and makes the pod a router.
	Forwarding bool
}

// Rig is rig R: a pod with eth0 to the seed network and, while it is up, tun0 to the far end of the VPN.
type Rig struct {
	*Lab
	// Pod is where the fence goes. Net is the seed network. VPN is the far end of the tunnels.
	Pod, Net, VPN *Namespace
	// Client is nil without Options.Forwarding.
	Client *Namespace
	// Tun is the tunnel tun0, down at first.
	Tun *Tunnel

	networks []netip.Prefix
	tunnels  int
	seed     *Counter
	far      *Counter
}

// New builds a rig which ends with the test. The tunnel is down.
func New(t T, o Options) *Rig {
	t.Helper()
	r := &Rig{Lab: NewLab(t), networks: o.Networks}
	if r.networks == nil {
		r.networks = []netip.Prefix{Network4, Network6}
	}
	r.Pod, r.Net, r.VPN = r.Namespace("pod"), r.Namespace("net"), r.Namespace("vpn")
	r.Pod.Sysctl("ipv4/ping_group_range", "0 2147483647")
	r.Net.Sysctl("ipv4/ip_forward", "1") // without it proxy_arp is silent
	r.ownNodes(r.Net)
	r.ownNodes(r.VPN)
	r.LinkPod()
	r.far = r.VPN.countTunnels(r.networks)
	if o.Forwarding {
		r.addClient()
	}
	r.Tun = r.NewTunnel("tun0")
	r.listen(r.Net, AnswerNet)
	r.listen(r.VPN, AnswerVPN)
	return r
}

// ownNodes makes every address of the node networks, and of the range they may be translated to, local to a namespace.
func (r *Rig) ownNodes(n *Namespace) {
	lines := []string{
		"addr add " + Node4.String() + "/32 dev lo",
		"addr add " + Node6.String() + "/128 dev lo nodad",
		"route add local " + Translated.String() + " dev lo",
	}
	for _, p := range r.networks {
		lines = append(lines, "route add local "+p.String()+" dev lo")
	}
	n.IP(lines...)
	// The answer to a ping tells by its hop limit which side sent it.
	if n == r.VPN {
		n.Sysctl("ipv4/ip_default_ttl", fmt.Sprint(farHops))
		n.Sysctl("ipv6/conf/all/hop_limit", fmt.Sprint(farHops))
		n.Sysctl("ipv6/conf/default/hop_limit", fmt.Sprint(farHops))
	}
}

// LinkPod makes the pod's eth0 in the shape Calico gives it: a /32, a gateway 169.254.1.1 that exists only by ARP, and a
// peer that answers every ARP request. It also points the seed side's counter at the peer. After "ip link del eth0" it
// makes the link again under a new index.
func (r *Rig) LinkPod() {
	r.Net.IP(
		"link add cali0 type veth peer name eth0 netns "+r.Pod.Name,
		"addr add 169.254.1.1/32 dev cali0",
		// The node's addresses on the link itself, too: IPv6 answers neighbour requests for no others.
		"addr add "+Node6.String()+"/128 dev cali0 nodad",
		"addr add fe80::1/64 dev cali0 nodad",
		"link set cali0 up",
		"route add "+Pod4.String()+" dev cali0",
		"route add "+Pod6.String()+" dev cali0",
	)
	r.Net.Sysctl("ipv4/conf/cali0/proxy_arp", "1")
	r.Pod.IP(
		"link set eth0 up",
		"addr add "+Pod4.String()+"/32 dev eth0",
		"addr add "+Pod6.String()+"/128 dev eth0 nodad",
		"route add 169.254.1.1 dev eth0 scope link",
		"route add default via 169.254.1.1 dev eth0",
		"route add default via fe80::1 dev eth0",
	)
	netns.AwaitLocal(r.t, r.Pod.Run, "eth0", Pod6.String(), "fe80:")
	if again := r.Net.CountEntry("cali0", r.networks); r.seed == nil {
		r.seed = again // else the old one goes on, with its zero
	}
	if r.Client != nil {
		r.routeClient()
	}
}

// addClient puts a namespace behind the pod, whose traffic the pod forwards.
func (r *Rig) addClient() {
	r.Client = r.Namespace("client")
	r.Client.Sysctl("ipv4/ping_group_range", "0 2147483647")
	r.Client.IP(
		"link add eth0 type veth peer name eth1 netns "+r.Pod.Name,
		"addr add "+Client4.String()+"/24 dev eth0",
		"addr add "+Client6.String()+"/64 dev eth0 nodad",
		"link set eth0 up",
		"route add default via 10.99.0.1",
		"route add default via fd00:99::1",
	)
	r.Pod.IP(
		"addr add 10.99.0.1/24 dev eth1",
		"addr add fd00:99::1/64 dev eth1 nodad",
		"link set eth1 up",
	)
	r.Pod.Sysctl("ipv4/ip_forward", "1")
	r.Pod.Sysctl("ipv6/conf/all/forwarding", "1")
	r.routeClient()
}

// routeClient lets the seed network find its way back to the client.
func (r *Rig) routeClient() {
	r.Net.IP("route add 10.99.0.0/24 via "+Pod4.String()+" dev cali0 onlink",
		"route add fd00:99::/64 via "+Pod6.String()+" dev cali0 onlink")
}

// Exec runs a program in the pod's namespace to its end.
func (r *Rig) Exec(args ...string) Result { return r.Pod.Exec(args...) }

// Start starts a program in the pod's namespace.
func (r *Rig) Start(args ...string) *Process {
	r.t.Helper()
	return r.Pod.Start(args...)
}
