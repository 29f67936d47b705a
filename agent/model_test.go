package agent

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/verdict"
	"go.uber.org/zap"
	"pgregory.net/rapid"
)

// fault is what fails at one place: calls of List, or changes of Apply from one number up to another.
type fault struct {
	at       string
	err      error
	from, to int
	family   policy.Family
	// calls is how often it strikes, passes how long it stays.
	calls, passes int
}

// killed ends a process in the middle of a pass.
type killed struct{}

// statement is a source: what the world says, how it is read, and what a process has read of it.
type statement struct {
	fakeSource
	truth []netip.Prefix
	mode  string
}

// read makes the report that package shoot would: trouble never makes it smaller, and nobody ever names an empty set.
func (s *statement) read() {
	r := &s.report
	r.Err, r.Away = nil, nil
	switch s.mode {
	case "good":
		r.Networks, r.Known = s.truth, true
	case "partly bad":
		r.Networks = ranges.Of(slices.Concat(r.Networks, s.truth[:len(s.truth)/2])...).Prefixes()
		r.Known, r.Err = len(r.Networks) > 0, &policy.InvalidNetworkError{Item: "10.300.0.0/16", Err: errors.New("no network")}
	case "away":
		if r.Away = errors.New("unreachable"); !r.Known {
			r.Err, r.Away = r.Away, nil
		}
	case "empty":
		r.Err = errors.New("names no network")
	}
}

// world is a namespace with an agent in it, and what is to be expected of both.
type world struct {
	*rapid.T
	config  Config
	r       fakeRoutes
	f       *fakeTables
	sources []*statement
	agent   *Agent
	faults  []*fault
	met     map[string]int
	// kill is the write at which the process dies, made the writes of a pass that were made, tried those that were begun.
	kill, made, tried int
	// owed must be fenced, taken is what the process found at its start, looked that it has seen all of it, settled the sources it has read.
	owed, taken ranges.Set
	looked      bool
	settled     map[string]bool
	before      measure
	// upset and lost say what others did that makes some writes open or cut more for a moment.
	upset, lost bool
	others      string
	// seen is each layer as last read by the process.
	seenRoutes   *routes.State
	seenFirewall *firewall.Snapshot
}

// measure is how the networks owed fare.
type measure struct{ exposed, unstopped, leaking, carried ranges.Set }

func (w *world) measure(s routes.State, f firewall.Snapshot) measure {
	p := w.policy()
	// Rule 95 comes before the firewall that it is for. It opens for packets with our mark, which nobody else sets.
	unanswered := s
	unanswered.Rules = slices.DeleteFunc(slices.Clone(s.Rules), routes.Rule.Answers)
	firewalled := p
	firewalled.Networks = ranges.Of(slices.Concat(p.Networks, p.Translated)...).Prefixes()
	return measure{exposed: s.Exposed(p), unstopped: verdict.Unstopped(firewalled, s, f), leaking: w.leaking(unanswered, f), carried: s.Carried(p)}
}

// leaking returns what leaks by the verdict.
func (w *world) leaking(s routes.State, f firewall.Snapshot) (out ranges.Set) {
	p := w.policy()
	for _, n := range verdict.Of(p, f.Translations(p), s, f) {
		for _, e := range n.Exceptions {
			if e.State == verdict.Leaking {
				out = out.Union(ranges.Of(e.CIDR))
			}
		}
	}
	return out
}

func (w *world) policy() policy.Policy {
	p := policy.New(w.owed.Prefixes(), w.config.Allow, w.config.Fenced, w.config.Tunnels)
	p, _ = p.Expect(w.config.Translated, nil, nil)
	return p.Answer(func(netip.Prefix) bool { return w.config.Replies == AllReplies })
}

// faulty reports whether faults of a kind are about.
func (w *world) faulty(kind string) bool {
	return slices.ContainsFunc(w.faults, func(f *fault) bool { return strings.HasPrefix(f.at, kind) })
}

// strike returns the fault that strikes at a place, if any.
func (w *world) strike(at string, number int) *fault {
	for _, f := range w.faults {
		if f.at == at && f.calls > 0 && f.from <= number && number < f.to {
			f.calls--
			w.met[f.name()]++
			return f
		}
	}
	return nil
}

func (f *fault) name() string { return fmt.Sprintf("%s: %v", f.at, f.err) }

type worldRoutes struct{ *world }

func (w worldRoutes) List() (routes.State, error) {
	if f := w.strike("routes list", 0); f != nil {
		return routes.State{}, f.err
	}
	s, err := w.r.List()
	w.seenRoutes = &s
	return s, err
}

// Apply makes changes as routes/rtnl does: what takes away waits for all else to succeed.
func (w worldRoutes) Apply(changes []routes.Change) error {
	var errs []error
	added := true
	for i, c := range changes {
		if !added && c.Removes() {
			break
		}
		if err := w.write("routes apply", i, c, func() error { return w.r.make(c) }); err != nil {
			errs = append(errs, err)
			added = added && c.Removes()
		}
	}
	return errors.Join(errs...)
}

