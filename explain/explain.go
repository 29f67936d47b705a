// Package explain follows a packet to one address through rules, routes and chains as read back from the kernel.
package explain

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/verdict"
)

// NotNode is the state of an address that is in no node network.
const NotNode verdict.State = "NotANodeAddress"

// Answer is where a packet to an address goes, and why.
type Answer struct {
	Address netip.Addr    `json:"address"`
	Network string        `json:"network,omitempty"`
	State   verdict.State `json:"state"`
	// Interface is the one that the packet leaves by, if it does.
	Interface string `json:"interface,omitempty"`
	// TranslatedTo is what nat OUTPUT makes of the address: that is what is dialled in its place.
	TranslatedTo string `json:"translatedTo,omitempty"`
	// Translated says that node networks are or may be translated to such addresses, so that the fence is for this one too.
	Translated bool `json:"translated,omitempty"`
	// Routing are the ways the packet may take, the plain one first, then those of packets with a mark, a source and so on.
	Routing []Way `json:"routing"`
	// Kernel is the kernel's own answer to the look-up, for comparison.
	Kernel string `json:"kernel,omitempty"`
	// Firewall says for every fenced interface what happens to a packet that is sent there all the same.
	Firewall []Gate `json:"firewall"`
	// Exceptions are the ways that differ from State.
	Exceptions []Exception `json:"exceptions,omitempty"`
}

// Way is one outcome of routing.
type Way struct {
	Goes  string `json:"goes"`
	Rule  string `json:"rule,omitempty"`
	Route string `json:"route"`
	Only  string `json:"only,omitempty"`
}

// Gate is the firewall's word on one interface.
type Gate struct {
	Interface string `json:"interface"`
	Passes    bool   `json:"passes"`
	Cause     string `json:"cause,omitempty"`
}

// Exception is a way that differs.
type Exception struct {
	State     verdict.State `json:"state"`
	Interface string        `json:"interface,omitempty"`
	Cause     string        `json:"cause"`
}

// Leaks reports whether some packet to the address can leave by a fenced interface.
func (a Answer) Leaks() bool { return a.State == verdict.Leaking }

// Address answers for one address.
func Address(addr netip.Addr, p policy.Policy, r routes.State, f firewall.Snapshot, translations []policy.Translation) Answer {
	one := netip.PrefixFrom(addr, addr.BitLen())
	family := policy.FamilyOf(one)
	a := Answer{Address: addr, State: NotNode, Routing: []Way{}, Firewall: []Gate{}}
	paths, shadows := r.Paths(family, ranges.Of(one))
	for _, path := range paths {
		a.Routing = append(a.Routing, Way{Goes: goes(path), Rule: path.Rule, Route: path.Cause, Only: path.Only})
	}
	for _, s := range shadows {
		a.Routing = append(a.Routing, Way{Goes: "passed over: " + s.Link.Name + " is fenced", Route: s.Cause})
	}
	for _, l := range r.Fenced(p) {
		gate := Gate{Interface: l.Name}
		for _, pass := range f.Passing(family, l.Name, ranges.Of(one)) {
			gate.Passes, gate.Cause = true, pass.Cause
		}
		a.Firewall = append(a.Firewall, gate)
	}
	a.Translated = slices.ContainsFunc(f.TranslatedTo(), func(p netip.Prefix) bool { return p.Contains(addr) })
	for _, n := range p.Networks {
		if n.Contains(addr) {
			a.Network = n.String()
			p.Networks = []netip.Prefix{one}
			a.judge(verdict.Of(p, translations, r, f)[0])
			break
		}
	}
	return a
}

func (a *Answer) judge(v verdict.Network) {
	a.State, a.Interface = v.State, v.Interface
	if len(v.TranslatedTo) > 0 {
		a.TranslatedTo = v.TranslatedTo[0].Addr().String()
	}
	for _, e := range v.Exceptions {
		if e.State == verdict.Allowed {
			a.State = verdict.Allowed
		}
		a.Exceptions = append(a.Exceptions, Exception{e.State, e.Interface, e.Cause})
	}
}

func goes(p routes.Path) string {
	switch {
	case p.Fate == routes.Here:
		return "to this namespace itself"
	case p.Fate == routes.Nowhere:
		return "nowhere"
	case p.Link.Name == "":
		return "to an unknown interface"
	case !p.Link.Up:
		return "to " + p.Link.Name + ", which is down"
	}
	return "to " + p.Link.Name
}

// String returns the answer for people.
func (a Answer) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", a.Address, a.verdict())
	for _, w := range a.Routing {
		fmt.Fprintf(&b, "  routing:  %s", w.Goes)
		if w.Only != "" {
			fmt.Fprintf(&b, ", for some packets (%s)", w.Only)
		}
		fmt.Fprintf(&b, "\n            by %s", w.Route)
		if w.Rule != "" && !strings.Contains(w.Route, w.Rule) {
			fmt.Fprintf(&b, ", rule %s", w.Rule)
		}
		b.WriteString("\n")
	}
	if a.Kernel != "" {
		fmt.Fprintf(&b, "  kernel:   %s\n", a.Kernel)
	}
	for _, g := range a.Firewall {
		if g.Passes {
			fmt.Fprintf(&b, "  firewall: a packet sent to %s leaves: %s\n", g.Interface, g.Cause)
		} else {
			fmt.Fprintf(&b, "  firewall: a packet sent to %s is stopped\n", g.Interface)
		}
	}
	for _, e := range a.Exceptions {
		if e.State != a.State || e.State == verdict.Leaking {
			fmt.Fprintf(&b, "  but:      %s by %s: %s\n", e.State, e.Interface, e.Cause)
		}
	}
	return b.String()
}

// exemption says why the address is exempt.
func (a Answer) exemption() string {
	for _, e := range a.Exceptions {
		if e.State == verdict.Allowed {
			return e.Cause
		}
	}
	return "exempt"
}

func (a Answer) verdict() string {
	if a.State == NotNode && a.Translated {
		closed := "are closed to it"
		if slices.ContainsFunc(a.Firewall, func(g Gate) bool { return g.Passes }) {
			closed = "should be closed to it, and are not"
		}
		return "not a node address, but one that node addresses may be translated to (fenced interfaces " + closed + ")"
	}
	if a.State == NotNode {
		return "not a node address (the fence does not concern it)"
	}
	where := "in node network " + a.Network
	if a.TranslatedTo != "" {
		where += ", translated to " + a.TranslatedTo
	}
	switch a.State {
	case verdict.Tunneled:
		return fmt.Sprintf("Tunneled: leaves by %s (%s)", a.Interface, where)
	case verdict.Leaking:
		return fmt.Sprintf("LEAKING: can leave outside of the tunnel (%s)", where)
	case verdict.Allowed:
		return fmt.Sprintf("Allowed: %s (%s)", a.exemption(), where)
	}
	return fmt.Sprintf("%s: goes nowhere (%s)", a.State, where)
}
