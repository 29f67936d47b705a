package agent

import (
	"net/netip"
	"slices"

	"github.com/routefence/routefence/firewall"
	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/shoot"
	"github.com/routefence/routefence/verdict"
	"go.uber.org/zap"
)

// opening is what stood open until a pass closed it. Connections that began there are outside of the VPN and hang once the
// fence stands: they are ended.
type opening struct {
	// to are addresses that routing sent to a fenced interface.
	to ranges.Set
	// bound are addresses that the firewall let out by a fenced interface, which matters for sockets bound to one of links.
	bound ranges.Set
	links []int
}

func (o opening) empty() bool { return o.to.Empty() && o.bound.Empty() }

// holds reports whether a connection to a peer, of a socket that is bound to a link or to none (0), began there.
func (o opening) holds(peer netip.Addr, link int) bool {
	return o.to.Contains(peer) || slices.Contains(o.links, link) && o.bound.Contains(peer)
}

func (o opening) join(other opening) opening {
	return opening{to: o.to.Union(other.to), bound: o.bound.Union(other.bound), links: append(o.links, other.links...)}
}

// denyFirst makes the first write of the process the deny, before the firewall is looked at (which means programs to start and
// a backend to prove) and before any source is followed. It only adds; the pass that comes next does the rest.
func (a *Agent) denyFirst(reports []shoot.Report) opening {
	if a.memory.denied {
		return opening{}
	}
	s, err := a.kernel.Routes.List()
	if err != nil {
		return opening{} // the pass meets the same error and reports it
	}
	a.memory.denied = true
	a.memory.adopted = append(a.memory.adopted, s.Adopted()...)
	p, _ := a.policyFor(reports, s)
	var translations []policy.Translation
	if a.Translation == FollowTranslation {
		// Whose parts a changed policy names otherwise must not be cut until nat OUTPUT has been read.
		translations = s.Translating()
	}
	changes := slices.DeleteFunc(routes.Diff(routes.Desired(p, translations, s), s), routes.Change.Removes)
	if len(changes) == 0 {
		return opening{}
	}
	if err := a.kernel.Routes.Apply(changes); err != nil {
		return opening{} // likewise
	}
	logChanges(a.log, "routes", changes)
	return opening{to: s.Exposed(p)}
}

// openings returns what stands open before a pass writes. Only what the writes are about can be open; looking at all of ten
// thousand networks whenever one is added would cost more than the rest of the pass.
func (a *Agent) openings(p plan, o observation) opening {
	var out opening
	if o.routesErr != nil {
		return out
	}
	out.to = o.routes.Exposed(p.policy.Within(missingRoutes(p.routes)))
	for _, l := range o.routes.Fenced(p.policy) {
		out.links = append(out.links, l.Index)
	}
	if o.firewallErr == nil {
		out.bound = verdict.Unstopped(p.policy.Within(firewall.Affected(p.firewall)), o.routes, o.firewall)
	}
	return out
}

// sever ends the connections that began in an opening. Those that are forwarded have no socket here: what they were
// allowed or translated to when they began is forgotten.
func (a *Agent) sever(o opening) {
	if o.empty() {
		return
	}
	a.end("connections to nodes that ran outside of the tunnel", func(peer netip.Addr, link int, _ bool) bool { return o.holds(peer, link) })
	if o.to.Empty() {
		return
	}
	forgotten, err := a.kernel.Connections.Forget(o.to.Contains)
	if forgotten > 0 {
		a.log.Info("forgot what forwarded connections to nodes were allowed outside of the tunnel", zap.Int("connections", forgotten))
	}
	if err != nil {
		a.log.Warn("forwarded connections to nodes outside of the tunnel could not be forgotten", zap.Error(err))
	}
}

// end ends the connections that are meant. What they are is told in the log.
func (a *Agent) end(what string, meant func(peer netip.Addr, link int, incoming bool) bool) {
	peers := map[netip.Addr]bool{}
	ended, err := a.kernel.Connections.Sever(func(peer netip.Addr, link int, incoming bool) bool {
		held := meant(peer, link, incoming)
		if held {
			peers[peer] = true
		}
		return held
	})
	a.memory.severed += uint64(ended)
	if ended > 0 {
		var names []string
		for p := range peers {
			names = append(names, p.String())
		}
		slices.Sort(names)
		// By name: the VPN's own process may have been among them, whose peer then belongs to --allow.
		a.log.Info("ended "+what, zap.Int("connections", ended), zap.Strings("peers", few(names)))
	}
	if err != nil {
		a.log.Warn("not ended and may hang: "+what, zap.Error(err))
	}
}
