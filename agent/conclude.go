package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/verdict"
)

// conclude makes the state out of the last observation of a pass.
func (a *Agent) conclude(reports []shoot.Report, o observation, p plan, verdicts []verdict.Network, applyErr error) *State {
	s := &State{resync: a.Resync, passed: time.Now()}
	d := &s.Document
	d.ReadyWhen, d.Repairs, d.Severed = a.ReadyWhen, a.memory.repairs, a.memory.severed
	d.Sources = statuses(reports)
	d.Interfaces = interfaces(p.policy, o.routes)
	d.Firewall = Backend{Backend: o.firewall.Backend, Degraded: p.degraded}

	readErr := errors.Join(o.routesErr, o.firewallErr)
	if o.firewallErr == nil && len(p.policy.Networks) > 0 {
		readErr = errors.Join(readErr, o.firewall.Err(without(p.policy, p.absent)))
	}
	if readErr == nil {
		a.memory.verified = s.passed
	}
	if at := a.memory.verified; !at.IsZero() {
		d.VerifiedAt = &at
	}
	s.err = errors.Join(readErr, applyErr)
	// A read that failed may succeed next time; a table known to be beyond reading has changed, and what was read of it is void.
	transient := readErr != nil && !o.firewall.Broken(p.policy)
	// Nor does what was read before count if one layer could be read, and something is missing there.
	lacking := len(p.routes)+len(p.firewall) > 0
	if last := a.State(); transient && !lacking && last.VerifiedAt != nil && a.memory.last.equal(p.wanted) {
		return last.renewed(s)
	}
	d.Networks = a.networks(reports, o, p, verdicts)
	d.Phase = phase(d.Networks)
	s.inPlace = len(d.Networks) > 0 && readErr == nil && len(p.routes)+len(p.firewall) == 0 &&
		!slices.ContainsFunc(d.Networks, func(n Network) bool { return !n.Layers.Routes || !n.Layers.Firewall })
	s.checks = checks(s, reports, p, d, readErr)
	s.whole = !slices.ContainsFunc(d.Networks, func(n Network) bool { return !n.whole })
	return s
}

// networks returns the verdicts with everything the state says about each.
func (a *Agent) networks(reports []shoot.Report, o observation, p plan, verdicts []verdict.Network) []Network {
	if verdicts == nil {
		// Nothing is known of the kernel: every network may leak until the opposite is read back.
		for _, n := range p.policy.Networks {
			verdicts = append(verdicts, verdict.Network{CIDR: n, State: verdict.Leaking, Cause: "the kernel could not be read"})
		}
	}
	names := a.memory.namersOf(reports).finder()
	missing, answered := missingRoutes(p.routes), ranges.Of(p.policy.Replies...)
	firewallLacks := map[policy.Family]bool{}
	for _, c := range p.firewall {
		firewallLacks[c.Of()] = true
	}
	out := make([]Network, 0, len(verdicts))
	for _, v := range verdicts {
		family := policy.FamilyOf(v.CIDR)
		n := Network{
			CIDR: v.CIDR.String(), Sources: names(v.CIDR), State: v.State, Interface: v.Interface, Cause: v.Cause,
			prefix: v.CIDR, whole: v.Whole, unstopped: v.Unstopped, Replies: answered.Overlaps(v.CIDR),
			Layers: Layers{
				Routes:   o.routesErr == nil && !missing.Overlaps(v.CIDR),
				Firewall: o.firewallErr == nil && !firewallLacks[family] && len(v.Unstopped) == 0,
			},
		}
		for _, t := range v.TranslatedTo {
			n.TranslatedTo = append(n.TranslatedTo, t.String())
		}
		for _, e := range v.Exceptions {
			n.Exceptions = append(n.Exceptions, Exception{e.CIDR.String(), e.State, e.Interface, e.Cause})
		}
		if p.absent[family] {
			n = Network{CIDR: n.CIDR, prefix: v.CIDR, Sources: n.Sources, State: verdict.Blocked, Layers: Layers{true, true},
				Cause: fmt.Sprintf("this kernel has no %s, so no packet to it can exist", family)}
		}
		out = append(out, n)
	}
	return out
}

// missingRoutes returns the addresses that the routing layer does not cover as it should.
func missingRoutes(changes []routes.Change) ranges.Set {
	var out []netip.Prefix
	all := map[policy.Family]netip.Prefix{
		policy.IPv4: netip.PrefixFrom(netip.IPv4Unspecified(), 0),
		policy.IPv6: netip.PrefixFrom(netip.IPv6Unspecified(), 0),
	}
	for _, c := range changes {
		switch c.Op {
		case routes.AddRoute, routes.ReplaceRoute, routes.DelRoute:
			out = append(out, c.Route.Dst)
		case routes.AddRule, routes.DelRule:
			out = append(out, all[c.Rule.Family])
		default:
			out = append(out, all[policy.IPv4], all[policy.IPv6])
		}
	}
	return ranges.Of(out...)
}

func phase(networks []Network) Phase {
	seen := map[verdict.State]bool{}
	for _, n := range networks {
		seen[n.State] = true
		for _, e := range n.Exceptions {
			seen[e.State] = true
		}
	}
	switch {
	case len(networks) == 0:
		return Pending
	case seen[verdict.Leaking]:
		return Leaking
	case seen[verdict.Tunneled] && seen[verdict.Blocked]:
		return Partial
	case seen[verdict.Tunneled]:
		return Tunneled
	}
	return Blocked
}

func statuses(reports []shoot.Report) []Status {
	out := make([]Status, 0, len(reports))
	for _, r := range reports {
		s := Status{Name: r.Name, Ref: r.Ref, Healthy: r.Err == nil && r.Away == nil, Networks: texts(r.Networks)}
		switch {
		case r.Err != nil:
			s.Message = r.Err.Error()
		case r.Away != nil:
			s.Message = r.Away.Error()
		default:
			s.Message = strings.Join(r.Warnings, "; ")
		}
		if at := r.LastChange; !at.IsZero() {
			s.LastChange = &at
		}
		out = append(out, s)
	}
	return out
}

func texts(prefixes []netip.Prefix) []string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.String()
	}
	return out
}

func interfaces(p policy.Policy, s routes.State) Interfaces {
	out := Interfaces{Fenced: []string{}, Tunnels: []string{}}
	for _, l := range s.Fenced(p) {
		out.Fenced = append(out.Fenced, l.Name)
	}
	for _, l := range s.Links {
		if p.Role(l.Name) == policy.Tunnel {
			out.Tunnels = append(out.Tunnels, l.Name)
		}
	}
	return out
}
