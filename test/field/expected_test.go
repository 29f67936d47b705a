package field

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/routefence/routefence/test/rig"
	"github.com/routefence/routefence/test/shipped"
)

// TestTranslationBeforeItIsRead: the VPN's rule comes while the agent sleeps and the tunnel has routes for real addresses alone.
// Those lead a free socket's packet past the blackhole, nat rewrites it, and only what expects that range is left to stop it. The
// sleep makes the fifth of a second that an agent needs as long as one likes.
func TestTranslationBeforeItIsRead(t *testing.T) {
	eachPair(t, func(t *testing.T, r *rig.Rig, nat, fence string) {
		r.TunnelUp(rig.Network4, rig.Network6)
		w := netmap(nat, false)
		// The second agent finds the fence of the first, which is that of versions that expected nothing.
		if got := hammerUnread(t, r, w, fence, "--translated-networks=none"); got.Seed.Free() == 0 || got.Seed.Bound == 0 {
			t.Errorf("with no range expected the seed network saw nothing, so that its zero means nothing: %v", got)
		}
		if got := hammerUnread(t, r, w, fence); got.Seed.Total() != 0 || got.Attempts == 0 || got.VPN.Packets == 0 {
			t.Errorf("before the rule was read: %v", got)
		}
	})
}

// hammerUnread returns what came of senders while a rule was there that the agent had not read, and ends with neither.
func hammerUnread(t *testing.T, r *rig.Rig, w rewriting, fence string, args ...string) rig.Totals {
	t.Helper()
	s := startReady(t, r, fence, append(args, "--log-level=warn")...)
	s.AwaitPasses(2)
	s.Signal(syscall.SIGSTOP)
	w.rule(r, "-A")
	h := r.Hammer(rig.HammerRate)
	time.Sleep(500 * time.Millisecond)
	got := h.Stop()
	t.Logf("%v: %v", args, got)
	s.Signal(syscall.SIGCONT)
	s.Await("the rule is read", func(d document) bool {
		return d.Ready && slices.Equal(d.Network("10.250.0.0/16").TranslatedTo, []string{translated})
	})
	w.rule(r, "-D")
	s.Await("the rule is gone", func(d document) bool { return d.Ready && d.Network("10.250.0.0/16").TranslatedTo == nil })
	s.Stop()
	r.Pod.Run("ip neigh flush to 10.250.0.0/16 dev eth0")
	r.ResetCounters()
	return got
}

// TestExpectedRange: what the pod lives among is not closed because translated nodes might be there, nor is what is allowed.
func TestExpectedRange(t *testing.T) {
	t.Parallel()
	const one, other = "242.9.9.9", "242.9.9.8"
	for _, c := range []struct {
		name string
		wrap []string
		args []string
		// script changes the pod, reached are those of the two that stay reachable, said is what the state says of it.
		script  string
		reached []string
		said    string
	}{
		{name: "plain"},
		{name: "none", args: []string{"--translated-networks=none"}, reached: []string{one, other}},
		{name: "not followed", args: []string{"--translation=off"}, reached: []string{one, other}},
		{name: "another range", args: []string{"--translated-networks=242.9.9.8/32,fd00:242::/32"}, reached: []string{one}},
		{name: "allowed", args: []string{"--allow=" + one + "/32"}, reached: []string{one}},
		{name: "own address", script: "ip addr add 242.1.1.1/32 dev eth0", reached: []string{one, other}, said: "holds the pod's own address on eth0 242.1.1.1"},
		{name: "API server", wrap: []string{"env", "KUBERNETES_SERVICE_HOST=" + one}, reached: []string{one, other}, said: "holds the pod's API server (KUBERNETES_SERVICE_HOST) " + one},
		{name: "host", args: []string{"--host-ip=" + other}, reached: []string{one, other}, said: "holds the pod's host " + other},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := bench(t)
			if c.script != "" {
				r.Pod.Run(c.script)
			}
			s := startWith(t, r, c.wrap, append(c.args, bothNetworks, "--firewall=nft")...)
			d := s.AwaitReady()
			if said := strings.Join(d.Firewall.Degraded, "; "); !strings.Contains(said, c.said) || c.said == "" && said != "" {
				t.Errorf("the state says %q, want %q", said, c.said)
			}
			for _, to := range []string{one, other} {
				reached, patience := slices.Contains(c.reached, to), brief
				if reached {
					patience = ample
				}
				a := r.Probe(rig.Probe{Protocol: rig.TCP, To: netip.MustParseAddr(to), Timeout: patience})
				if reached != (a.From == rig.AnswerNet) {
					t.Errorf("%s: %v", to, a)
				}
				got := r.Exec(shipped.Binary, "explain", to, bothNetworks)
				if got.Exit != 0 || strings.Contains(got.Stdout, "may be translated to") == reached || strings.Contains(got.Stdout, "to eth0 leaves") != reached {
					t.Errorf("explain exits with %d:\n%s%s", got.Exit, got.Stdout, got.Stderr)
				}
			}
			if a := r.Probe(rig.Probe{Protocol: rig.UDP, To: netip.MustParseAddr(other), Timeout: brief}); c.reached == nil && a.String() != "EPERM" {
				t.Errorf("UDP is refused with %v, want EPERM", a)
			}
			s.Stop()
			clean(t, r)
		})
	}
}
