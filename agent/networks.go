package agent

import (
	"net/netip"

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
	name  string
	alone []string
	set   ranges.Set
}

func (m *memory) namersOf(reports []shoot.Report) namers {
	var out namers
	for _, r := range reports {
		out = append(out, namer{r.Name, []string{r.Name}, ranges.Of(r.Networks...)})
	}
	if !m.allSettled(reports) {
		out = append(out, namer{kernelSource, []string{kernelSource}, ranges.Of(m.adopted...)})
	}
	return out
}

// of returns who names some part of a network. Where one source names them all, all share its name.
func (ns namers) of(n netip.Prefix) []string {
	if len(ns) == 1 {
		return ns[0].alone
	}
	out := make([]string, 0, len(ns))
	for _, namer := range ns {
		if namer.set.Overlaps(n) {
			out = append(out, namer.name)
		}
	}
	return out
}

// policyFor returns the policy that the reports ask for in a namespace, and what is refused of it.
func (a *Agent) policyFor(reports []shoot.Report, s routes.State) (policy.Policy, []error) {
	p := policy.New(a.memory.union(reports), a.Allow, a.Fenced, a.Tunnels)
	around := a.look(p, s)
	lifelines := a.allLifelines()
	if a.Lifelines == RefuseLifelines {
		kept, refused := p.Refuse(lifelines)
		return a.answering(kept, around), refused
	}
	return a.answering(p.Keep(lifelines), around), nil
}

// allLifelines returns what the last look told, and what the kernel does not tell.
func (a *Agent) allLifelines() []policy.Lifeline {
	seen := a.memory.surroundings.lifelines
	return append(seen[:len(seen):len(seen)], a.Known...)
}
