package fence

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// kills is how often the agent is killed, over both backends: half of the times when it is ready, half at any moment.
const kills = 50

// TestKilledAndRestarted: under the hammer the fence outlives its agent; the next one finds it, writes nothing, and
// doubles nothing.
func TestKilledAndRestarted(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		plantForeign(r)
		s := startReady(t, r, backend)
		want := snapshot(r)
		h := r.Hammer(hammerRate)
		for range kills / len(backends) / 2 {
			s.Kill()
			s = startReady(t, r, backend)
			if n := s.Changes(); n != 0 {
				t.Errorf("the restarted agent wrote:\n%s", s.Output())
			}
		}
		expectSame(t, "after restarts of a ready agent", want, snapshot(r))
		for range kills / len(backends) / 2 {
			s.Kill()
			s = start(t, r, bothNetworks, "--firewall="+backend, "--resync=1s")
			// A start takes about 100 ms; so the next kill falls into any of its parts, or soon after.
			time.Sleep(rand.N(200 * time.Millisecond))
		}
		s.Kill()
		startReady(t, r, backend)
		expectSame(t, "after kills at any moment", want, snapshot(r))
		expectStopped(t, h)
	})
}

// TestSignalsLeaveTheFence: SIGTERM and SIGINT end the agent with 0 and change nothing in the kernel.
func TestSignalsLeaveTheFence(t *testing.T) {
	r := rig.New(t, rig.Options{})
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		s := startReady(t, r, "nft")
		want := snapshot(r)
		s.Signal(signal)
		if code, err := s.Wait(patience); err != nil || code != 0 {
			t.Errorf("after %v: exit %d, %v\n%s", signal, code, err, s.Tail())
		}
		expectSame(t, "after "+signal.String(), want, snapshot(r))
		r.ResetCounters()
		expectRefused(t, r, "after "+signal.String())
		expectNoLeak(t, r, "after "+signal.String())
	}
}

// TestInitLeavesTheFence: once init has ended, nothing gets out, from the first packet on.
func TestInitLeavesTheFence(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		for range 5 {
			got := r.Exec(shipped.Binary, "init", bothNetworks, "--firewall="+backend)
			if got.Exit != 0 || !strings.Contains(got.Stdout, "2 node networks fenced") {
				t.Fatalf("init exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
			}
			r.ResetCounters()
			expectRefused(t, r, "after init")
			expectNoLeak(t, r, "after init")
			clean(t, r)
		}
		if got := r.Exec(shipped.Binary, "init", "--shoot-file=/nonexistent", "--timeout=300ms"); got.Exit != 1 || got.Stderr == "" {
			t.Errorf("init without networks exits with %d: %s%s", got.Exit, got.Stdout, got.Stderr)
		}
	})
}

// TestFR54StoppedAgent: the fence stands by itself. With the agent stopped, tunnels and routes come and go; nothing gets out,
// and the VPN carries again as soon as its route is back.
func TestFR54StoppedAgent(t *testing.T) {
	eachBackendAtOnce(t, rig.Options{}, func(t *testing.T, r *rig.Rig, backend string) {
		expectHammerSeen(t, r)
		s := startReady(t, r, backend)
		s.Signal(syscall.SIGSTOP)
		h := r.Hammer(hammerRate)
		for range 50 {
			r.TunnelUp()
			time.Sleep(5 * time.Millisecond)
			r.TunnelDown()
		}
		for _, down := range []struct{ cut, restore string }{
			{"ip route del 10.250.0.0/16 dev tun0", "ip route add 10.250.0.0/16 dev tun0"},
			{"ip link set tun0 down", "ip link set tun0 up"},
		} {
			r.TunnelUp()
			expectCarried(t, r, "VPN up")
			r.Pod.Run(down.cut)
			expectAnswer(t, r, "after "+down.cut, "")
			r.Pod.Run(down.restore)
			// The kernel does not put back what a link took along; the VPN does.
			r.Tun.AddRoutes()
			expectCarried(t, r, "after "+down.restore)
			r.TunnelDown()
		}
		r.TunnelUp()
		r.Mute()
		expectAnswer(t, r, "the peer is dead", "")
		r.Unmute()
		expectCarried(t, r, "the peer lives again")
		r.TunnelDown()
		expectStopped(t, h)
		s.Signal(syscall.SIGCONT)
		s.AwaitPhase("Blocked")
	})
}

func expectCarried(t *testing.T, r *rig.Rig, when string) {
	t.Helper()
	expectAnswer(t, r, when, rig.AnswerVPN)
}

// expectAnswer connects to the node's IPv4 address by a free socket.
func expectAnswer(t *testing.T, r *rig.Rig, when, want string) {
	t.Helper()
	p := rig.Probe{Protocol: rig.TCP, To: rig.Node4}
	if want != "" {
		p.Timeout = ample
	}
	if a := r.Probe(p); a.From != want {
		t.Errorf("%s: got %v, want %q", when, a, want)
	}
}
