package agent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/routefence/routefence/policy"
	"github.com/routefence/routefence/ranges"
	"github.com/routefence/routefence/routes"
	"github.com/routefence/routefence/verdict"
)

// loss is a part of the node networks from which a tunnel has gone.
type loss struct {
	addrs ranges.Set
	since time.Time
}

// losses are the parts of the node networks whose packets go nowhere.
//
// A TCP connection into such a part hangs: the kernel tries again and again, and tells its owner nothing for a quarter of an hour.
// kube-apiserver, which keeps one connection to each kubelet, takes 45 s to ask it whether it is alive; meanwhile every kubectl logs
// waits. So it is ended, unless the tunnel comes back within a grace: then it goes on as if nothing had been.
type losses struct {
	// recent are those whose grace is not over.
	recent []loss
	// over are those whose connections have been ended.
	over ranges.Set
}

// follow takes what is dead now, and returns, once, what of that has been so for the grace.
func (l *losses) follow(dead ranges.Set, now time.Time, grace time.Duration) ranges.Set {
	l.over = l.over.Intersect(dead)
	fresh := dead.Minus(l.over)
	var ended ranges.Set
	var recent []loss
	for _, r := range l.recent {
		r.addrs = r.addrs.Intersect(dead)
		fresh = fresh.Minus(r.addrs)
		switch {
		case r.addrs.Empty():
		case now.Sub(r.since) >= grace:
			ended = ended.Union(r.addrs)
		default:
			recent = append(recent, r)
		}
	}
	if !fresh.Empty() {
		recent = append(recent, loss{fresh, now})
	}
	l.recent, l.over = recent, l.over.Union(ended)
	return ended
}

// remaining returns how long it is until a grace is over, or most if none is, or none so soon.
func (l *losses) remaining(most, grace time.Duration, now time.Time) time.Duration {
	if len(l.recent) == 0 {
		return most
	}
	return min(most, max(0, l.recent[0].since.Add(grace).Sub(now))) // they are in the order of time
}

// endLost ends the connections into what has been dead for the grace.
func (a *Agent) endLost(verdicts []verdict.Network, p plan, o observation) {
	if a.TunnelGrace == 0 {
		return
	}
	if verdicts == nil {
		a.memory.losses.recent = nil // nobody knows what it was like meanwhile: the grace begins anew
		return
	}
	lost := a.memory.losses.follow(verdict.Dead(verdicts), o.at, a.TunnelGrace)
	if lost.Empty() {
		return
	}
	lost = lost.Minus(living(lost, p, o.routes))
	// Nor does routing hold a socket that is bound to a tunnel.
	var tunnels []int
	for _, l := range o.routes.Links {
		if l.Up && p.policy.Role(l.Name) == policy.Tunnel {
			tunnels = append(tunnels, l.Index)
		}
	}
	// Those that came in by a fenced interface, and are answered there, need no tunnel.
	answered := ranges.Of(p.policy.Replies...)
	a.end("connections to nodes whose tunnel is gone", func(peer netip.Addr, link int, incoming bool) bool {
		return lost.Contains(peer) && !(incoming && answered.Contains(peer)) && !slices.Contains(tunnels, link)
	})
}

// living returns the part of what is lost that some packets still get to by a tunnel. The verdict counts on no path that needs a mark, a
// source or the second of two hops; what takes one lives. So do connections that are older than a translation, by the real route.
func living(lost ranges.Set, p plan, s routes.State) ranges.Set {
	out := s.Reaching(lost.Prefixes(), p.policy)
	for _, t := range p.translations {
		if !s.Reaching([]netip.Prefix{t.To}, p.policy).Empty() {
			out = out.Union(ranges.Of(t.From))
		}
	}
	return out
}
