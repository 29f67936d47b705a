package rig_test

import (
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// handmade puts the fence of the design up with ip and iptables alone: the bench must find no hole in it, whoever's
// hand built it.
type handmade struct{ backend string }

func (h handmade) routes(r *rig.Rig) {
	r.Pod.Run("ip link set eth0 group 9604")
	for family, network := range map[string]string{"-4": rig.Network4.String(), "-6": rig.Network6.String()} {
		r.Pod.Run("ip " + family + " rule add pref 96 lookup main suppress_prefixlength 0 suppress_ifgroup 9604")
		r.Pod.Run("ip " + family + " rule add pref 97 lookup 9604")
		r.Pod.Run("ip " + family + " route add blackhole " + network + " table 9604 proto 96")
	}
}

func (h handmade) firewall(r *rig.Rig) {
	for program, words := range map[string][2]string{
		"iptables":  {rig.Network4.String(), "icmp-admin-prohibited"},
		"ip6tables": {rig.Network6.String(), "icmp6-adm-prohibited"},
	} {
		rules := strings.NewReplacer("NETWORK", words[0], "PROHIBITED", words[1]).Replace(chains)
		r.Pod.Feed(rules, program+"-"+h.backend+"-restore --noflush -w 5")
	}
}

const chains = `*filter
:ROUTEFENCE -
-A ROUTEFENCE -o eth0 -d NETWORK -p tcp -j REJECT --reject-with tcp-reset
-A ROUTEFENCE -o eth0 -d NETWORK -j REJECT --reject-with PROHIBITED
-I OUTPUT 1 -j ROUTEFENCE
-I FORWARD 1 -j ROUTEFENCE
COMMIT
*mangle
:ROUTEFENCE -
-A ROUTEFENCE -o eth0 -d NETWORK -j DROP
-I POSTROUTING 1 -j ROUTEFENCE
COMMIT
`

var backends = []string{"nft", "legacy"}

// expect carries out all probes and compares those not bound to eth0 with want; a bound one must never be answered.
func expect(t *testing.T, r *rig.Rig, when, want string) {
	t.Helper()
	r.ResetCounters()
	ways := everyWay(r)
	for i := range ways {
		if ways[i].Device == "" && want != "" {
			ways[i].Timeout = ample
		}
	}
	for i, a := range r.ProbeAll(ways) {
		p := ways[i]
		switch {
		case p.Device == "eth0" && a.Err == nil:
			t.Errorf("%s: %v: answered by %v", when, p, a)
		case p.Device == "" && a.From != want:
			t.Errorf("%s: %v: got %v, want %q", when, p, a, want)
		}
	}
	if got := r.SeedCount(); got.Total() != 0 {
		t.Errorf("%s: the seed network saw %+v", when, got)
	}
}

func TestHandmadeFenceStopsEverything(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			r := rig.New(t, rig.Options{Forwarding: true})
			fence := handmade{backend}
			fence.routes(r)
			fence.firewall(r)
			expect(t, r, "VPN never up", "")
			r.TunnelUp()
			expect(t, r, "VPN up", rig.AnswerVPN)
			r.Tun.RemoveRoutes()
			expect(t, r, "VPN's routes gone", "")
			r.TunnelDown()
			expect(t, r, "VPN gone", "")
		})
	}
}

// TestFirewallAloneStopsEverything: with the routing half deleted, the firewall must be enough.
func TestFirewallAloneStopsEverything(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			r := rig.New(t, rig.Options{Forwarding: true})
			handmade{backend}.firewall(r)
			expect(t, r, "no routing fence", "")
		})
	}
}

// TestRoutesAloneLeak is the reason for the second layer.
func TestRoutesAloneLeak(t *testing.T) {
	r := rig.New(t, rig.Options{})
	handmade{"nft"}.routes(r)
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4}); a.String() != "EINVAL" {
		t.Errorf("free socket: got %v, want EINVAL", a)
	}
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4, Device: "eth0"}); a.From != rig.AnswerNet {
		t.Errorf("bound socket: got %v, want %s", a, rig.AnswerNet)
	}
}

func TestMoreSpecificRouteEndsInTheFence(t *testing.T) {
	r := rig.New(t, rig.Options{})
	fence := handmade{"nft"}
	fence.routes(r)
	fence.firewall(r)
	r.Pod.IP("route add 10.250.0.7 via 169.254.1.1 dev eth0", "route add fd00:250::7 via fe80::1 dev eth0",
		"route add default via 169.254.1.1 dev eth0 table 100", "rule add fwmark 1 pref 50 lookup 100")
	expect(t, r, "host routes by eth0", "")
	marked := rig.Probe{Protocol: rig.TCP, To: rig.Node4, Mark: 1}
	if a := r.Probe(marked); a.String() != "ECONNREFUSED" {
		t.Errorf("%v: got %v, want ECONNREFUSED", marked, a)
	}
	if got := r.SeedCount(); got.Total() != 0 {
		t.Errorf("the seed network saw %+v", got)
	}
}

func TestHammerSeesTheLeakAndTheFence(t *testing.T) {
	r := rig.New(t, rig.Options{Forwarding: true})
	open := hammer(r, func() {})
	if open.Seed.Packets < open.Attempts/2 {
		t.Errorf("without a fence: %v", open)
	}
	fence := handmade{"nft"}
	fence.routes(r)
	fence.firewall(r)
	fenced := hammer(r, func() {
		for range 10 {
			r.TunnelUp()
			time.Sleep(20 * time.Millisecond)
			r.TunnelDown()
		}
	})
	if fenced.Seed.Total() != 0 || fenced.VPN.Packets == 0 || fenced.Attempts == 0 {
		t.Errorf("with a fence, the tunnel flapping: %v", fenced)
	}
	t.Logf("open: %v", open)
	t.Logf("fenced: %v", fenced)
}

// hammer hammers while f runs, half a second at least.
func hammer(r *rig.Rig, f func()) rig.Totals {
	h := r.Hammer(rig.HammerRate)
	time.Sleep(500 * time.Millisecond)
	f()
	return h.Stop()
}

func TestSnapshotShowsTheFenceAndNothingElse(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend, func(t *testing.T) {
			r := rig.New(t, rig.Options{})
			bare := r.Snapshot()
			fence := handmade{backend}
			fence.routes(r)
			fence.firewall(r)
			first := r.Snapshot()
			if first == bare {
				t.Error("the fence does not show")
			}
			r.ProbeAll(everyWay(r))
			if second := r.Snapshot(); second != first {
				t.Errorf("traffic alone changed the snapshot from\n%s\nto\n%s", first, second)
			}
			for _, want := range []string{"group 9604", "suppress_ifgroup 9604", "blackhole 10.250.0.0/16", "-A ROUTEFENCE"} {
				if !strings.Contains(first, want) {
					t.Errorf("no %q in\n%s", want, first)
				}
			}
		})
	}
}
