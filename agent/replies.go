package agent

import (
	"net/netip"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/verdict"
)

// Replies says for which node networks connections that come in over a fenced interface get their answers.
type Replies string

const (
	// AutoReplies answers for the networks that overlap with what the pod itself lives among.
	AutoReplies Replies = "auto"
	// AllReplies answers for every network.
	AllReplies Replies = "on"
	// NoReplies answers for none.
	NoReplies Replies = "off"
)

// surroundings is what the kernel tells about where a pod lives.
type surroundings struct {
	lifelines []policy.Lifeline
	// onLink are the networks that its fenced interfaces are on.
	onLink []netip.Prefix
}

// look notes the surroundings, or returns those of the last look where the kernel could not be read: an error must neither cut the
// pod's own address nor the answers to its probes.
func (a *Agent) look(p policy.Policy, s routes.State) surroundings {
	if len(s.Links) > 0 {
		a.memory.surroundings = surroundings{s.Lifelines(p), s.OnLink(p)}
	}
	return a.memory.surroundings
}

// answering decides for which networks connections are answered.
func (a *Agent) answering(p policy.Policy, around surroundings) policy.Policy {
	switch a.Replies {
	case AllReplies:
		return p.Answer(func(netip.Prefix) bool { return true })
	case AutoReplies:
		near := around.onLink[:len(around.onLink):len(around.onLink)]
		for _, l := range append(a.Known[:len(a.Known):len(a.Known)], around.lifelines...) {
			near = append(near, netip.PrefixFrom(l.Addr, l.Addr.BitLen()))
		}
		for _, h := range a.Hosts {
			near = append(near, netip.PrefixFrom(h, h.BitLen()))
		}
		return p.Answer(ranges.Of(near...).Overlaps)
	}
	return p
}

// sparing returns an opening less what did not run outside of the tunnel: what routing carries to the tunnel, what nat OUTPUT
// translates (its sockets show the real address all the same), and networks whose connections are answered, as far as the firewall
// held there: nothing that began here can run outside of the tunnel then, and what came in is not to be ended.
func sparing(open opening, p plan, o observation) opening {
	if open.to.Empty() || o.routesErr != nil {
		return open
	}
	var translated []netip.Prefix
	for _, t := range p.translations {
		translated = append(translated, t.From)
	}
	open.to = open.to.Minus(ranges.Of(translated...)).Minus(o.routes.Carried(p.policy.Within(open.to)))
	if len(p.policy.Replies) > 0 && o.firewallErr == nil {
		answered := p.policy
		answered.Networks = p.policy.Replies
		held := ranges.Of(p.policy.Replies...).Minus(verdict.Unstopped(answered, o.routes, o.firewall))
		open.to = open.to.Minus(held)
	}
	return open
}
