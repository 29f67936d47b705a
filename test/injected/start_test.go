package injected

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/routefence/routefence/inject"
	"github.com/routefence/routefence/test/gardener"
	"github.com/routefence/routefence/test/rig"
	corev1 "k8s.io/api/core/v1"
)

// eachWorkload runs a test for every workload that is to be fenced, in both forms.
func eachWorkload(t *testing.T, test func(t *testing.T, k *kubelet, workload string)) {
	for _, w := range gardener.Objects() {
		if !w.Fenced {
			continue
		}
		for _, form := range []inject.Form{inject.NativeSidecar, inject.Pair} {
			t.Run(fmt.Sprintf("%s %s", w.Name, form), func(t *testing.T) {
				t.Parallel()
				test(t, newKubelet(t, w.Name, inject.Options{Form: form}), w.Name)
			})
		}
	}
}

// TestStartWithoutVPN is issue 5: no packet before the fence; startup does not wait for the VPN; the pod gets ready with the VPN down, and
// stays tight through kills of the agent. Then the VPN comes up and carries everything.
func TestStartWithoutVPN(t *testing.T) {
	eachWorkload(t, func(t *testing.T, k *kubelet, workload string) {
		k.start()
		if !strings.HasPrefix(k.ran[0], "routefence") {
			t.Fatalf("the first container is %s", k.ran[0])
		}
		k.await(k.agent.ReadinessProbe)
		if err := k.probe(k.agent.LivenessProbe); err != nil {
			t.Errorf("alive, with the VPN down: %v", err)
		}
		// What the kubelet does when the liveness probe fails: the others run on.
		for range 3 {
			k.process.Kill()
			k.run(k.agent)
			k.await(k.agent.StartupProbe)
		}
		k.await(k.agent.ReadinessProbe)
		t.Logf("%s: %v", strings.Join(k.ran, " "), k.stop("VPN down"))
		k.tunnelCarries(workload)
	})
}

// tunnelCarries brings up the device that the VPN of such a pod has.
func (k *kubelet) tunnelCarries(workload string) {
	k.t.Helper()
	device := k.Tun
	switch workload {
	case "vpn-seed-server-ha":
		device = k.NewTunnel("tap0")
	case "kube-apiserver-ha", "kube-apiserver-ha-overlap":
		device = k.NewTunnel("bond0-ip6tnl0")
	}
	device.Up()
	k.other()
	for _, to := range []netip.Addr{rig.Node4, rig.Node6, rig.Mapped(rig.Node4)} {
		if got := k.Probe(rig.Probe{Protocol: rig.TCP, To: to, Timeout: patience}); got.From != rig.AnswerVPN {
			k.t.Errorf("VPN up over %s, TCP to %v: %v", device.Name, to, got)
		}
	}
	k.awaitPhase("Tunneled")
	k.stop("VPN up")
}

// awaitPhase waits for what "kubectl exec" of status says, with the container's environment.
func (k *kubelet) awaitPhase(phase string) {
	k.t.Helper()
	said := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		c := k.agent
		c.Args = []string{"status"}
		p := k.command(c)
		code, err := p.Wait(patience)
		if said = p.Output(); err == nil && code == 0 && strings.HasPrefix(said, phase+", ready") {
			return
		}
	}
	k.t.Errorf("status never said %s: %s", phase, said)
}

// TestWithoutFence: the same pods without the fence are caught by the same count, so that its zero means something.
func TestWithoutFence(t *testing.T) {
	k := newKubelet(t, "kube-apiserver-ha", inject.Options{})
	k.other()
	if totals := k.count("without a fence"); totals.Seed.Free() == 0 || totals.Seed.Bound == 0 {
		t.Errorf("nothing left by eth0: %v", totals)
	}
}

// TestTranslatedByEitherBackend: the VPN translates node addresses by rules of the backend that it found first, and the injected agent
// must see them with the capabilities that it has: a fence that did not would cut off the healthy VPN.
func TestTranslatedByEitherBackend(t *testing.T) {
	for _, workload := range []string{"vpn-seed-server", "kube-apiserver-ha-overlap"} {
		for _, backend := range []string{"nft", "legacy"} {
			t.Run(workload+" "+backend, func(t *testing.T) {
				t.Parallel()
				k := newKubelet(t, workload, inject.Options{})
				k.start()
				k.await(k.agent.ReadinessProbe)
				k.Pod.Run("iptables-" + backend + " -w 5 -t nat -A OUTPUT -d " + rig.Network4.String() + " -j NETMAP --to 242.0.0.0/16")
				device := k.Tun
				if workload == "kube-apiserver-ha-overlap" {
					device = k.NewTunnel("bond0-ip6tnl0")
				}
				device.Up(rig.Translated, rig.Network6)
				var got rig.Answer
				for deadline := time.Now().Add(patience); got.From != rig.AnswerVPN && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
					got = k.Probe(rig.Probe{Protocol: rig.TCP, To: rig.Node4})
				}
				if got.From != rig.AnswerVPN {
					t.Errorf("translated by %s, TCP to %v: %v\nlog: %s", backend, rig.Node4, got, k.process.Output())
				}
				k.await(k.agent.ReadinessProbe)
				// A bound socket finds its way out until the new rule is read (docs/fence.md); free ones never do.
				if totals := k.count("translated"); totals.Seed.Free() != 0 || totals.Seed.Neighbour != 0 {
					t.Errorf("packets left by eth0: %v", totals)
				}
				device.Down()
				k.other()
				k.stop("translated, and the VPN down")
			})
		}
	}
}

// TestKubeletInsideNodeNetwork: where seed and shoot use the same node network the kubelet that probes is at an address which the fence is for.
// It gets its answers, through all stages of the pod's life, and the pod still reaches nobody there.
func TestKubeletInsideNodeNetwork(t *testing.T) {
	for _, workload := range []string{"kube-apiserver", "kube-apiserver-ha", "vpn-seed-server"} {
		t.Run(workload, func(t *testing.T) {
			t.Parallel()
			k := newKubelet(t, workload, inject.Options{})
			k.live(netip.MustParseAddr("10.250.3.3"))
			k.start()
			k.others.Stop()
			k.await(k.agent.ReadinessProbe)
			for _, state := range []string{"down", "up"} {
				if state == "up" {
					k.Tun.Up()
					k.awaitPhase("Tunneled")
				}
				for _, p := range []*corev1.Probe{k.agent.StartupProbe, k.agent.ReadinessProbe, k.agent.LivenessProbe} {
					if err := k.probe(p); err != nil {
						t.Errorf("VPN %s: %s: %v", state, p.HTTPGet.Path, err)
					}
				}
				for _, to := range []netip.Addr{rig.Node4, k.host} {
					if got := k.Probe(rig.Probe{Protocol: rig.TCP, To: to}); got.From == rig.AnswerNet || state == "up" && got.From != rig.AnswerVPN {
						t.Errorf("VPN %s, TCP to %v: %v", state, to, got)
					}
				}
			}
		})
	}
}
