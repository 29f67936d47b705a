package main

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/agent"
	"github.com/routefence/routefence/cmd/internal/command"
	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/firewall/nfnetlink"
	"github.com/routefence/routefence/firewall/xtables"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/routes/rtnl"
	"github.com/routefence/routefence/selftest"
	"github.com/routefence/routefence/selftest/dial"
	"github.com/routefence/routefence/verdict"
	"go.uber.org/zap"
)

// trial is one selftest: the fence as it stands, the means to look at it between attempts, and what was found so far.
type trial struct {
	policy       policy.Policy
	translations []policy.Translation
	routes       *rtnl.Kernel
	firewall     *xtables.Kernel
	state        routes.State
	chains       firewall.Snapshot
	// fenced are the interfaces to bind to.
	fenced []string
	report selftest.Report
}

func newTrial(c fenceConfig) (*trial, error) {
	t := &trial{report: selftest.Report{Networks: []selftest.Network{}}}
	var err error
	if t.routes, err = rtnl.New(); err != nil {
		return nil, err
	}
	if t.state, err = t.routes.List(); err != nil {
		return nil, err
	}
	if t.chains, err = xtables.New(c.firewall, nfnetlink.Conn{}, zap.NewNop()).Read(); err != nil {
		return nil, err
	}
	// Counters are read after every attempt, and choosing a backend anew each time would cost more than reading them.
	t.firewall = xtables.New(t.chains.Backend, nfnetlink.Conn{}, zap.NewNop())
	t.policy = t.policyOf(c)
	if c.translation == agent.FollowTranslation {
		t.translations = t.chains.Translations(t.policy)
	}
	t.fenced = t.bindable()
	return t, nil
}

// policyOf returns what is to be fenced: what the flags say, and what the fence in the kernel is for. Its agent may have further sources.
func (t *trial) policyOf(c fenceConfig) policy.Policy {
	if !t.stands() {
		t.report.Problem("there is no fence in this network namespace, neither routes nor rules, so nothing was sent (\"routefence run\" puts it up)")
	}
	networks := append(c.given(), t.standing()...)
	allow := slices.Concat(t.state.Allowed(), t.chains.Allowed(), c.allow)
	p := policy.New(networks, allow, c.fenced, c.tunnels)
	lifelines := append(t.state.Lifelines(p), knownLifelines()...)
	if c.lifelines == agent.KeepLifelines {
		return p.Keep(lifelines)
	}
	p, refused := p.Refuse(lifelines)
	for _, err := range refused {
		t.report.Note("%v", err)
	}
	return p
}

func (t *trial) stands() bool { return len(t.state.Adopted())+len(t.chains.Adopted()) > 0 }

// standing returns the node networks that the fence in the kernel is for. It also holds what they are translated to, which belongs
// to the VPN: nothing is sent there.
func (t *trial) standing() []netip.Prefix {
	routed, filtered := t.state.Adopted(), t.chains.Adopted()
	translated := t.chains.TranslatedTo()
	for _, n := range t.chains.Translations(policy.New(append(routed, filtered...), nil, nil, nil)) {
		translated = append(translated, n.To)
	}
	return ranges.Of(routed...).Minus(ranges.Of(translated...)).Union(ranges.Of(filtered...)).Prefixes()
}

// maxBound is how many fenced interfaces sockets are bound to; with a pattern such as "*" there may be hundreds.
const maxBound = 4

func (t *trial) bindable() []string {
	var up []string
	for _, l := range t.state.Fenced(t.policy) {
		if l.Up {
			up = append(up, l.Name)
		} else {
			t.report.Note("%s is fenced and down: not tried", l.Name)
		}
	}
	if len(up) == 0 {
		t.report.Problem("no interface that is up matches --fence-interfaces, so the firewall could not be tried")
	}
	if len(up) > maxBound {
		t.report.Note("%d of %d fenced interfaces were tried", maxBound, len(up))
	}
	return selftest.Sample(up, maxBound)
}

// targets returns what is to be tried: the addresses given, or some of each network.
func (t *trial) targets(addrs []netip.Addr) ([]selftest.Target, error) {
	barred := t.barred()
	if len(addrs) == 0 {
		return t.chosen(barred), nil
	}
	var out []selftest.Target
	for _, a := range addrs {
		network, found := t.networkOf(a)
		switch {
		case !found:
			return nil, command.Usage("%s: lies in no node network, and nothing is sent anywhere else", a)
		case barred.Contains(a):
			return nil, command.Usage("%s: is exempt from the fence, by --allow or as an address of this pod's, so there is nothing to test", a)
		}
		out = append(out, selftest.Target{Network: network, Addr: a})
	}
	return out, nil
}

