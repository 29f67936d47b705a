package lint

import (
	"net/netip"
	"slices"
)

func named(cidr, name string) span {
	return span{network{Prefix: netip.MustParsePrefix(cidr)}, name}
}

// mapped are the ranges that Gardener maps to inside of its VPN, so no real network may use them.
var mapped = []span{
	named("240.0.0.0/8", "the API server's own address"),
	named("241.0.0.0/8", "the seed's pods"),
	named("242.0.0.0/8", "shoot nodes"),
	named("243.0.0.0/8", "shoot services"),
	named("244.0.0.0/8", "shoot pods"),
}

// transfer are the networks between the VPN's ends.
var transfer = []span{
	named("fd8f:6d53:b97a:1::/96", "the VPN's transfer network"),
	named("192.168.123.0/24", "the transfer network of the VPN before Gardener v1.104"),
}

const classE = "240.0.0.0/4"

// reserved reports node networks in ranges that are Gardener's.
func (c *check) reserved() {
	c.overlaps(mapped, func(n network, r span) {
		c.report(Error, c.shoot, n.field, "%v overlaps %v, which stands for %s inside of the VPN; set a range outside of %s", n, r, r.name, classE)
	})
	c.overlaps([]span{named(classE, "")}, func(n network, r span) {
		if !slices.ContainsFunc(mapped, func(m span) bool { return m.Overlaps(n.Prefix) }) {
			c.report(Error, c.shoot, n.field, "%v is in %v, which is reserved; set another range", n, r)
		}
	})
	c.overlaps(transfer, func(n network, r span) {
		severity := Error
		if r.Addr().Is4() {
			severity = Warning
		}
		c.report(severity, c.shoot, n.field, "%v overlaps %v, %s; set another range", n, r, r.name)
	})
}

// defaults are what a Shoot gets where neither it nor its seed says anything.
var defaults = map[string]string{"pods": "100.96.0.0/11", "services": "100.64.0.0/13"}

// own reports node networks that are also the Shoot's pods or services.
func (c *check) own() {
	for _, kind := range []string{"pods", "services"} {
		others := c.named(c.shoot, "the shoot's own "+kind, "spec.networking."+kind, "status.networking."+kind)
		if len(others) == 0 {
			others = c.named(c.seed, "what the shoot's "+kind+" get by the seed's default", "spec.networks.shootDefaults."+kind)
		}
		if len(others) == 0 {
			others = []span{named(defaults[kind], "what the shoot's "+kind+" get by default")}
		}
		c.overlaps(others, func(n network, r span) {
			c.report(Error, c.shoot, n.field, "%v overlaps %v, %s: pods and nodes could not be told apart; set ranges that are disjoint", n, r, r.name)
		})
	}
}

// neighbours reports node networks that are also the seed's.
func (c *check) neighbours() {
	if len(c.seed.values("spec.networks.pods")) == 0 {
		c.report(Warning, c.seed, "spec.networks.pods", "is not set, so it cannot be checked whether the shoot's nodes are apart from the seed's pods")
	}
	for _, rule := range []struct {
		severity    Severity
		kind, price string
	}{
		{Error, "services", "the fence would cut the control plane off from etcd and vpn-seed-server, unless routefence.io/allow exempts their addresses"},
		{Error, "pods", "the fence cannot tell the shoot's nodes from pods of the seed, and would cut the control plane off from them"},
		{Warning, "nodes", "kubelets of the seed probe from inside of the node network: routefence answers them, " +
			"but the control plane cannot open connections to the seed's nodes"},
	} {
		c.overlaps(c.named(c.seed, rule.kind, "spec.networks."+rule.kind), func(n network, r span) {
			c.report(rule.severity, c.shoot, n.field, "%v overlaps %v, the seed's %s: %s; set a range outside of it", n, r, rule.kind, rule.price)
		})
	}
}

// named returns the networks of some fields.
func (c *check) named(o object, name string, fields ...string) []span {
	var out []span
	for _, n := range c.read(o, fields) {
		out = append(out, span{n, name})
	}
	return out
}
