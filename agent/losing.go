package agent

import (
	"net/netip"
	"time"

	"github.com/routefence/routefence/ranges"
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

// endLost ends the connections into what has been dead for the grace. Those that came in by a fenced interface and are answered there
// need no tunnel.
func (a *Agent) endLost(dead ranges.Set, answered []netip.Prefix) {
	if a.TunnelGrace == 0 {
		return
	}
	lost := a.memory.losses.follow(dead, time.Now(), a.TunnelGrace)
	if lost.Empty() {
		return
	}
	spared := ranges.Of(answered...)
	a.end("connections to nodes whose tunnel is gone", func(peer netip.Addr, _ int, incoming bool) bool {
		return lost.Contains(peer) && !(incoming && spared.Contains(peer))
	})
}
