package agent

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
)

// kernelSource names networks that no source has confirmed yet but that an earlier process fenced.
const kernelSource = "kernel"

// union returns the networks of all sources. As long as one source has not made a whole and healthy statement since the start, what
// the kernel already fences counts too: a restart while a source is away, half written or partly wrong must not open anything.
func (m *memory) union(reports []shoot.Report) []netip.Prefix {
	var out []netip.Prefix
	for _, r := range reports {
		out = append(out, r.Networks...)
	}
	if !m.allSettled(reports) {
		out = append(out, m.adopted...)
	}
	return out
}

func (m *memory) allSettled(reports []shoot.Report) bool {
	if m.company {
		return false
	}
	for _, r := range reports {
		if !m.settled[r.Name] {
			return false
		}
	}
	return true
}

// namers is who names which part of the networks.
type namers []namer

type namer struct {
	name     string
	networks []netip.Prefix
	set      ranges.Set
}

func (m *memory) namersOf(reports []shoot.Report) namers {
	var out namers
	for _, r := range reports {
		out = append(out, namer{name: r.Name, networks: r.Networks})
	}
	if !m.allSettled(reports) {
		out = append(out, namer{name: kernelSource, networks: m.adopted})
	}
	if len(out) > 1 {
		for i := range out {
			out[i].set = ranges.Of(out[i].networks...)
		}
	}
	return out
}

// finder returns who names some part of a network. Where one source names them all, all share its name.
func (ns namers) finder() func(netip.Prefix) []string {
	if len(ns) == 1 {
		alone := []string{ns[0].name}
		return func(netip.Prefix) []string { return alone }
	}
	return func(n netip.Prefix) []string {
		out := make([]string, 0, len(ns))
		for _, namer := range ns {
			if namer.set.Overlaps(n) {
				out = append(out, namer.name)
			}
		}
		return out
	}
}

// basis is the policy for the networks of all sources, before anything is known of the namespace. It is kept, as passes ask for it
// several times and sources hardly ever change.
type basis struct {
	of     []netip.Prefix
	policy policy.Policy
}

func (a *Agent) basis(reports []shoot.Report) policy.Policy {
	b := &a.memory.basis
	if of := a.memory.union(reports); b.of == nil || !slices.Equal(b.of, of) {
		*b = basis{of, policy.New(of, a.Allow, a.Fenced, a.Tunnels)}
	}
	return b.policy
}

// policyFor returns the policy that the reports ask for in a namespace, and what is refused of it.
func (a *Agent) policyFor(reports []shoot.Report, s routes.State) (policy.Policy, []error) {
	p := a.basis(reports)
	around := a.look(p, s)
	lifelines := a.allLifelines()
	if a.Lifelines == RefuseLifelines {
		kept, refused := p.Refuse(lifelines)
		return a.answering(kept, around), refused
	}
	return a.answering(p.Keep(lifelines), around), nil
}

// neighbours returns addresses of the world that the pod itself lives in.
func (a *Agent) neighbours() []policy.Lifeline {
	out := a.allLifelines()
	for _, h := range a.Hosts {
		out = append(out, policy.Lifeline{Addr: h, Name: "host"})
	}
	return out
}

// allLifelines returns what the last look told, and what the kernel does not tell.
func (a *Agent) allLifelines() []policy.Lifeline {
	seen := a.memory.surroundings.lifelines
	return append(seen[:len(seen):len(seen)], a.Known...)
}
