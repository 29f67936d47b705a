package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// The addresses are those of the issue: a machine is a pod of the seed, so the seed network reaches it.
const (
	apiserverIP = "10.1.178.85"
	vpnServerIP = "10.1.131.18"
	gatewayIP   = "10.1.99.10"
	machineIP   = "10.1.54.75"
	// balancerIP is how machines reach the seed. An address within the node network would be answered through the tunnel that
	// is yet to be built.
	balancerIP = "172.18.255.1"

	seedPodNetwork = "10.1.0.0/16"
	nodeNetwork    = "10.1.54.0/24"
	podNetwork     = "10.3.0.0/16"
	serviceNetwork = "10.4.0.0/16"
	machinePods    = "10.3.0.0/24"

	apiserverIP6 = "fd00:10:1::85"
	vpnServerIP6 = "fd00:10:1::18"
	gatewayIP6   = "fd00:10:1::10"
	machineIP6   = "fd00:10:1:100::75"
	nodeNetwork6 = "fd00:10:1:100::/64"
	machinePods6 = "fd00:10:3::/64"
	// The ends of the tunnel, where nodes have IPv6 addresses. These are never translated.
	seedEnd6, shootEnd6 = "fd8f:6d53:b97a:1::1", "fd8f:6d53:b97a:1::2"
)

// translations are what today's VPN calls the shoot's networks.
var translations = map[string]string{nodeNetwork: "242.0.0.0/24", serviceNetwork: "243.0.0.0/16", podNetwork: "244.0.0.0/16"}

const translatedSeedPods = "241.0.0.0/16"

// world is the seed network with its pods, one of which is the shoot's machine.
type world struct {
	*rig.Lab
	router, apiserver, vpnServer, gateway, machine *rig.Namespace
}

func newWorld(lab *rig.Lab) *world {
	w := &world{Lab: lab, router: lab.Namespace("seed"), apiserver: lab.Namespace("kas"), vpnServer: lab.Namespace("vpn"),
		gateway: lab.Namespace("gate"), machine: lab.Namespace("node")}
	w.router.Sysctl("ipv4/ip_forward", "1")
	w.router.IP("addr add 169.254.1.1/32 dev lo")
	w.router.Sysctl("ipv6/conf/all/forwarding", "1")
	w.plug(w.apiserver, "cali-kas", apiserverIP, apiserverIP6)
	w.plug(w.vpnServer, "cali-vpn", vpnServerIP, vpnServerIP6)
	w.plug(w.gateway, "cali-gate", gatewayIP, gatewayIP6)
	w.plug(w.machine, "cali-node", machineIP, machineIP6)
	w.gateway.IP("addr add " + balancerIP + "/32 dev lo")
	w.router.IP("route add " + balancerIP + " via " + gatewayIP + " dev cali-gate onlink")
	w.machine.Sysctl("ipv4/ip_forward", "1")
	w.machine.Sysctl("ipv6/conf/all/forwarding", "1")
	w.vpnServer.Sysctl("ipv4/ip_forward", "1")
	w.router.Feed(directCounters, "nft -f -")
	for _, pod := range []*rig.Namespace{w.apiserver, w.vpnServer} {
		pod.Feed(tunnelCounter, "nft -f -")
	}
	return w
}

// plug connects a namespace to the seed network as Calico does: one address of each family, and gateways that exist only by ARP and by
// link-local address.
func (w *world) plug(n *rig.Namespace, port, address, address6 string) {
	w.router.IP(
		"link add "+port+" type veth peer name eth0 netns "+n.Name,
		"link set "+port+" up",
		"addr add fe80::1/64 dev "+port+" nodad",
		"route add "+address+" dev "+port,
		"route add "+address6+" dev "+port,
	)
	w.router.Sysctl("ipv4/conf/"+port+"/proxy_arp", "1")
	n.IP(
		"link set eth0 up",
		"addr add "+address+"/32 dev eth0",
		"route add 169.254.1.1 dev eth0 scope link",
		"route add default via 169.254.1.1 dev eth0",
		"addr add "+address6+"/128 dev eth0 nodad",
		"route add default via fe80::1 dev eth0",
	)
}

// directCounters sit in the seed network, out of reach of anything in the pods. Of what the machine sends only what accepts a connection
// to the kubelet counts: a kubelet goes on with keep-alives to peers that are gone.
const directCounters = `table inet seen {
	counter to_nodes {}
	counter to_translated {}
	counter accepted {}
	chain in {
		type filter hook prerouting priority -450
		iifname { "cali-kas", "cali-vpn" } ip daddr ` + nodeNetwork + ` counter name to_nodes
		iifname { "cali-kas", "cali-vpn" } ip6 daddr ` + nodeNetwork6 + ` counter name to_nodes
		iifname { "cali-kas", "cali-vpn" } ip daddr 242.0.0.0/8 counter name to_translated
		iifname "cali-node" ip daddr { ` + apiserverIP + `, ` + vpnServerIP + ` } tcp sport 10250 tcp flags & (syn | ack) == syn | ack counter name accepted
		iifname "cali-node" ip6 daddr { ` + apiserverIP6 + `, ` + vpnServerIP6 + ` } tcp sport 10250 tcp flags & (syn | ack) == syn | ack counter name accepted
	}
}
`

const tunnelCounter = `table inet seen {
	counter tunneled {}
	chain out {
		type filter hook postrouting priority 300
		oifname { "eth0", "lo" } accept
		ip daddr { ` + nodeNetwork + `, 242.0.0.0/8 } counter name tunneled
		ip6 daddr ` + nodeNetwork6 + ` counter name tunneled
	}
}
`

// counts are packets towards nodes.
type counts struct {
	// direct went over the seed network, connections accepted there included; translated is what had a name there that only the VPN knows.
	direct, translated int
	tunneled           int
}

// leaked is what must not be.
func (c counts) leaked() int { return c.direct + c.translated }

// count reads the counters and starts them at zero again.
func (w *world) count(t rig.T) (c counts) {
	t.Helper()
	seed := readCounters(t, w.router, "seen")
	c.direct, c.translated = seed["to_nodes"]+seed["accepted"], seed["to_translated"]
	c.tunneled = readCounters(t, w.apiserver, "seen")["tunneled"] + readCounters(t, w.vpnServer, "seen")["tunneled"]
	return c
}

func readCounters(t rig.T, n *rig.Namespace, table string) map[string]int {
	t.Helper()
	var listing struct {
		Nftables []struct {
			Counter struct {
				Name    string
				Packets int
			}
		}
	}
	if err := json.Unmarshal([]byte(n.Run("nft -j reset counters table inet "+table)), &listing); err != nil {
		t.Fatalf("read the counters in %s: %v", n.Name, err)
	}
	found := map[string]int{}
	for _, item := range listing.Nftables {
		found[item.Counter.Name] = item.Counter.Packets
	}
	return found
}

// dial connects from inside a namespace.
func dial(n *rig.Namespace, address string, patience time.Duration) (conn net.Conn, err error) {
	err = n.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp", address, patience)
		return err
	})
	return conn, err
}

// wait asks again and again until there is no error.
func wait(t rig.T, what string, patience time.Duration, ask func() error) {
	t.Helper()
	err := fmt.Errorf("not asked yet")
	for deadline := time.Now().Add(patience); err != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain until %s: %v", patience, what, err)
		}
		err = ask()
	}
}
