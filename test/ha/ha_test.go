//go:build vm

package ha

import (
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// Probes that must be answered get ample time, those that must not be get brief.
const (
	ample = 20 * time.Second
	brief = 500 * time.Millisecond
)

// expect connects to the node in every family and asserts who answers ("" for nobody), and that nothing was sent to it by
// eth0.
func (b *bench) expect(when, want string) {
	b.t.Helper()
	for _, to := range addresses {
		p := rig.Probe{Protocol: rig.TCP, To: to, Timeout: brief}
		if want != "" {
			p.Timeout = ample
		}
		if a := b.Probe(p); a.From != want {
			b.t.Errorf("%s: connect to %v: got %v, want %q", when, to, a, want)
		}
		// Sockets bound to eth0 have nothing but the firewall in their way.
		if a := b.Probe(rig.Probe{Protocol: rig.TCP, To: to, Device: "eth0", Timeout: brief}); a.Err == nil {
			b.t.Errorf("%s: connect to %v bound to eth0: answered by %v", when, to, a)
		}
	}
	if bare, tunneled := b.watch.to(); len(bare)+len(tunneled) > 0 {
		b.t.Errorf("%s: the seed network saw packets to %v, and to %v in the tunnel's", when, bare, tunneled)
	}
}

// expectOpen asserts that the leak is there without a fence, and that the watch sees it.
func (b *bench) expectOpen() {
	b.t.Helper()
	for _, to := range addresses {
		if a := b.Probe(rig.Probe{Protocol: rig.TCP, To: to, Timeout: ample}); a.From != rig.AnswerNet {
			b.t.Errorf("no fence: connect to %v: got %v, want %s", to, a, rig.AnswerNet)
		}
		if bare, _ := b.watch.to(); len(bare) == 0 {
			b.t.Errorf("no fence: connect to %v: nothing was seen on the seed network", to)
		}
	}
}

// TestLifeOfTheVPN: before the VPN, with it, over one tap, over none, and with it again.
func TestLifeOfTheVPN(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *bench, backend string) {
		b.expectOpen()
		s := b.fence(backend)
		s.phase("Blocked")
		b.expect("VPN never up", "")
		b.vpn()
		s.phase("Tunneled")
		b.expect("VPN up", rig.AnswerVPN)
		b.unplug(0)
		b.expect("one tap down", rig.AnswerVPN)
		b.unplug(1)
		b.awaitCarrier(false)
		b.expect("both taps down", "")
		// The routes still lead into the tunnel, and nobody but the far end could tell more.
		s.phase("Tunneled")
		b.plug(1)
		b.expect("one tap up again", rig.AnswerVPN)
		s.phase("Tunneled")
	})
}

// awaitCarrier waits until the bond has noticed, which takes it its monitoring interval.
func (b *bench) awaitCarrier(want bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if !strings.Contains(b.Pod.Run("ip link show bond0"), "NO-CARRIER") == want {
			return
		}
	}
	b.t.Fatalf("bond0 never had carrier %v", want)
}

// TestDevicesMadeAnew: tunnel and bond come back under new indices.
func TestDevicesMadeAnew(t *testing.T) {
	eachBackend(t, func(t *testing.T, b *bench, backend string) {
		s := b.fence(backend)
		b.vpn()
		for range 3 {
			s.phase("Tunneled")
			b.expect("VPN up", rig.AnswerVPN)
			b.Pod.IP("link del " + tunnel)
			s.phase("Blocked")
			b.expect("tunnel deleted", "")
			b.tunnel(b.Pod, podBond, farBond)
			b.route(tunnel)
		}
		b.Pod.IP("link del " + tunnel)
		b.unplug(0)
		b.unplug(1)
		b.unbond()
		b.VPN.IP("link del "+tunnel, "link del bond0", "link del tap0", "link del tap1")
		s.phase("Blocked")
		b.expect("bond deleted", "")
		b.vpn()
		s.phase("Tunneled")
		b.expect("all made anew", rig.AnswerVPN)
	})
}