type worldFirewall struct{ *world }

func (w worldFirewall) List() (firewall.Snapshot, error) {
	if f := w.strike("firewall list", 0); f != nil {
		return firewall.Snapshot{}, f.err
	}
	s := w.f.snapshot()
	if f := w.strike("firewall unread", 0); f != nil {
		s.Unread = map[policy.Family]error{f.family: f.err}
		maps.DeleteFunc(s.Tables, func(t firewall.Table, _ map[string]firewall.Chain) bool { return t.Family == f.family })
		w.see(f.family, false)
		return s, nil
	}
	if f := w.strike("firewall blind", 0); f != nil {
		w.see(f.family, true)
		s.Blind = map[policy.Family]error{f.family: f.err}
		maps.DeleteFunc(s.Other, func(t firewall.Table, _ map[string]firewall.Chain) bool { return t.Family == f.family })
		return s, nil
	}
	w.see(0, false)
	return s, nil
}

// see notes what was read of the firewall. Of what was not, what was read before still counts, which for the other backend may be nothing.
func (w *world) see(unread policy.Family, other bool) {
	now, known := w.f.snapshot(), w.seenFirewall
	if known == nil {
		known = &firewall.Snapshot{}
		if !other && len(policy.Only(w.owed.Prefixes(), unread)) > 0 {
			return
		}
	}
	for _, name := range []string{"filter", "mangle", "nat"} {
		t := firewall.Table{Family: unread, Name: name}
		if now.Other[t] = known.Other[t]; !other {
			now.Tables[t] = known.Tables[t]
		}
	}
	if set, one := firewall.SetNames[unread]; one && !other {
		now.Sets[set] = known.Sets[set]
	}
	w.seenFirewall = &now
}

// Apply makes changes as firewall/xtables does: a family ends at its first failure.
func (w worldFirewall) Apply(changes []firewall.Change) error {
	failed := map[policy.Family]error{}
	for i, c := range changes {
		if failed[c.Of()] == nil {
			failed[c.Of()] = w.write("firewall apply", i, c, func() error { return w.f.make(c) })
		}
	}
	return errors.Join(failed[policy.IPv4], failed[policy.IPv6])
}

// write makes one write, and looks at the kernel after it.
func (w *world) write(at string, number int, c fmt.Stringer, change func() error) error {
	if w.tried++; w.tried == w.kill {
		w.met["kill"]++
		panic(killed{})
	}
	for _, at := range []string{at, at + " in part"} {
		if f := w.strike(at, number); f != nil {
			return f.err
		}
	}
	if err := change(); err != nil {
		w.Fatalf("%s: %v", c, err)
	}
	w.made++
	w.Logf("write: %.200s", c)
	now := w.measure(w.r.state, w.f.snapshot())
	// A process that cannot read the other backend at its start does not know what is translated if others emptied table 9604 besides.
	if !w.lost {
		w.none("opened the firewall by "+c.String(), now.unstopped.Minus(w.before.unstopped))
		w.none("leaks by "+c.String(), now.leaking.Minus(w.before.leaking))
	}
	if !w.upset {
		w.none("opened routing by "+c.String(), now.exposed.Minus(w.before.exposed))
		// The denial comes even if rule 96 before it could not be added.
		if !w.faulty("routes apply") {
			w.none("cut from the tunnel by "+c.String(), w.before.carried.Minus(now.carried))
		}
	}
	if others := foreign(w.r.state, w.f); others != w.others {
		w.Fatalf("%s touched others:\n%s\nwas\n%s", c, others, w.others)
	}
	return nil
}

func (w *world) none(what string, s ranges.Set) {
	if !s.Empty() {
		w.Fatalf("%s: %v", what, s.Prefixes())
	}
}

// start starts a process that knows nothing.
func (w *world) start() {
	w.taken, w.looked, w.settled, w.seenRoutes, w.seenFirewall = w.owed.Intersect(w.stands()), false, map[string]bool{}, nil, nil
	var sources []Source
	for _, s := range w.sources {
		s.report = shoot.Report{Name: s.report.Name}
		s.read()
		sources = append(sources, s)
	}
	w.agent = New(w.config, Kernel{worldRoutes{w}, worldFirewall{w}, &fakeConnections{}}, sources, zap.NewNop())
}

// stands returns the networks that a layer in the kernel names.
func (w *world) stands() ranges.Set {
	return ranges.Of(slices.Concat(w.r.state.Adopted(), w.f.snapshot().Adopted())...)
}

