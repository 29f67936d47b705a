// Package lint checks the networks of a Shoot: whether routefence can fence its nodes without doubt, and what to set where it cannot.
package lint

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
)

// Severity says how bad a finding is.
type Severity string

const (
	// Error is what leaves nodes unfenced, or cuts off what is none.
	Error Severity = "error"
	// Warning is what works, with a doubt or a price.
	Warning Severity = "warning"
)

// Finding is one thing that is wrong, and what to do about it.
type Finding struct {
	Severity Severity `json:"severity"`
	// Object is kind and name, such as "Shoot garden-dev/one".
	Object string `json:"object"`
	// Field is the path within the object, such as "spec.networking.nodes".
	Field string `json:"field"`
	// Message says what is wrong and what to set.
	Message string `json:"message"`
}

// Shoot checks the decoded JSON of a Shoot against that of the Seed it runs on, which may be nil if it is not known. Shoots without VPN
// (workerless and self-hosted ones) have nothing to fence, and so no findings.
func Shoot(shoot, seed map[string]any) []Finding {
	c := &check{shoot: newObject("Shoot", shoot), seed: newObject("Seed", seed)}
	if c.shoot.withoutVPN() {
		return nil
	}
	c.nodes = c.read(c.shoot, nodesFields)
	c.presence()
	c.families()
	c.reserved()
	c.own()
	if seed != nil {
		c.neighbours()
	}
	return c.findings
}

// Among checks a Shoot against that one of several Seeds which it runs on: the one it names, or the only one if it names none. If there are
// Seeds and it is none of them, that is a finding: what was not checked must not look as if all were well.
func Among(shoot map[string]any, seeds []map[string]any) []Finding {
	name, _ := at(shoot, seedField).(string)
	i := slices.IndexFunc(seeds, func(seed map[string]any) bool { return at(seed, "metadata.name") == name })
	if name == "" && len(seeds) == 1 {
		i = 0
	}
	if i >= 0 {
		return Shoot(shoot, seeds[i])
	}
	c := &check{shoot: newObject("Shoot", shoot)}
	if len(seeds) > 0 && !c.shoot.withoutVPN() {
		why := name + ", and no Seed of that name was given"
		if name == "" {
			why = "not set, and several Seeds were given"
		}
		c.report(Warning, c.shoot, seedField, "is %s, so the node networks were not checked against the networks of its seed; give that Seed", why)
	}
	return append(Shoot(shoot, nil), c.findings...)
}

// check collects what is found.
type check struct {
	shoot, seed object
	// nodes are the node networks, one entry for each place that names one.
	nodes    []network
	findings []Finding
}

// network is one that an object names.
type network struct {
	netip.Prefix
	field string
}

func (c *check) report(s Severity, o object, field, format string, args ...any) {
	f := Finding{s, o.name, field, fmt.Sprintf(format, args...)}
	if !slices.Contains(c.findings, f) {
		c.findings = append(c.findings, f)
	}
}

const (
	nodesField = "spec.networking.nodes"
	seedField  = "spec.seedName"
)

// nodesFields are where a Shoot names node networks. Both count.
var nodesFields = []string{nodesField, "status.networking.nodes"}

// read returns the networks of some fields of the Shoot's, and reports those that are none.
func (c *check) read(o object, fields []string) []network {
	var out []network
	for _, field := range fields {
		for _, v := range o.values(field) {
			p, warning, err := policy.ParsePrefix(v.text)
			switch {
			case err != nil:
				c.report(Error, o, v.field, "%v", err)
				continue
			case warning != "":
				c.report(Warning, o, v.field, "%s", warning)
			}
			out = append(out, network{p, v.field})
		}
	}
	return out
}

// presence reports that there is nothing to fence.
func (c *check) presence() {
	if len(c.nodes) > 0 || len(c.findings) > 0 {
		return
	}
	if families := c.shoot.families(); slices.Equal(families, []policy.Family{policy.IPv6}) {
		c.report(Warning, c.shoot, nodesField, "no node network is known, which is possible for an IPv6 shoot; nothing is fenced. "+
			"Set the range that the nodes' addresses come from, such as fd00:10:1:100::/56")
		return
	}
	c.report(Error, c.shoot, nodesField, "no node network is known, so nothing can be fenced. "+
		"Set the range that the nodes' addresses come from, such as 10.250.0.0/16, outside of all networks of the seed")
}

// families reports node networks that ipFamilies does not announce, and families without one.
func (c *check) families() {
	families := c.shoot.families()
	seen := map[policy.Family]bool{}
	for _, n := range c.nodes {
		f := policy.FamilyOf(n.Prefix)
		seen[f] = true
		if !slices.Contains(families, f) {
			c.report(Warning, c.shoot, n.field, "%v is of a family that spec.networking.ipFamilies does not have; correct one of the two", n)
		}
	}
	// A Shoot that has not been reconciled names one network at most.
	if len(c.nodes) == 0 || len(c.shoot.values("status.networking.nodes")) == 0 {
		return
	}
	for _, f := range families {
		if !seen[f] {
			c.report(Warning, c.shoot, nodesField, "no %s node network is known, so traffic to %s addresses of nodes is not fenced; "+
				"the infrastructure has to report one", f, f)
		}
	}
}

// span is a network of somebody else, with a name.
type span struct {
	network
	name string
}

// overlaps calls f for each pair of a node network and another that share addresses. A node network that is named twice counts once.
func (c *check) overlaps(others []span, f func(node network, other span)) {
	for _, other := range others {
		seen := map[netip.Prefix]bool{}
		for _, n := range c.nodes {
			if !seen[n.Prefix] && ranges.Of(n.Prefix).Overlaps(other.Prefix) {
				f(n, other)
			}
			seen[n.Prefix] = true
		}
	}
}
