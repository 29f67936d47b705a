package rig_test

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
)

// ample is the patience with probes that must be answered.
const ample = 10 * time.Second

// everyWay lists all ways to reach the node: protocols, families, bound to eth0 or not, and forwarded.
func everyWay(r *rig.Rig) []rig.Probe {
	var ways []rig.Probe
	for _, to := range []netip.Addr{rig.Node4, rig.Node6, rig.Mapped(rig.Node4)} {
		for _, protocol := range []rig.Protocol{rig.TCP, rig.UDP, rig.ICMP} {
			if protocol == rig.ICMP && to.Is4In6() {
				continue // the kernel has no such thing
			}
			p := rig.Probe{From: r.Pod, Protocol: protocol, To: to}
			bound, forwarded := p, p
			bound.Device, forwarded.From = "eth0", r.Client
			ways = append(ways, p, bound)
			if r.Client != nil {
				ways = append(ways, forwarded)
			}
		}
	}
	return ways
}

// TestLeakIsSeenWithoutFence also proves that the seed side's counter can count.
func TestLeakIsSeenWithoutFence(t *testing.T) {
	r := rig.New(t, rig.Options{Forwarding: true})
	for _, p := range everyWay(r) {
		before := r.SeedCount()
		p.Timeout = ample
		if a := r.Probe(p); a.From != rig.AnswerNet {
			t.Errorf("%v: got %v, want %s", p, a, rig.AnswerNet)
		}
		if after := r.SeedCount(); after.Packets == before.Packets {
			t.Errorf("%v: the seed side's counter did not move from %+v", p, before)
		}
	}
	if got := r.VPNCount(); got != (rig.Count{}) {
		t.Errorf("without a tunnel the VPN's counter shows %+v", got)
	}
}

func TestTunnelCarriesWhatIsRoutedIntoIt(t *testing.T) {
	r := rig.New(t, rig.Options{Forwarding: true})
	for round := range 3 {
		r.TunnelUp()
		r.ResetCounters()
		ways := everyWay(r)
		for i := range ways {
			ways[i].Timeout = ample
		}
		for i, a := range r.ProbeAll(ways) {
			want := rig.AnswerVPN
			if ways[i].Device == "eth0" {
				want = rig.AnswerNet
			}
			if a.From != want {
				t.Errorf("round %d: %v: got %v, want %s", round, ways[i], a, want)
			}
		}
		if got := r.VPNCount(); got.Packets == 0 {
			t.Errorf("round %d: the VPN's counter shows nothing", round)
		}
		r.TunnelDown()
	}
}