// owe says what must be fenced from this pass on: what the sources say, and what was found as long as one of them has not spoken.
func (w *world) owe() (settled, healthy bool) {
	var said []netip.Prefix
	settled, healthy = true, true
	for _, s := range w.sources {
		said = append(said, s.report.Networks...)
		w.settled[s.report.Name] = w.settled[s.report.Name] || s.mode == "good"
		settled, healthy = settled && w.settled[s.report.Name], healthy && s.mode == "good"
	}
	owed := ranges.Of(said...)
	if !settled {
		if !w.looked {
			w.taken = w.taken.Intersect(w.stands()) // others may have been faster
		}
		owed = owed.Union(w.taken)
	}
	w.owed = owed
	return settled, healthy
}

// pass lets the agent make a pass, and a second one if nothing failed.
func (w *world) pass() {
	settled, healthy := w.owe()
	w.before, w.others = w.measure(w.r.state, w.f.snapshot()), foreign(w.r.state, w.f)
	w.upset = w.lacksMain()
	w.lost = len(w.r.state.Translating()) == 0 && w.faulty("firewall blind")
	if !w.survives() {
		w.start()
		return
	}
	w.checkReady(w.agent.State().At(time.Now()))
	if len(w.faults) > 0 {
		for _, f := range w.faults {
			f.passes--
		}
		w.faults = slices.DeleteFunc(w.faults, func(f *fault) bool { return f.passes <= 0 })
		return
	}
	w.looked = true
	w.checkClean(settled)
	if d := w.agent.State().At(time.Now()); healthy && !d.Ready {
		w.Fatalf("not ready: %s: %s", d.Reason, d.Message)
	}
	if w.survives(); w.made > 0 {
		w.Fatalf("the second pass made %d writes", w.made)
	}
}

// lacksMain reports whether somebody took rule 96 and left rule 97: what the VPN carries hangs on what table 9604 happens to hold then,
// and putting the denial back comes first; and rule 96 comes back even if a link's group could not be set before it.
func (w *world) lacksMain() bool {
	has := func(f policy.Family, priority uint32) bool {
		return slices.ContainsFunc(w.r.state.Rules, func(r routes.Rule) bool { return r.Family == f && r.Priority == priority })
	}
	return slices.ContainsFunc(policy.Families, func(f policy.Family) bool { return has(f, routes.PriorityFence) && !has(f, routes.PriorityMain) })
}

// survives makes a pass, and reports whether the process lives.
func (w *world) survives() (alive bool) {
	defer func() {
		w.kill = 0
		if r := recover(); r != nil && r != (killed{}) {
			panic(r)
		}
	}()
	w.made, w.tried = 0, 0
	w.agent.Pass()
	return true
}

// checkReady: ready only on what was read, and never on a layer that was read as missing.
func (w *world) checkReady(d Document) {
	if !d.Ready {
		return
	}
	if w.seenRoutes == nil || w.seenFirewall == nil {
		w.Fatalf("ready although a layer has not been read")
	}
	read := w.measure(*w.seenRoutes, *w.seenFirewall)
	w.none("ready, leaking", w.leaking(*w.seenRoutes, *w.seenFirewall))
	w.none("ready, open in the firewall", read.unstopped)
	w.none("ready, open in routing", w.unmarked(*w.seenRoutes).Exposed(w.policy()))
}

// unmarked is a state without the rule of somebody else for marked packets, which the firewall alone stops.
func (w *world) unmarked(s routes.State) routes.State {
	s.Rules = slices.DeleteFunc(slices.Clone(s.Rules), func(r routes.Rule) bool { return r == foreignRule })
	return s
}

// checkClean: after a pass in which nothing failed all that is owed is fenced twice, and all that the VPN carries gets through.
func (w *world) checkClean(settled bool) {
	s, f, p := w.r.state, w.f.snapshot(), w.policy()
	now := w.measure(s, f)
	w.none("leaking after a pass", w.leaking(s, f))
	w.none("open in the firewall after a pass", now.unstopped)
	w.none("open in routing after a pass", w.unmarked(s).Exposed(p))
	if fenced := ranges.Of(s.Adopted()...); settled {
		w.none("fenced though nobody asks for it", fenced.Minus(w.owed))
	}
	bare := s
	bare.Rules = slices.DeleteFunc(slices.Clone(s.Rules), func(r routes.Rule) bool { return r.Priority != 32766 })
	carried := bare.Carried(p).Minus(ranges.Of(p.Allow...))
	w.none("cut from the tunnel", carried.Minus(now.carried))
	for _, family := range policy.Families {
		for _, pass := range f.Passing(family, "tun0", carried) {
			carried = carried.Minus(pass.Addrs)
		}
	}
	w.none("stopped on the way to the tunnel", carried)
	for _, t := range f.Translations(p) {
		paths, _ := s.Paths(policy.IPv4, ranges.Of(t.From).Minus(ranges.Of(p.Allow...)))
		for _, path := range paths {
			if path.Fate != routes.Device {
				w.none("cut before it is translated", path.To)
			}
		}
	}
}
