package fence

import (
	"slices"
	"testing"

	"github.com/routefence/routefence/test/rig"
)

// stacks are devices that leave by eth0 under another name, and how they go again; none is named by any flag.
var stacks = map[string]struct{ come, gone []string }{
	"macvlan": {[]string{"link add over0 link eth0 type macvlan mode bridge"}, []string{"link del over0"}},
	"bridge":  {[]string{"link add over0 type bridge", "link set eth0 master over0"}, []string{"link del over0"}},
	"behind a bridge": {[]string{"link add br0 type bridge", "link set eth0 master br0", "link add over0 type veth peer name port0",
		"link set port0 master br0", "link set port0 up", "link set br0 up"}, []string{"link del over0", "link del br0"}},
}

// TestStackedOnFenced: a device that comes later, on top of eth0, is fenced as eth0 is, and the state names it. Its sockets need no route.
func TestStackedOnFenced(t *testing.T) {
	for name, stack := range stacks {
		t.Run(name, func(t *testing.T) {
			eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
				add := append(stack.come, "addr add 10.1.178.86/32 dev over0", "addr add fd00:10:1::86/128 dev over0 nodad", "link set over0 up")
				r.Pod.IP(add...)
				for range 20 { // a bridge's port may not forward yet
					if knock(r); r.SeedCount().Total() > 0 {
						break
					}
				}
				if r.SeedCount().Total() == 0 {
					t.Fatal("without a fence nothing leaves by over0")
				}
				r.Pod.IP(stack.gone...)
				s := startReady(t, r, backend)
				r.Pod.IP(add...)
				s.Await("over0 is fenced", func(d document) bool { return d.Ready && slices.Contains(d.Interfaces.Fenced, "over0") })
				r.ResetCounters()
				for range 3 {
					knock(r)
				}
				expectNoLeak(t, r, "bound to over0")
			})
		})
	}
}

// knock tries to reach the node by sockets that are bound to over0; what comes of it shows at the seed network.
func knock(r *rig.Rig) {
	var probes []rig.Probe
	for _, to := range addresses {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP} {
			probes = append(probes, rig.Probe{Protocol: protocol, To: to, Device: "over0", Timeout: brief})
		}
	}
	r.ProbeAll(probes)
}