func TestSeedCounterIsExact(t *testing.T) {
	r := rig.New(t, rig.Options{})
	r.Probe(rig.Probe{Protocol: rig.UDP, To: rig.Node4, Timeout: ample}) // warms the gateway's neighbour entry
	r.ResetCounters()
	const packets = 7
	for range packets {
		if a := r.Probe(rig.Probe{Protocol: rig.UDP, To: rig.Node4, Timeout: ample}); a.Err != nil {
			t.Fatal(a.Err)
		}
	}
	if got, want := r.SeedCount(), (rig.Count{Packets: packets}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestNeighbourRequestsAreCounted: a bound socket under a blackhole takes the node for a neighbour.
func TestNeighbourRequestsAreCounted(t *testing.T) {
	r := rig.New(t, rig.Options{})
	r.Pod.IP("route add blackhole 10.250.0.0/16", "route add fd00:250::/48 dev eth0")
	if a := r.Probe(rig.Probe{Protocol: rig.UDP, To: rig.Node4, Device: "eth0", Timeout: ample}); a.From != rig.AnswerNet {
		t.Errorf("bound socket under a blackhole: got %v, want %s", a, rig.AnswerNet)
	}
	if got := r.SeedCount(); got.Neighbour != 1 || got.Packets != 1 {
		t.Errorf("IPv4: got %+v, want one request and one packet", got)
	}
	r.ResetCounters()
	r.Probe(rig.Probe{Protocol: rig.UDP, To: rig.Node6, Timeout: ample})
	if got := r.SeedCount(); got.Neighbour != 1 || got.Packets != 1 {
		t.Errorf("IPv6: got %+v, want one request and one packet", got)
	}
}

func TestTranslatedAddressesAreCountedOnBothSides(t *testing.T) {
	r := rig.New(t, rig.Options{})
	p := rig.Probe{Protocol: rig.TCP, To: rig.TranslatedNode, Timeout: ample}
	if a := r.Probe(p); a.From != rig.AnswerNet || r.SeedCount().Translated == 0 {
		t.Errorf("without a tunnel: got %v, %+v", a, r.SeedCount())
	}
	r.TunnelUp(rig.Translated)
	if a := r.Probe(p); a.From != rig.AnswerVPN || r.VPNCount().Translated == 0 {
		t.Errorf("with a tunnel: got %v, %+v", a, r.VPNCount())
	}
}

func TestRoutesComeAndGoWithoutTheDevice(t *testing.T) {
	r := rig.New(t, rig.Options{})
	p := rig.Probe{Protocol: rig.TCP, To: rig.Node4, Timeout: ample}
	for step, want := range []string{rig.AnswerNet, rig.AnswerVPN, rig.AnswerNet, rig.AnswerVPN} {
		switch step {
		case 0:
			r.Tun.DeviceUp()
		case 2:
			r.Tun.RemoveRoutes()
		default:
			r.Tun.AddRoutes()
		}
		if a := r.Probe(p); a.From != want {
			t.Errorf("step %d: got %v, want %s", step, a, want)
		}
	}
}

func TestMutedPeerIsSilence(t *testing.T) {
	r := rig.New(t, rig.Options{})
	r.TunnelUp()
	r.Mute()
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4}); !errors.Is(a.Err, rig.ErrNoAnswer) {
		t.Errorf("muted: got %v, want %v", a, rig.ErrNoAnswer)
	}
	if r.VPNCount().Packets == 0 {
		t.Error("muted: nothing was counted")
	}
	r.Unmute()
	if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4, Timeout: ample}); a.From != rig.AnswerVPN {
		t.Errorf("unmuted: got %v, want %s", a, rig.AnswerVPN)
	}
}

func TestPodLinkCanBeMadeAnew(t *testing.T) {
	r := rig.New(t, rig.Options{Forwarding: true})
	p := rig.Probe{Protocol: rig.TCP, To: rig.Node6, Timeout: ample}
	for round := range 2 {
		r.ResetCounters()
		if a := r.Probe(p); a.From != rig.AnswerNet || r.SeedCount().Packets == 0 {
			t.Errorf("round %d: got %v, %+v", round, a, r.SeedCount())
		}
		r.Pod.Run("ip link del eth0")
		r.LinkPod()
	}
}

func TestTwoTunnels(t *testing.T) {
	r := rig.New(t, rig.Options{})
	second := r.NewTunnel("bond0-ip6tnl0")
	r.Tun.Up(rig.Network4)
	second.Up(rig.Network6)
	for _, to := range []netip.Addr{rig.Node4, rig.Node6} {
		if a := r.Probe(rig.Probe{Protocol: rig.TCP, To: to, Timeout: ample}); a.From != rig.AnswerVPN {
			t.Errorf("%v: got %v, want %s", to, a, rig.AnswerVPN)
		}
	}
}

func TestOddPrefixLengthsCanBeCounted(t *testing.T) {
	for _, bits := range []int{33, 52, 128} {
		t.Run(fmt.Sprint(bits), func(t *testing.T) {
			network := netip.PrefixFrom(rig.Node6, bits).Masked()
			r := rig.New(t, rig.Options{Networks: []netip.Prefix{network}})
			r.Pod.Run("ip -6 route add " + network.String() + " dev eth0")
			r.Probe(rig.Probe{Protocol: rig.UDP, To: rig.Node6, Timeout: ample})
			if got := r.SeedCount(); got.Neighbour != 1 || got.Packets != 1 {
				t.Errorf("got %+v, want one request and one packet", got)
			}
		})
	}
}
