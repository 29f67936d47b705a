package e2e

import (
	"bufio"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// Options are those of vpn2, but for a keepalive that notices a dead peer within seconds.
const vpnCommon = `verb 3
data-ciphers AES-256-GCM
auth SHA256
tcp-nodelay
txqueuelen 1000
disable-dco
`

const vpnServer = vpnCommon + `mode server
tls-server
proto tcp4-server
port 1194
topology subnet
dh none
keepalive 1 4
client-config-dir %[1]s/clients
ca %[1]s/pki/ca.crt
cert %[1]s/pki/vpn-seed-server.crt
key %[1]s/pki/vpn-seed-server.key
`

const vpnClient = vpnCommon + `client
nobind
proto tcp4-client
connect-retry 1 1
remote-cert-tls server
ping 1
ping-restart 4
`

// shootClient runs in the vpn-shoot pod and comes in by the seed's gateway.
const shootClient = vpnClient + `remote ` + vpnServerIP + ` 1194
http-proxy ` + balancerIP + ` 8132
http-proxy-option CUSTOM-HEADER Reversed-VPN outbound|1194||vpn-seed-server
ca /etc/vpn/ca.crt
cert /etc/vpn/vpn-shoot-client.crt
key /etc/vpn/vpn-shoot-client.key
`

// seedClient runs in the pod of a highly available kube-apiserver.
const seedClient = vpnClient + `remote ` + vpnServerIP + ` 1194
dev-type tap
dev %[2]s
ca %[1]s/pki/ca.crt
cert %[1]s/pki/vpn-seed-client.crt
key %[1]s/pki/vpn-seed-client.key
`

// networks are what the VPN leads to, as it calls them.
func (l *lab) networks() []string {
	if l.variant.translated {
		return []string{"242.0.0.0/8", "243.0.0.0/8", "244.0.0.0/8"}
	}
	known := []string{podNetwork, serviceNetwork}
	if l.nodesKnown {
		known = append(known, nodeNetwork)
	}
	return known
}

func netmask(cidr string) string {
	address, bits, _ := strings.Cut(cidr, "/")
	return address + " " + map[string]string{"8": "255.0.0.0", "16": "255.255.0.0", "24": "255.255.255.0"}[bits]
}

// writeShootVPN writes what the vpn-shoot pod has mounted.
func (l *lab) writeShootVPN() {
	client := shootClient
	if l.variant.highlyAvailable {
		client += "dev bond0\ndev-type tap\n"
	} else {
		client += "dev tun0\n"
		if l.variant.translated {
			client += "route 241.0.0.0 255.0.0.0\n"
		}
	}
	write(l.t, l.shootFile("client.conf"), client)
	for _, name := range []string{"ca.crt", "vpn-shoot-client.crt", "vpn-shoot-client.key"} {
		write(l.t, l.shootFile(name), string(read(l.t, l.pki(name))))
	}
	write(l.t, l.shootFile("vpn-shoot.sh"), string(read(l.t, "testdata/vpn-shoot.sh")))
}

func (l *lab) shootFile(name string) string { return filepath.Join(l.world.Dir, "vpn-shoot", name) }

// startVPNServer starts OpenVPN in vpn-seed-server. Its tun0, and the routes over it, are there before any client, and go with it.
func (l *lab) startVPNServer() {
	server := fmt.Sprintf(vpnServer, l.world.Dir)
	client := ""
	if l.variant.highlyAvailable {
		server += "client-to-client\nduplicate-cn\ndev tap0\n"
	} else {
		server += "dev tun0\nifconfig 192.168.123.1 255.255.255.0\npush \"topology subnet\"\npush \"route-gateway 192.168.123.1\"\n"
		client = "ifconfig-push 192.168.123.2 255.255.255.0\n"
		for _, network := range l.networks() {
			server += "route " + netmask(network) + " 192.168.123.2\n"
			client += "iroute " + netmask(network) + "\n"
		}
		if l.variant.dualStack {
			server += "ifconfig-ipv6 " + seedEnd6 + "/96 " + shootEnd6 + "\nroute-ipv6 " + nodeNetwork6 + "\n"
			client += "ifconfig-ipv6-push " + shootEnd6 + "/96 " + seedEnd6 + "\niroute-ipv6 " + nodeNetwork6 + "\n"
		}
	}
	write(l.t, filepath.Join(l.world.Dir, "server.conf"), server)
	write(l.t, filepath.Join(l.world.Dir, "clients/vpn-shoot-client"), client)
	l.vpnServer = l.world.vpnServer.Start("openvpn", "--config", filepath.Join(l.world.Dir, "server.conf"))
}

// preparePods does what the VPN's containers do once: a bridge's port in the server, firewall rules, and in HA the devices.
func (l *lab) preparePods() {
	if l.variant.highlyAvailable {
		l.world.vpnServer.IP("tuntap add dev tap0 mode tap", "link set tap0 up")
	}
	for _, rule := range []string{"-A INPUT -m state --state RELATED,ESTABLISHED -i " + l.variant.device() + " -j ACCEPT",
		"-A INPUT -i " + l.variant.device() + " -j DROP"} {
		l.dialer().Run("iptables-legacy -w 5 " + rule)
	}
	l.startSeedSide()
}

// startSeedSide is the VPN in the pod that dials nodes, from nothing: in HA device and client, else the server; and the translation.
func (l *lab) startSeedSide() {
	device := l.variant.device()
	if l.variant.highlyAvailable {
		l.dialer().IP("tuntap add dev "+device+" mode tap", "addr add "+l.variant.seedEnd()+"/26 dev "+device, "link set "+device+" up")
		path := filepath.Join(l.world.Dir, "client.conf")
		write(l.t, path, fmt.Sprintf(seedClient, l.world.Dir, device))
		l.vpnClient = l.world.apiserver.Start("openvpn", "--config", path)
	}
	if l.vpnServer == nil || !l.vpnServer.Running() {
		l.startVPNServer()
	}
	l.translate("-A")
}

// endSeedSide leaves the pod as a new one whose VPN container never started: no device, no client, no translation, and a proxy without
// connections.
func (l *lab) endSeedSide() {
	if l.variant.highlyAvailable {
		l.vpnClient.Kill()
		l.dialer().Run("ip link delete " + l.variant.device())
	} else {
		l.vpnServer.Kill()
	}
	l.translate("-D")
	l.proxy.Kill()
	l.startProxy()
}

// translate adds or deletes the rules by which vpn2 gives the shoot's networks other names for envoy, and the pod for the shoot.
func (l *lab) translate(verb string) {
	if !l.variant.translated {
		return
	}
	for _, network := range slices.Sorted(maps.Keys(translations)) {
		l.dialer().Run(fmt.Sprintf("iptables-legacy -w 5 -t nat %s OUTPUT -m owner --gid-owner %d -d %s -j NETMAP --to %s", verb, envoyGroup, network, translations[network]))
	}
	l.dialer().Run(fmt.Sprintf("iptables-legacy -w 5 -t nat %s POSTROUTING -o %s -s %s -j NETMAP --to %s", verb, l.variant.device(), seedPodNetwork, translatedSeedPods))
}

// dialer is the pod whose processes connect to kubelets.
func (l *lab) dialer() *rig.Namespace {
	if l.variant.highlyAvailable {
		return l.world.apiserver
	}
	return l.world.vpnServer
}

// answers tells whether the other end of the tunnel does, over the tunnel. In HA it then routes the shoot's networks there, as the
// path-controller does after a ping.
func (l *lab) answers() error {
	conn, err := dial(l.dialer(), l.variant.shootEnd()+":22", 300*time.Millisecond)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second)) // cannot fail on a TCP connection
	if _, err := bufio.NewReader(conn).ReadString('\n'); err != nil {
		return err
	}
	if l.variant.highlyAvailable {
		for _, network := range l.networks() {
			l.dialer().IP("route replace " + network + " via " + l.variant.shootEnd() + " dev " + l.variant.device())
		}
	}
	return nil
}

