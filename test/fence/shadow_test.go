package fence

import (
	"slices"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// foreignPath is something in the kernel that would lead node traffic to eth0, and the words by which the state must
// name it, one for each family.
type foreignPath struct {
	lines []string
	words []string
	mark  int
}

var foreignPaths = map[string]foreignPath{
	"host route over eth0": {
		lines: []string{"route add 10.250.0.7 via 169.254.1.1 dev eth0", "route add fd00:250::7 via fe80::1 dev eth0"},
		words: []string{"route 10.250.0.7/32 via 169.254.1.1 dev eth0", "route fd00:250::7/128 via fe80::1 dev eth0"},
	},
	"two halves over eth0": {
		lines: []string{
			"route add 10.250.0.0/17 via 169.254.1.1 dev eth0", "route add 10.250.128.0/17 via 169.254.1.1 dev eth0",
			"route add fd00:250::/49 via fe80::1 dev eth0", "route add fd00:250:0:8000::/49 via fe80::1 dev eth0",
		},
		words: []string{"route 10.250.0.0/17 ", "route 10.250.128.0/17 ", "route fd00:250::/49 ", "route fd00:250:0:8000::/49 "},
	},
	"rule for a mark": {
		lines: []string{
			"rule add fwmark 1 pref 50 lookup 100", "-6 rule add fwmark 1 pref 50 lookup 100",
			"route add default via 169.254.1.1 dev eth0 table 100", "-6 route add default via fe80::1 dev eth0 table 100",
		},
		words: []string{"rule 50: from all fwmark 0x1 lookup 100"},
		mark:  1,
	},
	"rule for a mark, route on the link": {
		lines: []string{
			"rule add fwmark 1 pref 50 lookup 100", "-6 rule add fwmark 1 pref 50 lookup 100",
			"route add 10.250.0.0/16 dev eth0 table 100", "-6 route add fd00:250::/48 dev eth0 table 100",
		},
		words: []string{"rule 50: from all fwmark 0x1 lookup 100"},
		mark:  1,
	},
}

// TestForeignPaths: a longer route, halves, a rule with a table of its own: nothing arrives over the seed network, and
// the state names what would have led there.
func TestForeignPaths(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{Forwarding: true}, func(t *testing.T, r *rig.Rig, backend string) {
		s := startReady(t, r, backend)
		for name, path := range foreignPaths {
			t.Run(name, func(t *testing.T) { tryForeignPath(t, r, s.In(t), path) })
		}
	})
}

func tryForeignPath(t *testing.T, r *rig.Rig, s *sidecar, path foreignPath) {
	ip(r, path.lines)
	defer ip(r, undo(path.lines))
	named := func(d document) bool {
		for _, w := range path.words {
			if !strings.Contains(d.Causes(), w) {
				return false
			}
		}
		return d.Ready
	}
	s.Await("the state names "+strings.Join(path.words, " and "), named)
	r.ResetCounters()
	expect(t, r, "VPN down", "")
	expectMarkRefused(t, r, path.mark)
	r.TunnelUp()
	defer r.TunnelDown()
	s.Await("the tunnel is there, and the state still names the path", func(d document) bool {
		return slices.Contains(d.Interfaces.Tunnels, "tun0") && named(d)
	})
	ways := everyWay(r)
	for i, a := range r.ProbeAll(ways) {
		if a.From == rig.AnswerNet {
			t.Errorf("VPN up: %v: got %v", ways[i], a)
		}
	}
	expectMarkRefused(t, r, path.mark)
	expectNoLeak(t, r, "VPN up")
}

// expectMarkRefused probes with the mark that a rule sends to eth0.
func expectMarkRefused(t *testing.T, r *rig.Rig, mark int) {
	t.Helper()
	if mark == 0 {
		return
	}
	for _, to := range addresses {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP} {
			p := rig.Probe{Protocol: protocol, To: to, Mark: mark, Timeout: brief}
			if a := r.Probe(p); a.Err == nil {
				t.Errorf("%v: answered by %v", p, a)
			}
		}
	}
	expectNoLeak(t, r, "marked probes")
}

// ip runs "ip" commands one by one, as a batch knows one family only.
func ip(r *rig.Rig, lines []string) {
	for _, l := range lines {
		r.Pod.Run("ip " + l)
	}
}

// undo turns ip's "add" lines into their opposite.
func undo(lines []string) []string {
	var out []string
	for _, l := range lines {
		out = append(out, strings.Replace(l, " add ", " del ", 1))
	}
	return out
}
