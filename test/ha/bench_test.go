//go:build vm

package ha

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// bench is rig R with the devices of the highly available VPN in place of tun0. It does without nft, which not every
// guest has.
type bench struct {
	*rig.Rig
	t *testing.T
	// watch sees all that enters the seed network.
	watch *watch
	wires [2]*wire
}

// The addresses of both bonds, as Gardener gives them: a kube-apiserver's and a shoot client's.
var (
	podBond = netip.MustParseAddr("fd8f:6d53:b97a:1::a:1")
	farBond = netip.MustParseAddr("fd8f:6d53:b97a:1::b:0")
)

// tunnel is the device that vpn2 makes in a kube-apiserver pod.
const tunnel = "bond0-ip6tnl0"

var (
	networks  = []netip.Prefix{rig.Network4, rig.Network6}
	addresses = []netip.Addr{rig.Node4, rig.Node6, rig.Mapped(rig.Node4)}
)

// newBench has eth0, and no VPN device yet.
func newBench(t *testing.T) *bench {
	t.Helper()
	lab := rig.NewLab(t)
	b := &bench{t: t, Rig: &rig.Rig{Lab: lab, Pod: lab.Namespace("pod"), Net: lab.Namespace("net"), VPN: lab.Namespace("vpn")}}
	b.Net.Sysctl("ipv4/ip_forward", "1") // without it proxy_arp is silent
	for _, n := range []*rig.Namespace{b.Net, b.VPN} {
		n.IP("addr add "+rig.Node4.String()+"/32 dev lo", "addr add "+rig.Node6.String()+"/128 dev lo nodad",
			"route add local "+rig.Network4.String()+" dev lo", "route add local "+rig.Network6.String()+" dev lo")
	}
	b.linkPod()
	b.listen(b.Net, rig.AnswerNet)
	b.listen(b.VPN, rig.AnswerVPN)
	b.watch = watchEntry(t, b.Net, "cali0")
	return b
}

// linkPod makes eth0 in the shape Calico gives it.
func (b *bench) linkPod() {
	b.Net.IP(
		"link add cali0 type veth peer name eth0 netns "+b.Pod.Name,
		"addr add 169.254.1.1/32 dev cali0",
		"addr add fe80::1/64 dev cali0 nodad",
		"link set cali0 up",
		"route add "+rig.Pod4.String()+" dev cali0",
		"route add "+rig.Pod6.String()+" dev cali0",
	)
	b.Net.Sysctl("ipv4/conf/cali0/proxy_arp", "1")
	b.Pod.IP(
		"link set eth0 up",
		"addr add "+rig.Pod4.String()+"/32 dev eth0",
		"addr add "+rig.Pod6.String()+"/128 dev eth0 nodad",
		"route add 169.254.1.1 dev eth0 scope link",
		"route add default via 169.254.1.1 dev eth0",
		"route add default via fe80::1 dev eth0",
	)
}

// listen answers on the kubelet's port.
func (b *bench) listen(n *rig.Namespace, answer string) {
	b.t.Helper()
	var l net.Listener
	err := n.Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf(":%d", rig.Port))
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(answer)) // a caller who has gone needs no answer
			c.Close()
		}
	}()
}

// bonds makes bond0 over two taps on both sides, as vpn2 does, and plugs the taps together.
func (b *bench) bonds() {
	b.t.Helper()
	for n, address := range map[*rig.Namespace]netip.Addr{b.Pod: podBond, b.VPN: farBond} {
		n.IP(
			"tuntap add dev tap0 mode tap",
			"tuntap add dev tap1 mode tap",
			"link add bond0 type bond mode active-backup fail_over_mac active miimon 100 num_grat_arp 5",
			"link set tap0 master bond0",
			"link set tap1 master bond0",
			"link set bond0 type bond primary tap0",
			"addr add "+address.String()+"/104 dev bond0 nodad",
			"link set bond0 up",
		)
	}
	b.plug(0)
	b.plug(1)
}

// unbond deletes bond0 and its taps in the pod.
func (b *bench) unbond() {
	b.Pod.IP("link del bond0", "link del tap0", "link del tap1")
}

// tunnels makes bond0-ip6tnl0 on both sides.
func (b *bench) tunnels() {
	b.t.Helper()
	b.tunnel(b.Pod, podBond, farBond)
	b.tunnel(b.VPN, farBond, podBond)
	// The way back to the pod's own addresses.
	b.VPN.IP("route add default dev "+tunnel, "route add ::/0 dev "+tunnel)
}

func (b *bench) tunnel(n *rig.Namespace, local, remote netip.Addr) {
	n.IP(fmt.Sprintf("link add %s type ip6tnl mode any local %s remote %s encaplimit none", tunnel, local, remote),
		"link set "+tunnel+" up")
}

// route sends the node networks through a device, as the path controller does.
func (b *bench) route(device string) {
	b.t.Helper()
	for _, p := range networks {
		b.Pod.IP(fmt.Sprintf("route replace %s dev %s", p, device))
	}
}

// vpn brings the whole VPN up.
func (b *bench) vpn() {
	b.t.Helper()
	b.bonds()
	b.tunnels()
	b.route(tunnel)
}

// plug connects the taps of one number, unplug takes the carrier from both.
func (b *bench) plug(i int) {
	b.t.Helper()
	b.wires[i] = newWire(b.t, fmt.Sprintf("tap%d", i), b.Pod, b.VPN)
}

func (b *bench) unplug(i int) { b.wires[i].cut() }
