package fence

import (
	"net/netip"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// ample is the patience with probes that must be answered, brief that with those that must not.
const (
	ample = 10 * time.Second
	brief = 300 * time.Millisecond
)

// addresses are the node in every form in which it is dialled.
var addresses = []netip.Addr{rig.Node4, rig.Node6, rig.Mapped(rig.Node4)}

// everyWay lists all ways to reach the node: protocols, families, bound to eth0 or not, local or forwarded.
func everyWay(r *rig.Rig) []rig.Probe {
	var ways []rig.Probe
	for _, to := range addresses {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP, rig.ICMP} {
			if protocol == rig.ICMP && to.Is4In6() {
				continue // the kernel has no such thing
			}
			free := rig.Probe{From: r.Pod, Protocol: protocol, To: to}
			bound, forwarded := free, free
			bound.Device, forwarded.From = "eth0", r.Client
			ways = append(ways, free, bound)
			if r.Client != nil {
				ways = append(ways, forwarded)
			}
		}
	}
	return ways
}

// expect takes all ways. Free ones must get the answer wanted ("" for none), bound ones none, and nothing may arrive at
// the seed network.
func expect(t *testing.T, r *rig.Rig, when, want string) {
	t.Helper()
	ways := everyWay(r)
	for i := range ways {
		if ways[i].Device == "" && want != "" {
			ways[i].Timeout = ample
		}
	}
	for i, a := range r.ProbeAll(ways) {
		switch p := ways[i]; {
		case p.Device != "" && a.Err == nil:
			t.Errorf("%s: %v: answered by %v", when, p, a)
		case p.Device == "" && a.From != want:
			t.Errorf("%s: %v: got %v, want %q", when, p, a, want)
		}
	}
	expectNoLeak(t, r, when)
}

// expectNoLeak wants that the seed network has seen nothing since the last reset.
func expectNoLeak(t *testing.T, r *rig.Rig, when string) {
	t.Helper()
	if got := r.SeedCount(); got.Total() != 0 {
		t.Errorf("%s: the seed network saw %+v", when, got)
		r.ResetCounters()
	}
}

// expectQuickRefusal wants a connect to fail at once, as a caller that waits for minutes is an outage of its own. At once is before TCP
// tries a second time, after a second: how long it really took depends on the machine, and is told.
func expectQuickRefusal(t *testing.T, r *rig.Rig) {
	t.Helper()
	const limit = 900 * time.Millisecond
	for _, to := range addresses {
		a := r.Probe(rig.Probe{Protocol: rig.TCP, To: to})
		if a.Err == nil || a.Took > limit {
			t.Errorf("connect to %v: %v after %v, want a refusal within %v", to, a, a.Took, limit)
		}
		t.Logf("connect to %v: %v after %v", to, a, a.Took)
	}
}

// expectOpen wants the seed network to be reached and its counter to move, else a zero later would mean nothing.
func expectOpen(t *testing.T, r *rig.Rig) {
	t.Helper()
	ways := everyWay(r)
	for i := range ways {
		ways[i].Timeout = ample
	}
	for i, a := range r.ProbeAll(ways) {
		if a.From != rig.AnswerNet {
			t.Errorf("without a fence: %v: got %v, want %s", ways[i], a, rig.AnswerNet)
		}
	}
	if got := r.SeedCount(); got.Packets < uint64(len(ways)) {
		t.Errorf("without a fence: the counter shows %+v after %d probes", got, len(ways))
	}
	r.ResetCounters()
}