// side is where the VPN breaks.
type side string

const (
	seedSide  side = "seed"
	shootSide side = "shoot"
)

// breakVPN breaks the VPN and returns once it no longer carries anything.
func (l *lab) breakVPN(at side) {
	l.t.Helper()
	switch {
	case at == shootSide:
		write(l.t, l.shootFile("broken"), "")
	case l.variant.translated:
		l.endSeedSide()
	default:
		l.vpnServer.Kill()
	}
	wait(l.t, "the VPN is broken", 20*time.Second, func() error {
		if l.answers() == nil {
			return fmt.Errorf("it still answers")
		}
		return nil
	})
}

// mendVPN mends it and returns once the other end answers again.
func (l *lab) mendVPN(at side) {
	l.t.Helper()
	switch {
	case at == shootSide:
		if err := os.Remove(l.shootFile("broken")); err != nil {
			l.t.Fatalf("%v", err)
		}
	case l.variant.translated:
		l.startSeedSide()
	default:
		l.startVPNServer()
	}
	wait(l.t, "the VPN is back", 60*time.Second, l.answers)
}

// learnNodes gives the VPN the node network that the VPN did not know.
func (l *lab) learnNodes() {
	l.nodesKnown = true
	if l.variant.translated {
		return
	}
	if !l.variant.highlyAvailable {
		l.vpnServer.Kill()
		l.startVPNServer()
	}
	wait(l.t, "the VPN leads to nodes", 60*time.Second, l.answers)
}
