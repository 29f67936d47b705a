package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/verdict"
	"go.uber.org/zap"
)

// rounds is how often a pass writes and reads back before it leaves the rest to the next one.
const rounds = 3

// observation is the kernel as read back at one moment. A part that could not be read keeps its error; what is known of
// that part is then nothing.
type observation struct {
	// at is when it began. How long reading took says nothing about how long anything has been so.
	at          time.Time
	routes      routes.State
	firewall    firewall.Snapshot
	routesErr   error
	firewallErr error
}

func (a *Agent) observe() observation {
	o := observation{at: time.Now()}
	o.routes, o.routesErr = a.kernel.Routes.List()
	o.firewall, o.firewallErr = a.kernel.Firewall.List()
	return o
}

// plan is what a pass wants and what is missing of it.
type plan struct {
	wanted
	// absent are the families without a protocol stack: no packet of theirs exists, so their networks need no fence.
	absent    map[policy.Family]bool
	routes    []routes.Change
	firewall  []firewall.Change
	degraded  []string
	unguarded []string
	company   bool
	// refused are networks that are not fenced because the pod lives by an address in them.
	refused []error
}

// Pass reads the kernel, compares it with what the sources ask for, writes the difference, reads again, and publishes what it
// then saw. It serves every cause alike: start, event, resync, retry. It must not run twice at a time.
func (a *Agent) Pass() *State {
	start := time.Now()
	reports := a.reports()
	a.memory.company = a.Alone != nil && !a.Alone()
	open := a.denyFirst(reports)
	o := a.observe()
	a.adopt(o)
	p := a.plan(reports, o)
	open = sparing(open, p, o)
	var applyErr error
	repair := a.repairOf(p)
	if repair != (Repairs{}) {
		a.admit(reports, o, p)
	}
	for range rounds {
		if len(p.routes)+len(p.firewall) == 0 {
			break
		}
		open = open.join(sparing(a.openings(p, o), p, o))
		applyErr = a.apply(p)
		o = a.observe()
		p = a.plan(reports, o)
		if applyErr != nil {
			break
		}
	}
	a.sever(open)
	if applyErr == nil {
		a.memory.repairs = a.memory.repairs.plus(repair)
	}
	verdicts := p.verdicts(o)
	a.endLost(verdicts, p, o)
	s := a.conclude(reports, o, p, verdicts, applyErr)
	a.remember(s, p, repair, time.Since(start))
	a.Passed(a.memory.duration)
	a.tell(s)
	a.state.Store(s)
	return s
}

// admit publishes that something is missing before it is put back, since until then it is.
func (a *Agent) admit(reports []shoot.Report, o observation, p plan) {
	s := a.conclude(reports, o, p, p.verdicts(o), nil)
	s.started = a.memory.started
	a.state.Store(s)
}

func (a *Agent) reports() []shoot.Report {
	out := make([]shoot.Report, len(a.sources))
	for i, s := range a.sources {
		out[i] = s.Report()
		if r := out[i]; r.Known && r.Err == nil && r.Away == nil {
			a.memory.settle(r.Name)
		}
	}
	return out
}

// adopt takes over what an earlier process left in the firewall, at the first look that succeeds; denyFirst has done so for
// the routes, before it wrote any.
func (a *Agent) adopt(o observation) {
	if a.memory.looked || o.routesErr != nil || o.firewallErr != nil {
		return
	}
	a.memory.looked = true
	a.memory.adopted = append(a.memory.adopted, o.firewall.Adopted()...)
	if len(a.memory.adopted) > 0 {
		a.log.Info("found a standing fence", zap.Int("networks", len(policy.New(a.memory.adopted, nil, nil, nil).Networks)))
	}
}

