package main

import (
	"net/netip"

	"github.com/routefence/routefence/test/rig"
)

// The addresses of the demo: the pod and the gateway of the seed are Calico workloads, the VPN has the transfer network
// and the real node addresses that Gardener used when the defect was reported.
const (
	podAddress     = "10.1.178.85"
	gatewayAddress = "10.1.99.10"
	nodeAddress    = "10.250.0.7"
	nodeNetwork    = "10.250.0.0"
	nodeMask       = "255.255.0.0"
)

// world is a control plane pod, a seed network and a shoot node that can be reached both ways.
type world struct {
	*rig.Lab
	pod, seed, node *rig.Namespace
	// direct counts in the seed network what the pod sends towards nodes; tunneled counts at the node what came by the VPN.
	direct, tunneled *rig.Counter
}

func newWorld(s *stage) *world {
	lab := rig.NewLab(s)
	w := &world{Lab: lab, pod: lab.Namespace("pod"), seed: lab.Namespace("seed"), node: lab.Namespace("node")}
	w.seed.Sysctl("ipv4/ip_forward", "1")
	w.plug(w.pod, "cali-pod", podAddress)
	w.plug(w.node, "cali-node", nodeAddress)
	w.seed.Run("ip addr add " + gatewayAddress + "/32 dev lo")
	w.seed.Feed(gateway, "nft -f -")
	// The node's end of the VPN outlives its OpenVPN, so that the kubelet can listen on it all the time.
	w.node.Run("ip tuntap add dev tun0 mode tun")
	networks := []netip.Prefix{rig.Network4}
	w.direct = w.seed.CountEntry("cali-pod", networks)
	w.tunneled = w.node.CountEntry("tun0", networks)
	return w
}

// gateway lets the node's VPN client come in under an address outside of the node network, as Gardener's gateway does:
// answers to a node's own address would be routed into the tunnel that they are to bring up.
const gateway = `table ip gateway {
	chain out {
		type nat hook postrouting priority 100
		oifname "cali-pod" ip saddr ` + nodeNetwork + `/16 tcp dport 1194 snat to ` + gatewayAddress + `
	}
}
`

// plug connects a namespace to the seed network as Calico does: one address, and a gateway that exists only by ARP.
func (w *world) plug(n *rig.Namespace, port, address string) {
	w.seed.IP(
		"link add "+port+" type veth peer name eth0 netns "+n.Name,
		"addr add 169.254.1.1/32 dev "+port,
		"link set "+port+" up",
		"route add "+address+" dev "+port,
	)
	w.seed.Sysctl("ipv4/conf/"+port+"/proxy_arp", "1")
	n.IP(
		"link set eth0 up",
		"addr add "+address+"/32 dev eth0",
		"route add 169.254.1.1 dev eth0 scope link",
		"route add default via 169.254.1.1 dev eth0",
	)
}
