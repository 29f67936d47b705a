package main

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"github.com/routefence/routefence/test/rig"
)

// vpn is a real OpenVPN: the server in the pod, as vpn-seed-server has it, the client at the node, as vpn-shoot. The
// client runs all the time and dials again and again; the VPN is up while there is a server.
type vpn struct {
	stage  *stage
	world  *world
	server *rig.Process
}

// The options are those of vpn2, except for a short keepalive: it notices a dead peer within seconds.
const common = `verb 3
dev tun0
topology subnet
data-ciphers AES-256-GCM
auth SHA256
tcp-nodelay
keepalive 1 4
disable-dco
`

const serverOptions = common + `proto tcp4-server
port 1194
server 192.168.123.0 255.255.255.0
dh none
client-config-dir %[1]s/clients
route ` + nodeNetwork + " " + nodeMask + ` 192.168.123.2
ca %[1]s/ca.crt
cert %[1]s/vpn-seed-server.crt
key %[1]s/vpn-seed-server.key
`

const clientOptions = common + `client
proto tcp4-client
remote ` + podAddress + ` 1194
nobind
connect-retry 1 1
remote-cert-tls server
ca %[1]s/ca.crt
cert %[1]s/vpn-shoot.crt
key %[1]s/vpn-shoot.key
`

// iroute tells OpenVPN itself, as the route tells the kernel, which client has the node network.
const clientAtServer = "ifconfig-push 192.168.123.2 255.255.255.0\niroute " + nodeNetwork + " " + nodeMask + "\n"

// newVPN writes keys and configuration and starts the client.
func newVPN(s *stage, w *world, ca *authority) *vpn {
	if err := writeVPN(w.Dir, ca); err != nil {
		s.Fatalf("write the configuration of OpenVPN to %s: %v", w.Dir, err)
	}
	w.node.Start("openvpn", "--config", filepath.Join(w.Dir, "client.conf"))
	return &vpn{stage: s, world: w}
}

func writeVPN(dir string, ca *authority) error {
	for name, usage := range map[string]x509.ExtKeyUsage{
		"vpn-seed-server": x509.ExtKeyUsageServerAuth,
		"vpn-shoot":       x509.ExtKeyUsageClientAuth,
	} {
		p, err := ca.issue(name, usage)
		if err != nil {
			return err
		}
		if err := ca.write(dir, name, p); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "clients"), 0o700); err != nil {
		return err
	}
	for file, text := range map[string]string{
		"clients/vpn-shoot": clientAtServer,
		"server.conf":       fmt.Sprintf(serverOptions, dir),
		"client.conf":       fmt.Sprintf(clientOptions, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// up starts the server. Its tun0 and the routes on it are there in an instant, the client takes a second or two.
func (v *vpn) up() {
	v.server = v.world.pod.Start("openvpn", "--config", filepath.Join(v.world.Dir, "server.conf"))
}

// kill ends the server as a crash does; tun0 and its routes go with it.
func (v *vpn) kill() { v.server.Kill() }
