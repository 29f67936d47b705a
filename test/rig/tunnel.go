package rig

import (
	"fmt"
	"net/netip"
)

// Tunnel is a VPN device of the pod and its far end in the namespace VPN. It is a pair of veth devices made to look like
// a tun device (no ARP), as that comes and goes in milliseconds; the demo has the real OpenVPN.
type Tunnel struct {
	Name string

	rig    *Rig
	number int
}

// tunnelMAC is the address of both ends. Without ARP the kernel sends to a device's own address, so that has to be the
// peer's as well.
const tunnelMAC = "02:00:00:00:96:04"

// NewTunnel describes one more tunnel; it is down.
func (r *Rig) NewTunnel(name string) *Tunnel {
	r.tunnels++
	return &Tunnel{Name: name, rig: r, number: 122 + r.tunnels}
}

// Up makes the device and then routes for the prefixes (default: the rig's node networks) through it. Each time the
// device has a new index.
func (t *Tunnel) Up(prefixes ...netip.Prefix) {
	t.rig.t.Helper()
	t.DeviceUp()
	t.AddRoutes(prefixes...)
}

// DeviceUp makes the device without routes.
func (t *Tunnel) DeviceUp() {
	t.rig.t.Helper()
	t.rig.Pod.IP(append([]string{fmt.Sprintf("link add %s address %s type veth peer name %s address %s netns %s",
		t.Name, tunnelMAC, t.Name, tunnelMAC, t.rig.VPN.Name)}, t.configure(1)...)...)
	t.rig.VPN.IP(append(t.configure(2),
		// For what comes with another source address than the tunnel's.
		fmt.Sprintf("route add 0.0.0.0/0 dev %s metric %d", t.Name, t.number),
		fmt.Sprintf("route add ::/0 dev %s metric %d", t.Name, t.number))...)
}

func (t *Tunnel) configure(host int) []string {
	return []string{
		fmt.Sprintf("link set %s arp off up", t.Name),
		fmt.Sprintf("addr add 192.168.%d.%d/24 dev %s", t.number, host, t.Name),
		fmt.Sprintf("addr add fd00:%d::%d/64 dev %s nodad", t.number, host, t.Name),
	}
}

// Down deletes the device, and with it its routes, as the end of an OpenVPN process does.
func (t *Tunnel) Down() {
	t.rig.t.Helper()
	t.rig.Pod.IP("link del " + t.Name)
}

// AddRoutes adds routes for the prefixes (default: the rig's node networks) through the tunnel, as vpn2 writes them.
func (t *Tunnel) AddRoutes(prefixes ...netip.Prefix) {
	t.rig.t.Helper()
	t.rig.Pod.IP(t.routes("replace", prefixes)...)
}

// RemoveRoutes removes the routes that AddRoutes added and leaves the device.
func (t *Tunnel) RemoveRoutes(prefixes ...netip.Prefix) {
	t.rig.t.Helper()
	t.rig.Pod.IP(t.routes("del", prefixes)...)
}

func (t *Tunnel) routes(verb string, prefixes []netip.Prefix) []string {
	if len(prefixes) == 0 {
		prefixes = t.rig.networks
	}
	var lines []string
	for _, p := range prefixes {
		lines = append(lines, fmt.Sprintf("route %s %s dev %s", verb, p, t.Name))
	}
	return lines
}

// TunnelUp brings tun0 up with its routes.
func (r *Rig) TunnelUp(prefixes ...netip.Prefix) {
	r.t.Helper()
	r.Tun.Up(prefixes...)
}

// TunnelDown deletes tun0.
func (r *Rig) TunnelDown() {
	r.t.Helper()
	r.Tun.Down()
}

// Mute lets the far end of all tunnels swallow everything, after counting it: the peer is dead and the link up.
func (r *Rig) Mute() {
	r.t.Helper()
	r.VPN.Feed(muteRules, "nft -f -")
}

// Unmute ends Mute.
func (r *Rig) Unmute() {
	r.t.Helper()
	r.VPN.Run("nft delete table inet rf_mute")
}

const muteRules = `table inet rf_mute {
	chain in {
		type filter hook prerouting priority -440
		iifname != "lo" drop
	}
}
`