// plan compares the kernel with what is wanted. Without any known network nothing is wanted and nothing is written either: no
// source ever positively names an empty set, so what stands may be all there is.
func (a *Agent) plan(reports []shoot.Report, o observation) plan {
	p := plan{absent: o.firewall.Absent, company: a.memory.company}
	if a.memory.company {
		// Two processes that each take away what only the other wants would leave both sets open in turn.
		a.memory.adopted = append(o.routes.Adopted(), o.firewall.Adopted()...)
	}
	p.policy, p.refused = a.policyFor(reports, o.routes)
	if len(p.policy.Networks) == 0 || o.routesErr != nil && o.firewallErr != nil {
		return p
	}
	links := a.lastLinks(o)
	p.policy.Fenced = withNames(p.policy, links)
	blind := blindTo(o, p.policy)
	var spared []string
	if a.Translation == FollowTranslation {
		p.policy, spared = p.policy.Expect(a.Translated, a.Allow, a.neighbours())
		p.translations = toNodes(o.firewall.Translations(p.policy), a.allLifelines())
		if blind {
			known := a.memory.last.translations
			if len(known) == 0 { // what an earlier process made the routes for; which network becomes which they do not tell
				known = o.routes.Translating()
			}
			p.translations = joined(known, p.translations)
		}
	}
	possible := without(p.policy, p.absent)
	p.policy = firewall.Answerable(p.policy, o.firewall.Lacks)
	if o.routesErr == nil {
		p.routes = routes.Diff(routes.Desired(without(p.policy, p.absent), p.translations, o.routes), o.routes)
		p.unguarded = Unguarded(p.policy, o.routes)
		if blind || a.memory.company {
			p.routes = slices.DeleteFunc(p.routes, routes.Change.Removes)
		}
	}
	// Rules made without a look at the links must not replace those that an earlier process made with one, whatever is left of them.
	if o.firewallErr == nil && (len(links.Links) > 0 || len(firewall.Remove(o.firewall)) == 0) {
		rules := firewall.Desired(possible, a.options(p, o, links))
		p.firewall = firewall.Diff(rules, o.firewall)
		p.degraded = append(rules.Degraded, spared...)
	}
	return p
}

// blindTo reports whether translations may stand that were not read. What one layer cannot tell must not change the other: a
// failed iptables-save would take the sinks away, and the translated VPN with them.
func blindTo(o observation, p policy.Policy) bool {
	if o.firewallErr != nil {
		return true
	}
	for _, f := range policy.Families {
		if len(policy.Only(p.Networks, f)) > 0 && (o.firewall.Unread[f] != nil || o.firewall.Blind[f] != nil) {
			return true
		}
	}
	return false
}

// lastLinks returns the links as last read, for a pass that could not read them.
func (a *Agent) lastLinks(o observation) routes.State {
	if o.routesErr == nil {
		a.memory.links = routes.State{Links: o.routes.Links}
	}
	return a.memory.links
}

// toNodes leaves out translations to where a lifeline of the pod is: what they lead to is no node, and fencing it off would cut
// the pod from its gateway, its DNS or its API server.
func toNodes(translations []policy.Translation, lifelines []policy.Lifeline) []policy.Translation {
	return slices.DeleteFunc(translations, func(t policy.Translation) bool {
		return slices.ContainsFunc(lifelines, func(l policy.Lifeline) bool { return t.To.Contains(l.Addr) })
	})
}

// joined returns translations, each once. What is not seen of them may stand all the same, and what the readable backend shows counts.
func joined(lists ...[]policy.Translation) []policy.Translation {
	var out []policy.Translation
	for _, t := range slices.Concat(lists...) {
		if !slices.ContainsFunc(out, func(o policy.Translation) bool { return o.From == t.From && o.To == t.To }) {
			out = append(out, t)
		}
	}
	return out
}

func (a *Agent) options(p plan, o observation, links routes.State) firewall.Options {
	out := firewall.Options{Lacks: o.firewall.Lacks, Translations: p.translations}
	for _, l := range links.Links {
		out.Links = append(out.Links, l.Name)
		for _, addr := range l.Addrs {
			out.Local = append(out.Local, netip.PrefixFrom(addr, addr.BitLen()))
		}
	}
	return out
}