func (t *trial) barred() ranges.Set {
	out := ranges.Of(t.policy.Allow...)
	for _, l := range t.state.Links {
		for _, a := range l.Addrs {
			out = out.Union(ranges.Of(netip.PrefixFrom(a, a.BitLen())))
		}
	}
	return out
}

func (t *trial) networkOf(a netip.Addr) (netip.Prefix, bool) {
	for _, n := range t.policy.Networks {
		if n.Contains(a) {
			return n, true
		}
	}
	return netip.Prefix{}, false
}

// chosen returns addresses of networks, also where the kernel's tables say that a part of one fares worse than the rest.
func (t *trial) chosen(barred ranges.Set) []selftest.Target {
	p := t.policy
	p.Networks = selftest.Sample(p.Networks, selftest.MaxNetworks)
	if len(p.Networks) < len(t.policy.Networks) {
		t.report.Note("%d of %d node networks were tried, evenly chosen", len(p.Networks), len(t.policy.Networks))
	}
	var out []selftest.Target
	for _, v := range verdict.Of(p, t.translations, t.state, t.chains) {
		var weak []netip.Prefix
		for _, e := range v.Exceptions {
			if e.State != verdict.Allowed && e.State != verdict.Tunneled {
				weak = append(weak, e.CIDR)
			}
		}
		addrs := selftest.Addresses(v.CIDR, barred, weak)
		if len(addrs) == 0 {
			t.report.Note("%s has no address to try that is fenced and not the pod's own", v.CIDR)
		}
		for _, a := range addrs {
			out = append(out, selftest.Target{Network: v.CIDR, Addr: a})
		}
	}
	return out
}

// run makes all attempts, one after the other: only so can a count be told to belong to one of them.
func (t *trial) run(targets []selftest.Target) error {
	if !t.stands() {
		return nil // all would leak, and prove nothing that is not known
	}
	if len(targets) == 0 {
		t.report.Problem("there is no address to try")
	}
	for _, target := range targets {
		for _, a := range selftest.Attempts(target.Addr, t.fenced) {
			e, err := t.try(a)
			if err != nil {
				return err
			}
			t.report.Add(target.Network, selftest.Find(e))
		}
	}
	return nil
}

func (t *trial) try(a selftest.Attempt) (selftest.Evidence, error) {
	before := t.chains
	e := selftest.Evidence{Attempt: a, Outcome: dial.Try(a)}
	var err error
	if t.chains, err = t.firewall.Read(); err != nil {
		return e, err
	}
	e.TranslatedTo = t.translated(a.Addr)
	links := t.fenced
	if a.Interface != "" {
		links = []string{a.Interface}
		e.Open = t.open(a)
	}
	for _, link := range links {
		e.Stopped += t.grown(before, e, link)
	}
	e.Sunk = t.grown(before, e, "lo")
	if a.Interface == "" && e.Step > selftest.Unrouted {
		to := a.Addr
		if e.TranslatedTo.IsValid() {
			to = e.TranslatedTo
		}
		if e.Egress, err = t.routes.Egress(e.Source, to); err != nil {
			return e, err
		}
		e.Role = t.policy.Role(e.Egress)
	}
	return e, nil
}

// grown returns what our rules have stopped since before, of what goes to the attempt's address or to what it is translated to.
func (t *trial) grown(before firewall.Snapshot, e selftest.Evidence, link string) uint64 {
	var out uint64
	for _, addr := range []netip.Addr{e.Addr, e.TranslatedTo} {
		if !addr.IsValid() {
			continue
		}
		was, is := before.Stopped(addr, string(e.Protocol), link), t.chains.Stopped(addr, string(e.Protocol), link)
		if is < was {
			was = 0 // the rules were written anew meanwhile
		}
		out += is - was
	}
	return out
}

// translated returns what nat OUTPUT makes of an address, if it does.
func (t *trial) translated(a netip.Addr) netip.Addr {
	p := t.policy
	p.Networks = []netip.Prefix{netip.PrefixFrom(a, a.BitLen())}
	for _, to := range verdict.Of(p, t.translations, t.state, t.chains)[0].TranslatedTo {
		return to.Addr()
	}
	return netip.Addr{}
}

// open returns why the rules would let an attempt out by the interface that it is bound to.
func (t *trial) open(a selftest.Attempt) string {
	one := netip.PrefixFrom(a.Addr, a.Addr.BitLen())
	for _, pass := range t.chains.Passing(policy.FamilyOf(one), a.Interface, ranges.Of(one)) {
		return pass.Cause
	}
	return ""
}
