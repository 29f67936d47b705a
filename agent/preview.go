package agent

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
)

// Changes are the writes that lead from the kernel as it is to the fence, in the order in which they are to be made.
type Changes struct {
	Networks []netip.Prefix
	Backend  string
	Routes   []routes.Change
	Firewall []firewall.Change
	// Warnings say what the fence, once written, would still lack.
	Warnings []string
}

// Preview returns what the first passes would write, and writes nothing. It is for an agent that does not run. It looks once, so it
// has both layers in one plan where a pass denies first; the fence that results is the same.
func (a *Agent) Preview() (Changes, error) {
	reports := a.reports()
	o := a.observe()
	if err := errors.Join(o.routesErr, o.firewallErr); err != nil {
		return Changes{}, err
	}
	a.memory.adopted = append(o.routes.Adopted(), o.firewall.Adopted()...)
	p := a.plan(reports, o)
	if len(p.policy.Networks) == 0 {
		return Changes{}, fmt.Errorf("no node network is known, so nothing would be written%s", troubles(reports, p.refused))
	}
	if err := o.firewall.Err(without(p.policy, p.absent)); err != nil {
		return Changes{}, err
	}
	c := Changes{Networks: p.policy.Networks, Backend: o.firewall.Backend, Routes: p.routes, Firewall: p.firewall,
		Warnings: append(p.degraded, p.unguarded...)}
	for _, err := range p.refused {
		c.Warnings = append(c.Warnings, err.Error())
	}
	return c, nil
}

// troubles says why nothing is known.
func troubles(reports []shoot.Report, refused []error) string {
	var out string
	for _, err := range refused {
		out += fmt.Sprintf("; %v", err)
	}
	for _, r := range reports {
		if err := errors.Join(r.Err, r.Away); err != nil {
			out += fmt.Sprintf("; %s: %v", r.Name, err)
		}
	}
	return out
}