// withNames adds to the fence patterns the links that are fenced by their group although no pattern names them any more.
func withNames(p policy.Policy, s routes.State) policy.Patterns {
	out := p.Fenced
	for _, l := range s.Fenced(p) {
		if p.Role(l.Name) != policy.Fenced {
			out = append(out[:len(out):len(out)], policy.Exact(l.Name))
		}
	}
	return out
}

// without returns the policy less the networks of absent families.
func without(p policy.Policy, absent map[policy.Family]bool) policy.Policy {
	for f, gone := range absent {
		if gone {
			p = p.Less(f)
		}
	}
	return p
}

// Unguarded says what keeps the fence from guarding anything although its rules stand: no interface that it names, or a default
// route by one that it does not name (FR-20: a rule for eth0 goes quiet when eth0 is renamed).
func Unguarded(p policy.Policy, s routes.State) []string {
	var out []string
	if len(s.Fenced(p)) == 0 {
		out = append(out, fmt.Sprintf("no interface matches --fence-interfaces=%s", strings.Join(p.Fenced, ",")))
	}
	for _, l := range s.Posing(p) {
		out = append(out, fmt.Sprintf("%s counts as a tunnel by its name, and sends by a fenced interface what it is given", l.Name))
	}
	for _, name := range s.DefaultLinks() {
		if p.Role(name) == policy.Other {
			out = append(out, fmt.Sprintf("the default route leaves by %s, which is neither in --fence-interfaces nor in --tunnel-interfaces", name))
		}
	}
	return out
}

// apply writes. The routes go first on the way in, and the firewall goes last on the way out: that is one order.
func (a *Agent) apply(p plan) error {
	return errors.Join(
		write(a.log, "routes", p.routes, a.kernel.Routes.Apply),
		write(a.log, "firewall", p.firewall, a.kernel.Firewall.Apply))
}

// write applies changes and logs those that were made. What failed is in the state, which is told once, not at every retry.
func write[T fmt.Stringer](log *zap.Logger, layer string, changes []T, apply func([]T) error) error {
	if len(changes) == 0 {
		return nil
	}
	if err := apply(changes); err != nil {
		return err
	}
	logChanges(log, layer, changes)
	return nil
}

// repairOf tells what of a plan is a repair: something is missing that stood, and nobody asked for anything else.
func (a *Agent) repairOf(p plan) Repairs {
	var out Repairs
	if !a.memory.inPlace || !a.memory.last.equal(p.wanted) {
		return out
	}
	if len(p.routes) > 0 {
		out.Routes = 1
	}
	if len(p.firewall) > 0 {
		out.Firewall = 1
	}
	return out
}

func (r Repairs) plus(o Repairs) Repairs {
	return Repairs{r.Routes + o.Routes, r.Firewall + o.Firewall}
}

func (a *Agent) remember(s *State, p plan, repair Repairs, took time.Duration) {
	m := &a.memory
	m.inPlace = s.inPlace
	m.last = p.wanted
	m.duration = took
	m.started = m.started || s.inPlace
	s.started = m.started
	if repair != (Repairs{}) || !s.inPlace && len(p.routes)+len(p.firewall) > 0 {
		m.unsettled++
	} else {
		m.unsettled = 0
	}
	m.waiting = a.Translation == FollowTranslation && (s.Phase == Blocked || s.Phase == Partial)
	if s.err != nil {
		m.failing++
	} else {
		m.failing = 0
	}
}

// verdicts asks what happens to the networks, if there is anything to go by.
func (p plan) verdicts(o observation) []verdict.Network {
	if o.routesErr != nil || o.firewallErr != nil {
		return nil
	}
	return verdict.Of(p.policy, p.translations, o.routes, o.firewall)
}
