package e2e

// variant is a shape of the VPN between a control plane and its nodes.
type variant struct {
	name string
	// highlyAvailable: kube-apiserver has an end of the VPN in its own pod, else vpn-seed-server has it.
	highlyAvailable bool
	// translated is today's way of naming the shoot's networks in the VPN; before, they had their own addresses.
	translated bool
	// dualStack: the node has an IPv6 address too, which comes first.
	dualStack bool
}

var variants = []variant{
	{name: "non-HA, real addresses"},
	{name: "HA, real addresses", highlyAvailable: true},
	{name: "non-HA, translated", translated: true},
	{name: "HA, translated", highlyAvailable: true, translated: true},
	{name: "non-HA, translated, dual-stack", translated: true, dualStack: true},
}

// device is the tunnel's name in the pod that dials nodes.
func (v variant) device() string {
	switch {
	case v.highlyAvailable && v.translated:
		return "bond0-ip6tnl0"
	case v.highlyAvailable:
		return "bond0"
	}
	return "tun0"
}

// proxied says whether kube-apiserver reaches the shoot by an HTTP CONNECT proxy, and where that listens.
func (v variant) proxied() (url string, yes bool) {
	switch {
	case !v.highlyAvailable:
		return "https://" + vpnServerIP + ":9443", true
	case v.translated:
		return "https://127.0.0.1:9443", true
	}
	return "", false
}

// The ends of the tunnel. In HA the server only passes on what its clients say to each other.
func (v variant) seedEnd() string {
	if v.highlyAvailable {
		return "192.168.123.237"
	}
	return "192.168.123.1"
}

func (v variant) shootEnd() string {
	if v.highlyAvailable {
		return "192.168.123.195"
	}
	return "192.168.123.2"
}

// nodeIPs are the node's addresses. kube-apiserver dials the first.
func (v variant) nodeIPs() []string {
	if v.dualStack {
		return []string{machineIP6, machineIP}
	}
	return []string{machineIP}
}

// nodeNetworks are what a Shoot says of them.
func (v variant) nodeNetworks() []string {
	if v.dualStack {
		return []string{nodeNetwork, nodeNetwork6}
	}
	return []string{nodeNetwork}
}
