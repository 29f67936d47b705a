//go:build vm

package ha

import (
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// farBonds are the bond addresses of all shoot clients, the destinations of the tunnels' own packets.
const farBonds = "fd8f:6d53:b97a:1::b:0/112"

// noAnswer is what a connect comes to that is neither answered nor refused.
const noAnswer = "connect: no answer"

// TestCarrierlessBond is behind docs/decisions/011-linkdown.md: what a connect meets when both taps are down, with and
// without ignore_routes_with_linkdown.
func TestCarrierlessBond(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *bench, backend string) {
		b.vpn()
		// What the kernel says is asked, not what the fence ends.
		s := b.fence(backend, "--tunnel-grace=0")
		s.phase("Tunneled")
		b.expect("VPN up", rig.AnswerVPN)
		b.unplug(0)
		b.unplug(1)
		b.awaitCarrier(false)

		// The tunnel has a carrier of its own; its packets wait in vain for a neighbour on bond0.
		b.expectConnect("by the tunnel", "EHOSTUNREACH", false)
		b.route("bond0")
		b.expectConnect("by the bond", "EHOSTUNREACH", false)
		b.route(tunnel)
		b.ignoreLinkdown()
		// Now its packets, and node traffic in them, follow the default route.
		b.expectConnect("by the tunnel, linkdown ignored", noAnswer, true)

		// Routes straight to the bond, as in gardener/gardener#9604, are what the setting is made for.
		b.route("bond0")
		b.expectConnect("by the bond, linkdown ignored", "EINVAL", false)
		s.phase("Blocked")

		// Without its source address the tunnel sends nothing.
		b.route(tunnel)
		b.Pod.IP("link set bond0 down")
		b.expectConnect("by the tunnel, bond down, linkdown ignored", "EHOSTUNREACH", false)
		b.Pod.IP("addr add "+podBond.String()+"/104 dev bond0 nodad", "link set bond0 up")

		s.Stop()
		s = b.fence(backend, "--node-networks="+farBonds)
		b.expectConnect("by the tunnel, linkdown ignored, the far bonds fenced", "EHOSTUNREACH", false)
		b.plug(0)
		b.awaitCarrier(true)
		s.phase("Tunneled")
		b.expect("tap up again, the far bonds fenced", rig.AnswerVPN)
	})
}

func (b *bench) ignoreLinkdown() {
	for _, family := range []string{"ipv4", "ipv6"} {
		b.Pod.Sysctl(family+"/conf/bond0/ignore_routes_with_linkdown", "1")
	}
}

// expectConnect connects in both families at the same time. It asserts how that ends, that the seed network saw no packets
// to the node, and that it saw some inside of the tunnel's packets, or none.
func (b *bench) expectConnect(when, want string, inside bool) {
	b.t.Helper()
	var probes []rig.Probe
	for _, to := range addresses[:2] {
		// The kernel gives up on a neighbour after three seconds.
		probes = append(probes, rig.Probe{Protocol: rig.TCP, To: to, Timeout: 8 * time.Second})
	}
	for i, a := range b.ProbeAll(probes) {
		b.t.Logf("%s: %v: %v after %v", when, probes[i].To, a, a.Took.Round(time.Millisecond))
		if a.String() != want {
			b.t.Errorf("%s: connect to %v: got %v after %v, want %s", when, probes[i].To, a, a.Took, want)
		}
	}
	bare, tunneled := b.watch.to()
	if len(bare) > 0 || (len(tunneled) > 0) != inside {
		b.t.Errorf("%s: the seed network saw packets to %v, and to %v in the tunnel's (want: %v)", when, bare, tunneled, inside)
	}
}
