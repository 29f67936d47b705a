package fence

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// TestReach: no way leads over the seed network, and every free one through the VPN while it is up.
func TestReach(t *testing.T) {
	eachBackend(t, rig.Options{Forwarding: true}, func(t *testing.T, r *rig.Rig, backend string) {
		expectOpen(t, r)
		s := startReady(t, r, backend)
		for _, when := range []string{"VPN never up", "VPN gone again"} {
			d := s.AwaitPhase("Blocked")
			if d.Firewall.Backend != backend || d.Reason != "Fenced" {
				t.Errorf("%s: reason %s, backend %s", when, d.Reason, d.Firewall.Backend)
			}
			r.ResetCounters()
			expect(t, r, when, "")
			expectQuickRefusal(t, r)
			expectExplain(t, r, 0, "blackhole")
			r.TunnelUp()
			s.AwaitPhase("Tunneled")
			expect(t, r, "VPN up", rig.AnswerVPN)
			expectExplain(t, r, 0, "tun0")
			r.TunnelDown()
		}
	})
}

// expectExplain asks "explain" about the node in both families.
func expectExplain(t *testing.T, r *rig.Rig, exit int, word string) {
	t.Helper()
	for _, a := range []netip.Addr{rig.Node4, rig.Node6} {
		got := r.Exec(shipped.Binary, "explain", a.String(), bothNetworks)
		if got.Exit != exit || !strings.Contains(got.Stdout, word) {
			t.Errorf("explain %v exits with %d, want %d and the word %q:\n%s%s", a, got.Exit, exit, word, got.Stdout, got.Stderr)
		}
	}
}

// TestCommandsWithoutFence: the same commands tell the opposite where there is no fence and no agent.
func TestCommandsWithoutFence(t *testing.T) {
	r := rig.New(t, rig.Options{})
	expectExplain(t, r, 1, "eth0")
	if got := r.Exec(shipped.Binary, "explain", rig.Pod4.String(), bothNetworks); got.Exit != 0 {
		t.Errorf("explain of no node address exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
	if got := r.Exec(shipped.Binary, "status"); got.Exit != 3 || got.Stderr == "" {
		t.Errorf("status without an agent exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
	}
}

// TestVPNRoutesOfAnyLength: whether the VPN's route is shorter than the node network, equal or longer, it carries.
func TestVPNRoutesOfAnyLength(t *testing.T) {
	r := rig.New(t, rig.Options{Forwarding: true})
	s := startReady(t, r, "nft")
	for name, list := range map[string]string{
		"shorter": "10.128.0.0/9 fd00:200::/24",
		"equal":   "10.250.0.0/16 fd00:250::/48",
		"longer":  "10.250.0.0/17 10.250.128.0/17 fd00:250::/49 fd00:250:0:8000::/49",
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			var prefixes []netip.Prefix
			for _, p := range strings.Fields(list) {
				prefixes = append(prefixes, netip.MustParsePrefix(p))
			}
			r.TunnelUp(prefixes...)
			s.AwaitPhase("Tunneled")
			expect(t, r, "VPN up", rig.AnswerVPN)
			r.TunnelDown()
			s.AwaitPhase("Blocked")
			expect(t, r, "VPN down", "")
		})
	}
}

// TestReadyWhenTunneled: who asks for it is told that the VPN is down.
func TestReadyWhenTunneled(t *testing.T) {
	r := rig.New(t, rig.Options{})
	s := start(t, r, bothNetworks, "--firewall=nft", "--ready-when=tunneled")
	d := s.Await("the fence stands", func(d document) bool { return d.Phase == "Blocked" && d.Reason == "TunnelDown" })
	if code, body := s.Get("/readyz"); d.Ready || code != 503 || !strings.Contains(body, "[-]tunneled failed") {
		t.Errorf("VPN down: ready %v, /readyz %d %s", d.Ready, code, body)
	}
	if code, _ := s.Get("/startupz"); code != 200 {
		t.Errorf("VPN down: /startupz %d", code)
	}
	if got := r.Exec(shipped.Binary, "status"); got.Exit != 1 {
		t.Errorf("VPN down: status exits with %d", got.Exit)
	}
	r.TunnelUp()
	if d := s.AwaitPhase("Tunneled"); d.Reason != "Tunneled" {
		t.Errorf("VPN up: reason %s", d.Reason)
	}
}

// TestAllowedPartStaysReachable: --allow opens its addresses and not the one beside them.
func TestAllowedPartStaysReachable(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		s := startReady(t, r, backend, "--allow=10.250.0.7/32,fd00:250::7/128")
		if d := s.AwaitPhase("Blocked"); strings.Count(d.Causes(), " Allowed") != 2 {
			t.Errorf("the state does not name the allowed parts: %s", d.Causes())
		}
		for _, p := range everyWay(r) {
			p.Timeout = ample
			if a := r.Probe(p); a.From != rig.AnswerNet {
				t.Errorf("allowed: %v: got %v, want %s", p, a, rig.AnswerNet)
			}
		}
		r.ResetCounters()
		for _, p := range everyWay(r) {
			if p.To = p.To.Next(); p.To.Is4In6() {
				p.To = rig.Mapped(p.To.Unmap())
			}
			p.Timeout = brief
			if a := r.Probe(p); a.Err == nil {
				t.Errorf("beside the allowed: %v: answered by %v", p, a)
			}
		}
		expectNoLeak(t, r, "beside the allowed")
	})
}

// TestTunnelUnderNewIndex: a reconnecting VPN makes its device anew each time.
func TestTunnelUnderNewIndex(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		startReady(t, r, backend)
		for round := range 20 {
			r.TunnelUp()
			for _, to := range addresses {
				if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: to, Timeout: ample}); a.From != rig.AnswerVPN {
					t.Errorf("round %d: connect to %v: got %v, want %s", round, to, a, rig.AnswerVPN)
				}
			}
			r.TunnelDown()
			if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4}); a.Err == nil {
				t.Errorf("round %d, down: answered by %v", round, a)
			}
		}
		expectNoLeak(t, r, "in 20 rounds")
	})
}
